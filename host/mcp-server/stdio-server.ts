/** The MCP server over standard input and output, for the program that started it. */
import type { Readable, Writable } from 'node:stream'
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio'
import type { McpCaller } from './caller.ts'
import { type CaissonMcpOptions, createCaissonServer } from './server.ts'

/** A longer message ends the connection. */
const messageMaxBytes = 1024 * 1024

export interface McpStdioOptions extends CaissonMcpOptions {
  readonly caller: McpCaller
  readonly input: Readable
  readonly output: Writable
  readonly log: (line: string) => void
}

/** Serves until the client closes its end. Runs that it started continue in the service. */
export async function serveMcpStdio(options: McpStdioOptions): Promise<void> {
  const { caller, input, output, log } = options
  const ended = new Promise<void>((resolve) => {
    for (const event of ['end', 'close', 'error']) input.once(event, () => resolve())
    output.once('error', () => resolve())
  })
  const transport = new StdioServerTransport(input, output, { maxBufferSize: messageMaxBytes })
  const handle = serveStdio(() => createCaissonServer(options, caller), {
    ...{ transport, maxSubscriptions: 16 },
    onerror: (error) => log(`MCP: ${error.message}`),
  })
  await ended
  await handle.close()
}
