/** What guest and host agree on for program connections, besides HTTP/2 itself. */

/**
 * Name of the header that marks an answer as the gateway's own, and of the trailer with the reason why it ended a
 * tunnel. Removed from servers' answers.
 */
export const gatewayErrorHeader = 'caisson-error'

/** Hop-by-hop request fields (RFC 9110, section 7.6.1), and those that HTTP/2 replaces. */
export const connectionFields: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
])
