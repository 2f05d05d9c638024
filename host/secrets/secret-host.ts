/** The hosts that a secret may be bound to: names, and all names below one. */
import { parseHost } from '../net/target.ts'

/** The one spelling of `example.com` or `*.example.com`, as it is compared with that of requests; null for anything else. */
export function readSecretHost(text: string): string | null {
  const wild = text.startsWith('*.') ? '*.' : ''
  const host = parseHost(text.slice(wild.length))
  return host.ok && !host.value.includes('*') ? `${wild}${host.value}` : null
}
