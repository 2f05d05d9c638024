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

/** Serves until the client closes its end or breaks the protocol. Runs that it started continue in the service. */
export async function serveMcpStdio(options: McpStdioOptions): Promise<void> {
  const { caller, input, output, log } = options
  const { promise: ended, resolve: end } = Promise.withResolvers<void>()
  input.once('error', end)
  output.once('error', end)
  const transport = new WatchedTransport(input, output, end)
  const handle = serveStdio(() => createCaissonServer(options, caller), {
    ...{ transport, maxSubscriptions: 16 },
    onerror: (error) => log(`MCP: ${error.message}`),
  })
  await ended
  await handle.close()
}

/** Tells of its end, whose cause may also be a message that is too long. */
class WatchedTransport extends StdioServerTransport {
  readonly #onEnd: () => void

  constructor(input: Readable, output: Writable, onEnd: () => void) {
    super(input, output, { maxBufferSize: messageMaxBytes })
    this.#onEnd = onEnd
  }

  override async close(): Promise<void> {
    await super.close()
    this.#onEnd()
  }
}
