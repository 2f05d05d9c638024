/**
 * Sends one plain HTTP request of a guest program. Rebuilds it from the permitted target and checked headers, so that
 * the server sees exactly the judged request. Uses https if the program asks the host for it; only then may the request
 * contain placeholders of secrets.
 */

import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http'
import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http'
import type { ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { errorMessage } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { connectionFields, gatewayErrorHeader } from '#specs/protocol/proxy.ts'
import { boundMessage, gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { describeTarget, hostInUrl } from '../net/target.ts'
import type { Egress, Permit } from './egress.ts'
import { startTls } from './http-exchange.ts'
import { foldHeaderName, isOverriding } from './overriding-headers.ts'
import { type ConnectionLimits, pump, readAll, type Stop, Watch } from './pipe.ts'
import { refuse } from './refusal.ts'
import { putSecrets, redactBody, redactHeaders, type Upgrade, upgradeHeader } from './upgrade.ts'

type HeadersOfGuest = Readonly<Record<string, string | string[] | undefined>>

/** Headers of one connection, or set by the host. */
const notPassedOn = new Set([...connectionFields, 'content-length', upgradeHeader])
const responseFieldsMax = 100
/** Charsets that do not encode ASCII as ASCII. */
const otherCharset = /charset\s*=\s*"?(?:utf-?(?:7|16|32)|ucs-?[24]|unicode|ibm|cp037|ebcdic)/i
const tlsTimeoutMs = 15_000
const token = /^[!#$%&'*+.^_`|~0-9a-z-]+$/
/** Visible characters, spaces and tabs inside, and what is beyond ASCII: no line can end in it. */
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/

/** The headers that a server is sent; an error names the field. */
export function buildHeaders(
  target: Target,
  guest: HeadersOfGuest,
  body: { readonly isEmpty: boolean },
): Result<OutgoingHttpHeaders, string> {
  const { scheme, host, port, method } = target
  const isDefaultPort = port === (scheme === 'https' ? 443 : 80)
  const headers: OutgoingHttpHeaders = { host: `${hostInUrl(host)}${isDefaultPort ? '' : `:${port}`}` }
  for (const [name, value] of Object.entries(guest)) {
    const folded = foldHeaderName(name)
    if (name.startsWith(':') || value === undefined) continue
    if (notPassedOn.has(name) || notPassedOn.has(folded) || folded.startsWith('proxy-')) continue
    if (!token.test(name)) return { ok: false, error: 'the name of a header is not a token' }
    if (isOverriding(name)) {
      return {
        ok: false,
        error: `the header ${name} would make another request of it than the one that was judged`,
      }
    }
    const values = Array.isArray(value) ? value : [value]
    if (!values.every((one) => fieldValue.test(one)))
      return { ok: false, error: `the header ${name} holds a control character` }
    headers[name] = value
  }
  const length = guest['content-length']
  if (length !== undefined) {
    if (Array.isArray(length) || !/^\d{1,15}$/.test(length))
      return { ok: false, error: 'content-length is not one whole number' }
    headers['content-length'] = String(Number(length))
  } else if (!body.isEmpty) headers['transfer-encoding'] = 'chunked'
  else if (method !== 'GET' && method !== 'HEAD' && method !== 'OPTIONS') headers['content-length'] = '0'
  return { ok: true, value: headers }
}

/** The headers of a server's answer that the guest gets; null when there are more than anybody needs. */
export function passHeaders(answer: IncomingHttpHeaders): OutgoingHttpHeaders | null {
  const named = (answer.connection ?? '').toLowerCase().split(/\s*,\s*/)
  const headers: OutgoingHttpHeaders = {}
  let count = 0
  for (const [name, value] of Object.entries(answer)) {
    const own = name === gatewayErrorHeader || name.startsWith('proxy-') || named.includes(name)
    if (value === undefined || own || !token.test(name)) continue
    if (notPassedOn.has(name) && name !== 'content-length') continue
    const values = Array.isArray(value) ? value : [value]
    if (!values.every((one) => fieldValue.test(one))) continue
    count += values.length
    headers[name] = value
  }
  return count > responseFieldsMax ? null : headers
}

/** Headers with one value each: those in which placeholders of secrets may stand. */
export function onlyTexts(guest: HeadersOfGuest): Record<string, string> {
  const texts = Object.entries(guest).flatMap(([name, value]) =>
    typeof value === 'string' && !name.startsWith(':') && !notPassedOn.has(name) && !name.startsWith('proxy-')
      ? [[name, value] as const]
      : [],
  )
  return Object.fromEntries(texts)
}

interface PlainParts {
  readonly egress: Egress
  readonly limits: ConnectionLimits
  readonly signal: AbortSignal
  /** Absent: no request is made by https. */
  readonly upgrade?: Upgrade | undefined
}

/** Makes the request, streams its answer back and records it; never rejects. */
export async function servePlain(
  stream: ServerHttp2Stream,
  guest: HeadersOfGuest,
  permit: Permit,
  { egress, limits, signal, upgrade }: PlainParts,
): Promise<void> {
  const started = performance.now()
  const exchange = new Exchange(stream, limits, upgrade)
  const onAbort = (): void =>
    exchange.watch.stop({ why: 'over', text: 'the guest ended it, or the run is over' })
  signal.addEventListener('abort', onAbort, { once: true })
  let error: string | null
  try {
    error = await exchange.run(guest, permit, egress, signal)
  } finally {
    signal.removeEventListener('abort', onAbort)
    exchange[Symbol.dispose]()
  }
  const { watch, secrets } = exchange
  error = watch.stopped?.text ?? error
  egress.record({
    kind: 'http',
    target: describeTarget(permit.target).slice(0, 2_000),
    rule: permit.rule,
    bytesOut: watch.bytesOut,
    bytesIn: watch.bytesIn,
    durationMs: Math.round(performance.now() - started),
    ...(secrets.length === 0 ? {} : { secrets: secrets.slice(0, 32) }),
    ...(error === null ? {} : { error: error.slice(0, 300) }),
  })
}

/** One request and its answer; a failure before the answer is reported as one, a later one resets the stream. */
class Exchange implements Disposable {
  readonly watch: Watch
  /** Names of those that were put in; out of the answer they are taken again. */
  secrets: readonly string[] = []
  readonly #stream: ServerHttp2Stream
  readonly #upgrade: Upgrade | undefined
  #outside: Duplex | null = null

  constructor(stream: ServerHttp2Stream, limits: ConnectionLimits, upgrade: Upgrade | undefined) {
    this.#stream = stream
    this.#upgrade = upgrade
    this.watch = new Watch(limits, (stop) => this.#onStop(stop))
  }

  /** @returns what went wrong, null when nothing did */
  async run(
    guest: HeadersOfGuest,
    permit: Permit,
    egress: Egress,
    signal: AbortSignal,
  ): Promise<string | null> {
    const stream = this.#stream
    const headers = buildHeaders(permit.target, guest, { isEmpty: stream.endAfterHeaders })
    if (!headers.ok) return this.#refuse(gatewayError('invalid_request', `Refused: ${headers.error}.`))
    const filled = await this.#fill(headers.value, permit.target)
    if (!filled.ok) return this.#refuse(filled.error)
    const opened = await this.#open(permit, egress, signal)
    if (!opened.ok) return this.#refuse(opened.error)
    const started = await egress.start('http', permit)
    if (!started.ok) return this.#refuse(started.error)
    if (this.watch.stopped !== null) return null
    try {
      const request = startRequest(permit.target, filled.value, opened.value)
      const answered = waitForAnswer(request)
      void this.#send(request, filled.value['content-length'])
      const answer = await answered
      const instead = await this.#refusedSecret(answer, filled.value.authorization)
      if (instead === null) return await this.#receive(answer, permit.target)
      answer.destroy()
      return this.#refuse(instead)
    } catch (cause) {
      if (this.watch.stopped !== null) return null
      const why = errorMessage(cause)
      const text = `${describeTarget(permit.target)}: the server gave no answer that could be read (${why}).`
      return this.#refuse(gatewayError('upstream_broken', boundMessage(text)))
    }
  }

  async #fill(headers: OutgoingHttpHeaders, target: Target): Promise<Result<OutgoingHttpHeaders, WireError>> {
    if (this.#upgrade === undefined) return { ok: true, value: headers }
    const filled = await putSecrets(this.#upgrade, headers, target)
    if (!filled.ok) return filled
    this.secrets = filled.value.names
    return { ok: true, value: filled.value.headers }
  }

  /** What the guest gets in place of a server's refusal of a token. */
  async #refusedSecret(
    { statusCode: status = 502, headers }: IncomingMessage,
    authorization: OutgoingHttpHeaders[string],
  ): Promise<WireError | null> {
    if (this.#upgrade === undefined || this.secrets.length === 0) return null
    const sent = typeof authorization === 'string' ? authorization : undefined
    const answer = { status, challenge: headers['www-authenticate'] }
    return await this.#upgrade.secrets.refused(this.secrets, answer, sent)
  }

  async #open(permit: Permit, egress: Egress, signal: AbortSignal): Promise<Result<Duplex, WireError>> {
    const connected = await egress.connect(permit, signal)
    if (!connected.ok) return connected
    this.#outside = connected.value
    connected.value.on('error', () => undefined)
    if (permit.target.scheme === 'http') return connected
    if (this.#upgrade === undefined) throw new TypeError('a request by https without what TLS needs')
    const over = AbortSignal.any([signal, AbortSignal.timeout(tlsTimeoutMs)])
    const secured = await startTls(connected.value, permit.target, this.#upgrade.secureContext(), over)
    if (secured.ok) this.#outside = secured.value
    return secured
  }

  async #send(request: ClientRequest, length: OutgoingHttpHeaders['content-length']): Promise<void> {
    const stream = this.#stream
    const body = length === undefined ? readAll(stream) : exactly(readAll(stream), Number(length))
    try {
      await pump(body, request, 'out', this.watch)
      if ((stream.rstCode ?? 0) === 0) request.end()
      else request.destroy(new Error('the guest broke off'))
    } catch (cause) {
      // The server may have answered without wanting the rest.
      if (!stream.headersSent) request.destroy(cause instanceof Error ? cause : new Error('broken off'))
    }
  }

  async #receive(answer: IncomingMessage, { method, scheme, host }: Target): Promise<string | null> {
    const stream = this.#stream
    const isUpgraded = scheme === 'https'
    const passed = passHeaders(answer.headers)
    if (passed === null) throw new Error(`more than ${responseFieldsMax} headers`)
    // Also what an earlier request of the run has brought may come back in this one.
    const redaction = isUpgraded ? (this.#upgrade?.secrets.redactionFor([host]) ?? null) : null
    if (redaction !== null && (answer.headers['content-encoding'] ?? 'identity') !== 'identity')
      throw new Error('unexpected compression of the response')
    if (redaction !== null && otherCharset.test(answer.headers['content-type'] ?? ''))
      throw new Error('it is in a charset in which it cannot be searched for secrets')
    const headers = redaction === null ? passed : redactHeaders(passed, redaction)
    if (stream.destroyed) return null
    const status = answer.statusCode ?? 502
    const hasBody = method !== 'HEAD' && ![204, 205, 304].includes(status)
    stream.respond({ ...headers, ':status': status }, { endStream: !hasBody })
    if (!hasBody) return null
    try {
      const body = answer as AsyncIterable<Buffer>
      await pump(redaction === null ? body : redactBody(body, redaction), stream, 'in', this.watch)
      stream.end()
      return null
    } catch {
      if (!stream.destroyed) stream.destroy(new Error('the answer broke off'))
      return 'the answer broke off'
    }
  }

  #refuse(error: WireError): string {
    refuse(this.#stream, error)
    return error.message
  }

  #onStop(stop: Stop): void {
    this.#outside?.destroy()
    if (stop.why === 'limit' && !this.#stream.headersSent)
      refuse(this.#stream, gatewayError('upstream_timeout', `${stop.text}.`))
    // Only a reset cannot be taken for the end of the answer.
    else this.#stream.destroy(new Error(stop.text))
  }

  [Symbol.dispose](): void {
    this.watch[Symbol.dispose]()
    this.#outside?.destroy()
  }
}

/** More bytes than announced would be the beginning of another request. @throws when there are more or fewer */
async function* exactly(body: AsyncIterable<Buffer>, length: number): AsyncIterable<Buffer> {
  let left = length
  for await (const chunk of body) {
    left -= chunk.length
    if (left < 0) throw new Error('more bytes than content-length says')
    yield chunk
  }
  if (left > 0) throw new Error('fewer bytes than content-length says')
}

function startRequest(target: Target, headers: OutgoingHttpHeaders, outside: Duplex): ClientRequest {
  return httpRequest({
    // A Duplex will do: node:http needs nothing else of it (a user's proxy may be behind TLS).
    createConnection: () => outside as Socket,
    method: target.method ?? 'GET',
    path: target.path ?? '/',
    headers: { ...headers, connection: 'close' },
    setHost: false,
    insecureHTTPParser: false,
  })
}

function waitForAnswer(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.on('response', resolve)
    request.on('error', reject)
    const refuseSwitch = (): void => reject(new Error('it switched to another protocol'))
    request.on('upgrade', refuseSwitch)
    request.on('connect', refuseSwitch)
    request.on('close', () => reject(new Error('it closed the connection')))
  })
}
