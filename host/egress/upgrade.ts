/**
 * Upgrades requests of programs to https on the host. It inserts the user's secrets into the request headers, and
 * removes them from the response's headers and body.
 */
import type { OutgoingHttpHeaders } from 'node:http'
import type { SecureContext } from 'node:tls'
import type { Result } from '#specs/protocol/error.ts'
import { gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { findInAddress } from '../secrets/placeholders.ts'
import type { Redaction } from '../secrets/redaction.ts'
import type { Secrets } from '../secrets/secrets.ts'

/** On a request to an http address, with the value `https`: the host sends it over https. */
export const upgradeHeader = 'caisson-upgrade'

/** What upgraded requests need. */
export interface Upgrade {
  readonly secrets: Pick<Secrets, 'check' | 'putInto' | 'redactionFor' | 'refused'>
  /** TLS context with the trusted certificates. */
  readonly secureContext: () => SecureContext
}

/** The headers with secrets inserted, and the names of the secrets. Headers with several values are unchanged. */
export async function putSecrets(
  { secrets }: Upgrade,
  headers: OutgoingHttpHeaders,
  target: Target,
): Promise<Result<{ headers: OutgoingHttpHeaders; names: readonly string[] }, WireError>> {
  const texts = Object.entries(headers).flatMap(([name, value]) =>
    typeof value === 'string' ? [[name, value] as const] : [],
  )
  const filled = await secrets.putInto(Object.fromEntries(texts), target)
  if (!filled.ok) return filled
  const { names } = filled.value
  if (target.scheme === 'http') return { ok: true, value: { headers, names } }
  const inAddress = findInAddress(target.path ?? '')
  if (inAddress !== null) {
    const text = `The secret {{${inAddress}}} stands in an address; secrets go into headers alone.`
    return { ok: false, error: gatewayError('secret_refused', text) }
  }
  // A compressed or partial response could not be searched for secrets.
  const { range: _range, 'if-range': _ifRange, ...whole } = { ...headers, ...filled.value.headers }
  return { ok: true, value: { headers: { ...whole, 'accept-encoding': 'identity' }, names } }
}

/** Response headers without secrets, and without the length, which changes when a secret is removed. */
export function redactHeaders(headers: OutgoingHttpHeaders, redaction: Redaction): OutgoingHttpHeaders {
  const { 'content-length': _, ...rest } = headers
  const clean: OutgoingHttpHeaders = {}
  for (const [name, value] of Object.entries(rest)) {
    clean[name] = Array.isArray(value)
      ? value.map((one) => redaction.text(one))
      : redaction.text(String(value))
  }
  return clean
}

export async function* redactBody(body: AsyncIterable<Buffer>, redaction: Redaction): AsyncIterable<Buffer> {
  const redactor = redaction.stream()
  for await (const chunk of body) {
    const clean = redactor.push(chunk)
    if (clean.length > 0) yield clean
  }
  const last = redactor.end()
  if (last.length > 0) yield last
}
