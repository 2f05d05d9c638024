// A service in this process over a host of the test, with a client, and plain requests as any program sends them.
import { readFile } from 'node:fs/promises'
import { type IncomingHttpHeaders, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { sanitizeLine, sanitizeWhole } from '../../host/cli/render/sanitize.ts'
import type { Host } from '../../host/index.ts'
import { Service, type ServiceOptions } from '../../host/service/service.ts'

export interface ServedHost {
  readonly service: Service
  readonly client: ServiceClient
  readonly token: string
  /** Lines that the service logged. */
  readonly logged: Readonly<Record<string, unknown>>[]
  /** Sends a request as it stands; `authorization` is the token unless given. */
  send(method: string, path: string, given?: Sent): Promise<Received>
}

export interface Sent {
  readonly headers?: Readonly<Record<string, string | undefined>>
  readonly body?: string | Buffer
}

export interface Received {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** Undefined when the text is not JSON. */
  readonly json: unknown
}

/** Call it from within a test. */
export async function serveHost(host: Host, options: Partial<ServiceOptions> = {}): Promise<ServedHost> {
  const logged: Readonly<Record<string, unknown>>[] = []
  const service = await Service.start({
    host,
    version: '0.0.0-test',
    port: 0,
    clean: { line: sanitizeLine, block: (text) => sanitizeWhole(text) },
    log: (line) => logged.push(line),
    ...options,
  })
  onTestFinished(() => service.close())
  const token = (await readFile(service.tokenFile, 'utf8')).trim()
  const client = new ServiceClient({ baseUrl: service.url, token })
  const send: ServedHost['send'] = async (method, path, { headers = {}, body } = {}) => {
    const { hostname, port } = new URL(service.url)
    // Node sends the body of a DELETE request without its length.
    const length = body === undefined ? {} : { 'content-length': `${Buffer.byteLength(body)}` }
    const given = { authorization: `Bearer ${token}`, ...length, ...headers }
    const sent = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
    const asked = request({ hostname, port, method, path, headers: sent as Record<string, string> })
    const answered = new Promise<Received>((resolve, reject) => {
      asked.once('error', reject)
      asked.once('response', (response) => {
        const { statusCode: status = 0, headers: got } = response
        text(response).then(
          (body) => resolve({ status, headers: got, text: body, json: parse(body) }),
          reject,
        )
      })
    })
    asked.end(body)
    return await answered
  }
  return { service, client, token, logged, send }
}

function parse(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return undefined
  }
}
