/**
 * Fetches a page for the guest. The run's egress judges and connects each hop; this file implements TLS, HTTP and
 * redirects, inserts secrets for their hosts, and removes them from the response.
 */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import type { SecureContext } from 'node:tls'
import { kindOfType, prettyJson, readContent } from '#specs/node/web/content.ts'
import { readPage } from '#specs/node/web/read-page.ts'
import type { EgressRecord, WebFetchAnswer, WebFetchRequest } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Egress, Permit } from '../egress/egress.ts'
import { type ReadBody, readResponseBody, sendGet, startTls } from '../egress/http-exchange.ts'
import { type GatewayErrorCode, gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { describeTarget, hostInUrl, parseTarget, targetUrl } from '../net/target.ts'
import { findInAddress } from '../secrets/placeholders.ts'
import { type Redaction, redactedMark } from '../secrets/redaction.ts'
import type { Secrets } from '../secrets/secrets.ts'
import { checkHeaders, completeHeaders } from './request-headers.ts'

interface FetchOptions {
  readonly egress: Egress
  readonly secrets: Secrets
  /** Whom TLS trusts; made at the first use. */
  secureContext(): SecureContext
  /** For all hops together, a person's time to decide not counted; default 30 s. */
  readonly timeoutMs?: number
}

/** Of a body, as it comes and decompressed. */
const bodyMaxBytes = 5 * 1024 * 1024
const redirectsMax = 5
const redirectStatuses = new Set([301, 302, 303, 307, 308])

/** One hop's answer, whose body was read; or where it leads to. */
type Hop = { readonly location: string } | { readonly response: IncomingMessage; readonly body: ReadBody }

export async function fetchPage(
  request: WebFetchRequest,
  options: FetchOptions,
  signal: AbortSignal,
): Promise<Result<WebFetchAnswer, WireError>> {
  const named = findInAddress(request.url)
  if (named !== null) {
    return failure(
      'invalid_request',
      `Placeholders of secrets such as {{${named}}} are put into headers alone.`,
    )
  }
  const first = parseTarget(request.url, 'GET')
  if (!first.ok) return failure('invalid_request', `Not an address to fetch: ${first.error}.`)
  const headers = checkHeaders(request.headers ?? {})
  if (!headers.ok) return failure('invalid_request', `Refused: ${headers.error}.`)

  const trip = { leftMs: options.timeoutMs ?? 30_000, hosts: [] }
  const answer = await travel(first.value, headers.value, request.form, trip, options, signal)
  if (answer.ok) return answer
  // Servers put what they were sent into their headers as well, and those into our words.
  const message = options.secrets.redactionFor(trip.hosts).text(answer.error.message)
  return { ok: false, error: { ...answer.error, message } }
}

/** What all hops of one request have in common. */
interface Trip {
  leftMs: number
  /** Hosts that were asked, in order. */
  readonly hosts: string[]
}

async function travel(
  first: Target,
  headers: Readonly<Record<string, string>>,
  form: WebFetchRequest['form'],
  trip: Trip,
  options: FetchOptions,
  signal: AbortSignal,
): Promise<Result<WebFetchAnswer, WireError>> {
  let target = first
  let guestHeaders = headers
  for (let redirects = 0; ; redirects += 1) {
    const hop = await takeHop(target, guestHeaders, trip, options, signal)
    if (!hop.ok) return hop
    const redaction = options.secrets.redactionFor(trip.hosts)
    if ('response' in hop.value) return await toAnswer(target, hop.value, form, redaction, signal)
    const where = targetUrl(first).slice(0, 200)
    if (redirects === redirectsMax) {
      return failure('upstream_redirect', `${where} redirects more than ${redirectsMax} times.`)
    }
    const { location } = hop.value
    // It would be journaled, and sent to the redirect's target.
    if (redaction.text(location) !== location) {
      return failure(
        'upstream_redirect',
        `${where} redirects to a URL containing a secret; redirect not followed.`,
      )
    }
    const next = follow(target, location)
    if (!next.ok) return next
    // What was meant for one origin, secrets above all, is not for another.
    if (originOf(next.value) !== originOf(target)) guestHeaders = {}
    target = next.value
  }
}

/** Judges, connects, asks, reads, and puts it into the journal. */
async function takeHop(
  target: Target,
  guestHeaders: Readonly<Record<string, string>>,
  trip: Trip,
  { egress, secrets, secureContext }: FetchOptions,
  outer: AbortSignal,
): Promise<Result<Hop, WireError>> {
  // Judged before a person is asked; read when it is sure that the request is made.
  const named = secrets.check(guestHeaders, target)
  if (!named.ok) return named
  const permit = await egress.admit(target, outer)
  if (!permit.ok) return permit
  const filled = await secrets.putInto(guestHeaders, target)
  if (!filled.ok) return filled
  trip.hosts.push(target.host)
  const started = performance.now()
  const late = AbortSignal.timeout(Math.max(1, Math.round(trip.leftMs)))
  const signal = AbortSignal.any([outer, late])
  const headers = completeHeaders(authorityOf(target), filled.value.headers)
  const hop = await ask(permit.value, headers, { egress, secureContext, signal })
  const durationMs = performance.now() - started
  trip.leftMs -= durationMs
  const error = hop.ok ? undefined : late.aborted && !outer.aborted ? tooLate(target) : hop.error
  const { names } = filled.value
  egress.record({
    kind: 'fetch',
    target: describeTarget(target).slice(0, limits.lineMaxChars),
    rule: permit.value.rule.slice(0, limits.lineMaxChars),
    bytesOut: sizeOf(target, headers),
    bytesIn: hop.ok && 'body' in hop.value ? hop.value.body.rawBytes : 0,
    durationMs: Math.round(durationMs),
    ...(names.length === 0 ? {} : { secrets: names.slice(0, 32) }),
    ...(error === undefined
      ? {}
      : { error: secrets.redactionFor(trip.hosts).text(error.message).slice(0, limits.lineMaxChars) }),
  } satisfies EgressRecord)
  return error === undefined ? hop : { ok: false, error }
}

async function ask(
  permit: Permit,
  headers: Readonly<Record<string, string>>,
  { egress, secureContext, signal }: Pick<FetchOptions, 'egress' | 'secureContext'> & { signal: AbortSignal },
): Promise<Result<Hop, WireError>> {
  const { target } = permit
  const connected = await egress.connect(permit, signal)
  if (!connected.ok) return connected
  let connection: Duplex = connected.value
  connection.on('error', () => undefined)
  try {
    if (target.scheme === 'https') {
      const secured = await startTls(connection, target, secureContext(), signal)
      if (!secured.ok) return secured
      connection = secured.value
    }
    const answered = await sendGet(connection, target, headers, signal)
    if (!answered.ok) return answered
    const response = answered.value
    const { location } = response.headers
    if (redirectStatuses.has(response.statusCode ?? 0) && location !== undefined) {
      return { ok: true, value: { location } }
    }
    if (kindOfType(response.headers['content-type']) === null) return unreadable(target, response)
    const body = await readResponseBody(response, target.host, bodyMaxBytes, signal)
    return body.ok ? { ok: true, value: { response, body: body.value } } : body
  } finally {
    connection.destroy()
    connected.value.destroy()
  }
}

function follow(from: Target, location: string): Result<Target, WireError> {
  const base = targetUrl(from)
  // Bytes beyond ASCII come as one character each, and are UTF-8 in practice.
  const text = Buffer.from(location, 'latin1').toString('utf8').trim()
  const url = URL.canParse(text, base) ? new URL(text, base) : null
  const next = url === null ? null : parseTarget(url.href, 'GET')
  if (next === null || !next.ok) {
    const why = next === null ? 'which is no address' : next.error
    return failure(
      'upstream_redirect',
      `${base.slice(0, 200)} redirects to a URL that cannot be followed: ${why}.`,
    )
  }
  if (from.scheme === 'https' && next.value.scheme === 'http') {
    const text = `${base.slice(0, 200)} redirects to ${targetUrl(next.value).slice(0, 200)}, which is not encrypted; redirect not followed.`
    return failure('upstream_redirect', text)
  }
  return next
}

async function toAnswer(
  target: Target,
  { response, body }: Extract<Hop, { response: IncomingMessage }>,
  form: WebFetchRequest['form'],
  redaction: Redaction,
  signal: AbortSignal,
): Promise<Result<WebFetchAnswer, WireError>> {
  const type = response.headers['content-type']
  // Also as bytes: a server may call its answer's charset another than it is in.
  const read = readContent(redaction.bytes(body.bytes, body.cut), type)
  if (!read.ok) return unreadable(target, response, read.error)
  const { kind } = read.value
  const text = redaction.text(read.value.text)
  let title = ''
  let content = text
  if (form !== 'raw' && kind === 'html') {
    const page = await readPage(text, targetUrl(target), signal)
    if (!page.ok) {
      const where = targetUrl(target).slice(0, 200)
      return failure(
        'unsupported_content',
        `${where} cannot be made readable: ${page.error}. Ask with form "raw" for its beginning.`,
      )
    }
    title = page.value.title
    // Taking the marks of HTML away may have put a secret together.
    content = redaction.text(page.value.markdown).replaceAll('\\[redacted\\]', redactedMark)
  } else if (form !== 'raw' && kind === 'json' && !body.cut) {
    // So may reading what JSON has escaped.
    content = redaction.text(prettyJson(text))
  }
  return {
    ok: true,
    value: {
      url: bound(redaction.text(targetUrl(target)), 4_096),
      status: response.statusCode ?? 0,
      contentType: bound(redaction.text(type ?? ''), limits.lineMaxChars),
      title: bound(redaction.text(title), limits.lineMaxChars),
      content: bound(content, limits.documentMaxChars),
      cut: body.cut || content.length > limits.documentMaxChars,
    },
  }
}

/** @param seen what the bytes are, where the server's word for them was another */
function unreadable(
  target: Target,
  response: IncomingMessage,
  seen?: string,
): { ok: false; error: WireError } {
  const { 'content-type': type, 'content-length': length } = response.headers
  const what = seen ?? type?.split(';', 1)[0]?.trim() ?? 'something'
  const size = length === undefined ? 'of unknown size' : `${length} bytes`
  const where = targetUrl(target).slice(0, 200)
  return failure(
    'unsupported_content',
    `${where} is ${what.slice(0, 100)} (${size}, status ${response.statusCode}); only HTML, JSON, XML and text can be ` +
      'fetched as a page. To have the file itself, download it with run_bash and curl.',
  )
}

function tooLate(target: Target): WireError {
  return gatewayError('upstream_timeout', `${targetUrl(target).slice(0, 200)} was not there in time.`)
}

/** As the `Host` header wants it. */
function authorityOf({ scheme, host, port }: Target): string {
  return `${hostInUrl(host)}${port === (scheme === 'https' ? 443 : 80) ? '' : `:${port}`}`
}

function originOf(target: Target): string {
  return `${target.scheme}://${authorityOf(target)}`
}

/** Bytes of a request's head, near enough for a journal. */
function sizeOf({ path }: Target, headers: Readonly<Record<string, string>>): number {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.byteLength(`GET ${path ?? '/'} HTTP/1.1\r\n${lines.join('')}\r\n`)
}

function bound(text: string, maxChars: number): string {
  return text.length <= maxChars ? text.toWellFormed() : text.slice(0, maxChars).toWellFormed()
}

function failure(code: GatewayErrorCode, message: string): { ok: false; error: WireError } {
  return { ok: false, error: gatewayError(code, message) }
}
