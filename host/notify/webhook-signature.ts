/** Signs messages to webhooks as the Standard Webhooks specification 1.0 has it (https://www.standardwebhooks.com). */
import { createHmac } from 'node:crypto'
import type { Result } from '#specs/protocol/error.ts'
import type { Secret } from '../keys/secret.ts'

const keyMinBytes = 24
const keyMaxBytes = 64

/** The bytes of a secret `whsec_` and base64. The error has nothing of it. */
export function readWebhookSecret(secret: Secret): Result<Buffer, string> {
  const [, encoded = ''] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret.reveal()) ?? []
  const key = Buffer.from(encoded, 'base64')
  if (key.length >= keyMinBytes && key.length <= keyMaxBytes) return { ok: true, value: key }
  return {
    ok: false,
    error: `expected whsec_ and ${keyMinBytes} to ${keyMaxBytes} bytes in base64; to make one: echo "whsec_$(openssl rand -base64 32)"`,
  }
}

/** @param id of the message, the same for each attempt @param at ms since 1970 */
export function signWebhook(key: Buffer, id: string, at: number, body: string): Record<string, string> {
  const timestamp = String(Math.floor(at / 1_000))
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${signature}`,
  }
}
