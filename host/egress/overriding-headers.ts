/**
 * Headers that some servers use instead of the method, address or host in the request line. With them, the server could
 * execute another request than the judged one, so they are refused wherever the host sees them.
 */

/** In the form of {@link foldHeaderName}. Entries with a variable suffix are prefixes: frameworks extend these families. */
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
 * A header name as a CGI, WSGI or PHP server compares it. They replace all but letters and digits with an underscore:
 * `X_Forwarded_Host` equals `X-Forwarded-Host`.
 */
export function foldHeaderName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '-')
}

/** @param name in any spelling */
export function isOverriding(name: string): boolean {
  const folded = foldHeaderName(name)
  return overriding.some((pattern) => pattern.test(folded))
}
