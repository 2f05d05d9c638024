/** Caisson as an MCP server over its HTTP service. */
export { CallSlots, type McpCaller } from './caller.ts'
export { callerIdOf, type McpHttpOptions, McpHttpServer } from './http-server.ts'
export { type CaissonMcpOptions, createCaissonServer } from './server.ts'
export { serveMcpStdio } from './stdio-server.ts'
