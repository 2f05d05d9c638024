/** Caisson as an MCP server over its HTTP service. */

export type { CleanText } from '#specs/protocol/shown-text.ts'
export { CallSlots, type McpCaller } from './caller.ts'
export { callerIdOf, type McpHttpOptions, McpHttpServer } from './http-server.ts'
export { type CaissonMcpOptions, createCaissonServer } from './server.ts'
export { serveMcpStdio } from './stdio-server.ts'
