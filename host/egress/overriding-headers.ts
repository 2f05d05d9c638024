/**
 * Headers that some servers take for the method, the address or the host of a request, in the place of those in its
 * first line. What is judged would not be what is done, so nothing of the guest's carries one where the host can see it.
 */

/** As {@link foldName} gives them. Those with an end of their own choice are prefixes: frameworks add to these families. */
const overriding = [
  /override/,
  /^x-(?:http-)?method$/,
  /^(?:x-)?forwarded$/,
  /^x-forwarded-(?!for$)/,
  /^x-(?:envoy-)?(?:original|rewrite|rewritten)-/,
  /^x-(?:host|url|uri|path|request-(?:uri|url|path|method))$/,
  /^(?:x-)?(?:base|request|destination|proxy)-(?:url|uri|host)$/,
]

/**
 * A header's name as a CGI, WSGI or PHP server compares it, which takes every character that is no letter or digit for an
 * underscore: `X_Forwarded_Host` is `X-Forwarded-Host` there.
 */
export function foldName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-')
}

/** @param name in any spelling */
export function isOverriding(name: string): boolean {
  const folded = foldName(name)
  return overriding.some((pattern) => pattern.test(folded))
}
