/** Refusals of the HTTP server: a status, and an error of JSON-RPC without an id. */

/** @param code of JSON-RPC; absent: of a server that has no closer one */
export function refusal(status: number, message: string, code = -32_000): Response {
  return Response.json({ jsonrpc: '2.0', error: { code, message }, id: null }, { status })
}
