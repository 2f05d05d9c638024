/**
 * Headers that some servers take for the method, the address or the host of a request, in the place of those in its
 * first line. What is judged would not be what is done, so nothing of the guest's carries one where the host can see it.
 */

const named = new Set([
  'x-http-host-override',
  'x-http-method',
  'x-http-method-override',
  'x-method-override',
  'x-original-host',
  'x-original-method',
  'x-original-uri',
  'x-original-url',
  'x-rewrite-url',
])

/** @param name in lower case */
export function isOverriding(name: string): boolean {
  return named.has(name) || /^x-forwarded-(?:host|method|prefix|uri)$/.test(name)
}
