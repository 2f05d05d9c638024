// A receiver of webhooks: a real HTTP server that keeps what it gets and answers as the test says.
import { createHmac } from 'node:crypto'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import type { ConfigInput } from '../../host/config/schema.ts'
import { Host } from '../../host/index.ts'

export interface Delivered {
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** 32 bytes. */
export const webhookSecret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`

/** Call it from within a test. @param answer to the first request, the second … */
export async function receiveWebhooks(answer: (response: ServerResponse, count: number) => void) {
  const got: Delivered[] = []
  const server = createServer((request, response) => {
    void text(request).then(
      (body) => {
        got.push({ headers: request.headers, body })
        answer(response, got.length)
      },
      () => undefined,
    )
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(async () => {
    server.close()
    server.closeAllConnections()
  })
  return { got, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook` }
}

export function answerWith(...statuses: readonly number[]) {
  return (response: ServerResponse, count: number) => {
    response.writeHead(statuses[count - 1] ?? statuses.at(-1) ?? 200).end()
  }
}

/** A host whose service tells one webhook of each question at once. */
export function notifyingHost(
  env: Readonly<Record<string, string | undefined>>,
  url: string,
  more: { readonly local?: boolean; readonly afterMs?: number } = {},
): Host {
  const { local = true, afterMs = 0 } = more
  const config: ConfigInput = {
    notify: { afterMs, webhooks: { ops: { url, secret: { env: 'HOOK' }, local } } },
  }
  return new Host({ env: { ...env, HOOK: webhookSecret }, config })
}

/** Quick enough for a test. */
export const noticeTimes = { pollMs: 20, pauseMinMs: 20 }

/** By the words of the specification, without the code of the product. */
export function isSigned({ headers, body }: Delivered): boolean {
  const key = Buffer.from(webhookSecret.slice('whsec_'.length), 'base64')
  const { 'webhook-id': id, 'webhook-timestamp': at, 'webhook-signature': signature } = headers
  const age = Math.abs(Date.now() / 1_000 - Number(at))
  const expected = createHmac('sha256', key).update(`${id}.${at}.${body}`).digest('base64')
  return age < 300 && signature === `v1,${expected}`
}
