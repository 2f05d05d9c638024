/**
 * The address on this machine to which the browser comes back (RFC 8252). Takes one answer with the right state; any
 * other request changes nothing.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { CaissonError } from '#specs/errors.ts'

const callbackPath = '/callback'
const urlMaxChars = 8_192
const requestTimeoutMs = 10_000
const connectionsMax = 16

export interface Callback extends AsyncDisposable {
  readonly redirectUrl: string
  /** The parameters of the answer with this state. @throws {CaissonError} `not_possible_now` when the time is over */
  wait(state: string, signal: AbortSignal): Promise<URLSearchParams>
}

/** @param port absent: a free one @throws {CaissonError} `not_possible_now` when the port is in use */
export async function openCallback(port = 0): Promise<Callback> {
  const answered = Promise.withResolvers<URLSearchParams>()
  answered.promise.catch(() => undefined)
  let expected: string | undefined
  const server = createServer((request, response) => {
    const params = readCallback(request)
    if (params === null) return finish(response, 404, 'There is nothing here.')
    if (expected === undefined || !isSame(params.get('state') ?? '', expected))
      return finish(
        response,
        400,
        'This answer does not belong to the sign-in that waits. Nothing was changed.',
      )
    expected = undefined
    const isDenied = params.has('error')
    finish(
      response,
      200,
      isDenied
        ? 'The sign-in was denied. You can close this page.'
        : 'The sign-in continues in the terminal. You can close this page.',
    )
    answered.resolve(params)
  })
  server.requestTimeout = requestTimeoutMs
  server.headersTimeout = requestTimeoutMs
  server.maxConnections = connectionsMax
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', resolve)
  }).catch((cause: unknown) => {
    throw new CaissonError('not_possible_now', `no listener can be opened on port ${port} of 127.0.0.1`, {
      remedy: 'set another oauth.callbackPort',
      cause,
    })
  })
  return {
    redirectUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}${callbackPath}`,
    wait: async (state, signal) => {
      expected = state
      const over = (): void =>
        answered.reject(new CaissonError('not_possible_now', 'nobody signed in within the time for it'))
      if (signal.aborted) over()
      else signal.addEventListener('abort', over, { once: true })
      return await answered.promise.finally(() => signal.removeEventListener('abort', over))
    },
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Null for any other request, such as that of a page with a name that leads to this machine. */
function readCallback({ method, url = '', headers }: IncomingMessage): URLSearchParams | null {
  if (method !== 'GET' || url.length > urlMaxChars || !/^127\.0\.0\.1:\d+$/.test(headers.host ?? ''))
    return null
  const parsed = URL.parse(url, 'http://127.0.0.1')
  return parsed?.pathname === callbackPath ? parsed.searchParams : null
}

function isSame(given: string, expected: string): boolean {
  const [a, b] = [given, expected].map((text) => createHash('sha256').update(text).digest())
  return a !== undefined && b !== undefined && timingSafeEqual(a, b)
}

function finish(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    'content-type': 'text/plain; charset=utf-8',
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    connection: 'close',
  })
  response.end(`${text}\n`)
}
