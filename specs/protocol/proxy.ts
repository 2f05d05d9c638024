/** What guest and host agree on for connections of programs, beside HTTP/2 itself. */

/**
 * Name of the header that marks an answer as the gateway's own, and of the trailer that says why it ended a tunnel. Taken
 * off whatever a server answers.
 */
export const gatewayErrorHeader = 'caisson-error'

/** Fields of a request that belong to one connection (RFC 9110, section 7.6.1), or that HTTP/2 has otherwise. */
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
