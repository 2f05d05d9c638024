/** Messages of the service to webhooks, checked by whoever gets them: signature, age and form (Standard Webhooks 1.0). */
import { WebhookMessage } from '#specs/service/webhook-resources.ts'

export interface ReceivedWebhook {
  /** As it came, byte for byte: what is parsed and written again has another signature. */
  readonly body: string | Uint8Array
  /** Headers by lower-case name, or what gives them, such as `Headers` or a `Map`. */
  readonly headers:
    | Readonly<Record<string, string | readonly string[] | undefined>>
    | { get(name: string): string | null | undefined }
  /** `whsec_` and base64, as the configuration of the service has it. */
  readonly secret: string
  /** ms since 1970. Default: now. */
  readonly now?: number
}

export interface CheckedWebhook {
  /** The same for each attempt to deliver it: who has seen it drops the message. */
  readonly id: string
  readonly message: WebhookMessage
}

/** Why a message is not one of the service. */
export class WebhookError extends Error {
  override readonly name = 'WebhookError'
}

/** Older messages could be sent by somebody who has seen them. */
const ageMaxMs = 300_000
const prefix = 'whsec_'

/** @throws {WebhookError} for a message that the service did not sign, an old one, or one of another form */
export async function readWebhook({
  body,
  headers,
  secret,
  now = Date.now(),
}: ReceivedWebhook): Promise<CheckedWebhook> {
  const text = typeof body === 'string' ? body : new TextDecoder().decode(body)
  const [id, at, signatures] = ['id', 'timestamp', 'signature'].map((name) =>
    headerOf(headers, `webhook-${name}`),
  )
  if (id === undefined || at === undefined || signatures === undefined)
    throw new WebhookError(
      'the request has no signature: expected webhook-id, webhook-timestamp, webhook-signature',
    )
  if (!/^\d{1,15}$/.test(at) || Math.abs(now - Number(at) * 1_000) > ageMaxMs)
    throw new WebhookError('the message is older than five minutes, or from the future')
  if (!(await isSigned(`${id}.${at}.${text}`, signatures, secret)))
    throw new WebhookError('the signature is not of this secret')
  const read = WebhookMessage.safeParse(parse(text))
  if (read.success) return { id, message: read.data }
  throw new WebhookError(`the message has another form: ${read.error.issues[0]?.message ?? ''}`)
}

async function isSigned(signed: string, signatures: string, secret: string): Promise<boolean> {
  const hmac = { name: 'HMAC', hash: 'SHA-256' }
  const bytes = secret.startsWith(prefix) ? bytesOf(secret.slice(prefix.length)) : null
  if (bytes === null || bytes.length === 0)
    throw new WebhookError('the secret has another form: expected whsec_ and base64')
  const key = await crypto.subtle.importKey('raw', bytes, hmac, false, ['verify'])
  // Several, while a secret is being replaced.
  for (const signature of signatures.split(' ').slice(0, 16)) {
    const mac = signature.startsWith('v1,') ? bytesOf(signature.slice('v1,'.length)) : null
    if (mac !== null && (await crypto.subtle.verify(hmac, key, mac, new TextEncoder().encode(signed))))
      return true
  }
  return false
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))
  } catch {
    return null
  }
}

function headerOf(headers: ReceivedWebhook['headers'], name: string): string | undefined {
  const hasGet = 'get' in headers && typeof headers.get === 'function'
  const found = hasGet
    ? headers.get(name)
    : (headers as Readonly<Record<string, string | readonly string[] | undefined>>)[name]
  return typeof found === 'string' ? found : undefined
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
