/** The headers of a request for a page: the host's own, and what the guest may add to them. */
import type { Result } from '#specs/protocol/error.ts'
import { foldHeaderName, isOverriding } from '../egress/overriding-headers.ts'

const headersMaxCount = 32
const userAgent = 'caisson/0.1 (+web-fetch)'

/** Belong to the connection or to the host, or would carry what is kept from page to page. */
const hostsOwn = new Set([
  'accept-encoding',
  'connection',
  'content-length',
  'cookie',
  'cookie2',
  'date',
  'expect',
  'forwarded',
  'host',
  'http2-settings',
  'if-range',
  'keep-alive',
  'origin',
  'range',
  'referer',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
  'via',
])

/** @returns the guest's headers by lower-case name, or which of them cannot be sent */
export function checkHeaders(
  headers: Readonly<Record<string, string>>,
): Result<Record<string, string>, string> {
  const entries = Object.entries(headers)
  if (entries.length > headersMaxCount) return failure(`more than ${headersMaxCount} headers`)
  const checked = new Map<string, string>()
  for (const [written, value] of entries) {
    const name = written.toLowerCase()
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]{1,64}$/.test(name)) return failure('a header name that is none')
    const folded = foldHeaderName(name)
    if (hostsOwn.has(folded) || /^(?:proxy|sec|x-forwarded)-/.test(folded) || name === '__proto__') {
      return failure(`the header ${name}, which the host sets itself or never sends; leave it out`)
    }
    if (isOverriding(name)) {
      return failure(
        `the header ${name}, which would make another request of it than the one that was judged`,
      )
    }
    if (!/^[\x20-\x7e]*$/.test(value))
      return failure(`the header ${name} with other than visible ASCII characters`)
    if (checked.has(name)) return failure(`the header ${name} twice`)
    checked.set(name, value)
  }
  return { ok: true, value: Object.fromEntries(checked) }
}

/** @param guest headers that {@link checkHeaders} passed, secrets put in */
export function completeHeaders(
  host: string,
  guest: Readonly<Record<string, string>>,
): Record<string, string> {
  return {
    accept: 'text/html,application/xhtml+xml,application/json,text/*;q=0.9,*/*;q=0.5',
    ...guest,
    host,
    'user-agent': userAgent,
    'accept-encoding': 'gzip, deflate, br',
    connection: 'close',
  }
}

function failure(error: string): { ok: false; error: string } {
  return { ok: false, error }
}
