/** An MCP server in this process, over the library's own pair in memory: what it answers, and when, is the test's. */
import { InMemoryTransport, type JSONRPCMessage, type JSONRPCRequest } from '@modelcontextprotocol/client'
import { McpConnection, type McpConnectionOptions } from '../../../mcp/connection.ts'

export class LinkedServer implements AsyncDisposable {
  readonly connection: McpConnection
  /** What the client can do, by its own word. */
  capabilities: Readonly<Record<string, unknown>> = {}
  #call = Promise.withResolvers<JSONRPCRequest>()
  readonly #transport: InMemoryTransport
  readonly #replies = new Map<number | string, (answer: JSONRPCMessage) => void>()
  /** The call under way. */
  #current: JSONRPCRequest | null = null
  #asked = 0

  constructor(timeoutMs: number, options: McpConnectionOptions = {}, env: Record<string, string> = {}) {
    const [ours, theirs] = InMemoryTransport.createLinkedPair()
    this.#transport = theirs
    theirs.onmessage = (message) => this.#take(message)
    const config = { transport: 'stdio' as const, command: 'none', env, timeoutMs }
    this.connection = new McpConnection('notes', config, { ...options, openTransport: () => ours })
  }

  async start(): Promise<void> {
    await this.#transport.start()
  }

  /** Resolves when the server is called, once for each time that this is asked. */
  async called(): Promise<void> {
    this.#current = await this.#call.promise
    this.#call = Promise.withResolvers()
  }

  /** Ends the call under way. */
  async answer(text: string): Promise<void> {
    await this.#send({ id: this.#current?.id, result: { content: [{ type: 'text', text }] } })
  }

  /** Says that the call under way gets on. */
  async progress(progress: number): Promise<void> {
    const progressToken = this.#current?.params?._meta?.progressToken
    if (progressToken === undefined) throw new Error('the client wants to hear of no progress')
    await this.#send({ method: 'notifications/progress', params: { progressToken, progress } })
  }

  /** Asks the client in its turn. @returns its result or its error */
  async ask(method: string, params: object): Promise<unknown> {
    const id = `q${++this.#asked}`
    const { promise, resolve } = Promise.withResolvers<JSONRPCMessage>()
    this.#replies.set(id, resolve)
    await this.#send({ id, method, params })
    const answer = await promise
    return 'result' in answer ? answer.result : 'error' in answer ? answer.error : undefined
  }

  /** Takes the last question back. */
  async withdraw(): Promise<void> {
    await this.#send({ method: 'notifications/cancelled', params: { requestId: `q${this.#asked}` } })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.connection.close()
    await this.#transport.close()
  }

  async #send(message: object): Promise<void> {
    await this.#transport.send({ jsonrpc: '2.0', ...message } as JSONRPCMessage)
  }

  #take(message: JSONRPCMessage): void {
    if (!('method' in message)) {
      if ('id' in message && message.id !== undefined) this.#replies.get(message.id)?.(message)
      return
    }
    if (!('id' in message)) return
    if (message.method === 'tools/call') this.#call.resolve(message)
    // What a server of 2025-11-25 answers.
    if (message.method === 'server/discover')
      void this.#send({ id: message.id, error: { code: -32_601, message: 'Method not found' } })
    if (message.method !== 'initialize') return
    const { protocolVersion, capabilities } = message.params ?? {}
    this.capabilities = capabilities as typeof this.capabilities
    const serverInfo = { name: 'linked', version: '1' }
    void this.#send({ id: message.id, result: { protocolVersion, capabilities: { tools: {} }, serverInfo } })
  }
}
