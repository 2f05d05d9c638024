/**
 * One MCP server: connected at its first use, again after it died, and never twice at once. Its answers are strangers' words:
 * lists are bounded, and a failure of any kind is a value. The protocol's library is loaded when a server is first needed.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Client } from '@modelcontextprotocol/sdk/client/index.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { Result } from '#specs/protocol/error.ts'
import { isRecord } from '../llm/json-schema.ts'
import type { McpServerConfig } from './config.ts'
import { openHttpTransport } from './http.ts'
import { type McpResult, toMcpResult } from './result.ts'
import { hideSecrets } from './secrets.ts'
import { StdioTransport } from './stdio.ts'

/** A tool as its server describes it. */
export interface McpToolInfo {
  readonly name: string
  readonly description: string
  readonly inputSchema: Readonly<Record<string, unknown>>
  /** Whether the server says that it only reads. */
  readonly readOnlyHint: boolean
}

export type McpState = 'idle' | 'connected' | 'failed' | 'closed'

const connectTimeoutMs = 30_000
const callTimeoutMs = 60_000
/** Progress may stretch a call this far. */
const callMaxMs = 10 * 60_000
/** A server that cannot be connected is not tried again for a while, the longer the oftener it failed and the longer that took. */
const retryFirstMs = 5_000
const retryMaxMs = 300_000
/** What a server over HTTP gets to take leave. */
const leaveTimeoutMs = 1_000
/** How long after a connection ended the library may still say why. */
const reasonGraceMs = 100
const schemaMaxChars = 64 * 1024
const toolsMaxCount = 500
const pagesMaxCount = 50
const descriptionMaxChars = 4_000

interface Live {
  readonly client: Client
  readonly transport: Transport
}

export class McpConnection {
  readonly name: string
  readonly config: McpServerConfig
  readonly #shown: (text: string) => string
  #live: Promise<Live> | null = null
  #tools: Promise<readonly McpToolInfo[]> | null = null
  #failure: { readonly message: string; readonly retryAt: number } | null = null
  #failedConnects = 0
  /** The newest, which may still be connecting. */
  #transport: Transport | null = null
  #state: McpState = 'idle'

  constructor(name: string, config: McpServerConfig) {
    this.name = name
    this.config = config
    this.#shown = hideSecrets(config)
  }

  get state(): McpState {
    return this.#state
  }

  /** Why it is not connected, in words; null when nothing failed. */
  get problem(): string | null {
    return this.#failure?.message ?? null
  }

  /** Asked once, and again after the server said that they changed or was started anew. */
  async listTools(): Promise<Result<readonly McpToolInfo[], string>> {
    try {
      const live = await this.#connect()
      this.#tools ??= readTools(live.client, this.config.connectTimeoutMs ?? connectTimeoutMs)
      return { ok: true, value: await this.#tools }
    } catch (cause) {
      this.#tools = null
      const message = this.#words(cause)
      this.#failure ??= { message: `its tools could not be listed: ${message}`, retryAt: 0 }
      return { ok: false, error: message }
    }
  }

  /** Carries a call out. Aborting the signal tells the server so, and answers at once. */
  async callTool(tool: string, input: Record<string, unknown>, signal: AbortSignal): Promise<McpResult> {
    try {
      const live = await this.#connect()
      const { CallToolResultSchema } = await import('@modelcontextprotocol/sdk/types.js')
      const timeout = this.config.timeoutMs ?? callTimeoutMs
      const result = await live.client.request(
        { method: 'tools/call', params: { name: tool, arguments: input } },
        CallToolResultSchema,
        { signal, timeout, resetTimeoutOnProgress: true, maxTotalTimeout: Math.max(timeout, callMaxMs) },
      )
      return toMcpResult(result)
    } catch (cause) {
      if (signal.aborted) return { ok: false, content: `the call of ${tool} was cancelled` }
      return {
        ok: false,
        content: `the MCP server ${this.name} did not carry out ${tool}: ${this.#words(cause)}`,
      }
    }
  }

  async close(): Promise<void> {
    this.#state = 'closed'
    const transport = this.#transport
    // A server that is still connecting is not waited for.
    if (transport !== null) await leave(transport)
    await this.#live?.then(({ client }) => client.close()).catch(() => undefined)
    this.#live = null
    this.#tools = null
  }

  async #connect(): Promise<Live> {
    if (this.#state === 'closed') throw new Error('the registry of MCP servers has been shut down')
    if (this.#live !== null) return await this.#live
    const failure = this.#failure
    if (failure !== null && performance.now() < failure.retryAt) throw new Error(failure.message)
    const startedAt = performance.now()
    const opening = this.#open()
    this.#live = opening
    try {
      return await opening
    } catch (cause) {
      if (this.#live === opening) this.#live = null
      const message = `it could not be connected: ${this.#words(cause)}`
      const now = performance.now()
      const pauseMs = Math.max(retryFirstMs * 2 ** this.#failedConnects++, 4 * (now - startedAt))
      this.#failure = { message, retryAt: now + Math.min(pauseMs, retryMaxMs) }
      if (this.state !== 'closed') this.#state = 'failed'
      throw new Error(message)
    }
  }

  async #open(): Promise<Live> {
    const [{ Client }, { ToolListChangedNotificationSchema }] = await Promise.all([
      import('@modelcontextprotocol/sdk/client/index.js'),
      import('@modelcontextprotocol/sdk/types.js'),
    ])
    const transport = await openTransport(this.config)
    this.#transport = transport
    if (this.state === 'closed') throw new Error('the registry of MCP servers has been shut down')
    const client = new Client({ name: 'caisson', version: '1' }, { capabilities: {} })
    client.onerror = () => undefined
    client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
      this.#tools = null
    })
    const ended = Promise.withResolvers<never>()
    client.onclose = () => {
      this.#noteEnd(transport)
      // A better reason may be on its way.
      setTimeout(() => ended.reject(new Error('it ended the connection')), reasonGraceMs).unref()
    }
    const timeout = this.config.connectTimeoutMs ?? connectTimeoutMs
    const late = setTimeout(() => ended.reject(new Error(`it was not ready after ${timeout} ms`)), timeout)
    try {
      // The library's own deadline begins when the connection is there, and it does not hear that one ends before.
      await Promise.race([client.connect(transport, { timeout }), ended.promise])
    } catch (cause) {
      await client.close().catch(() => undefined)
      await transport.close().catch(() => undefined)
      throw new Error(`${this.#words(cause)}${this.#lastWords(transport)}`)
    } finally {
      clearTimeout(late)
    }
    this.#failure = null
    this.#failedConnects = 0
    this.#state = 'connected'
    return { client, transport }
  }

  /** Why something failed; servers echo what they were sent, and write their variables to their log. */
  #words(cause: unknown): string {
    return cause instanceof Error ? this.#shown(cause.message).slice(0, 500) : 'unknown failure'
  }

  /** The end of what the server wrote about itself. */
  #lastWords(transport: Transport): string {
    const words = transport instanceof StdioTransport ? this.#shown(transport.lastWords) : ''
    return words === '' ? '' : `; it wrote: ${words.slice(-500)}`
  }

  #noteEnd(transport: Transport): void {
    this.#live = null
    this.#tools = null
    if (this.#state !== 'connected') return
    this.#state = 'failed'
    // It may be started again at once: only one that cannot be connected is left alone for a while.
    const message = `it ended by itself${this.#lastWords(transport)}`
    this.#failure = { message, retryAt: 0 }
  }
}

async function openTransport(config: McpServerConfig): Promise<Transport> {
  return config.transport === 'stdio' ? new StdioTransport(config) : await openHttpTransport(config)
}

/** Tells a server over HTTP that its session ends, and ends the connection. */
async function leave(transport: Transport): Promise<void> {
  if ('terminateSession' in transport && typeof transport.terminateSession === 'function') {
    const told = Promise.resolve(transport.terminateSession()).catch(() => undefined)
    await Promise.race([told, sleep(leaveTimeoutMs, undefined, { ref: false })])
  }
  await transport.close().catch(() => undefined)
}

/** All pages; each is read field by field, so that one odd tool does not hide the others. */
async function readTools(client: Client, timeout: number): Promise<readonly McpToolInfo[]> {
  const { ResultSchema } = await import('@modelcontextprotocol/sdk/types.js')
  const tools = new Map<string, McpToolInfo>()
  const cursors = new Set<string>()
  let cursor: string | undefined
  for (let page = 0; page < pagesMaxCount; page++) {
    const params = cursor === undefined ? {} : { cursor }
    const result = await client.request({ method: 'tools/list', params }, ResultSchema, { timeout })
    for (const tool of Array.isArray(result.tools) ? result.tools : []) {
      const info = readTool(tool)
      if (info !== null && tools.size < toolsMaxCount) tools.set(info.name, info)
    }
    const { nextCursor } = result
    if (typeof nextCursor !== 'string' || nextCursor === '' || cursors.has(nextCursor)) break
    cursors.add(nextCursor)
    cursor = nextCursor
  }
  return [...tools.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))
}

function readTool(tool: unknown): McpToolInfo | null {
  if (!isRecord(tool) || typeof tool.name !== 'string' || tool.name === '') return null
  const { description, inputSchema, annotations } = tool
  return {
    name: tool.name,
    description:
      typeof description === 'string' ? description.toWellFormed().slice(0, descriptionMaxChars) : '',
    inputSchema:
      isRecord(inputSchema) && isUsable(inputSchema) ? inputSchema : { type: 'object', properties: {} },
    readOnlyHint: isRecord(annotations) && annotations.readOnlyHint === true,
  }
}

/** What is too large or too deep for a request is described as any object. */
function isUsable(schema: object): boolean {
  try {
    return JSON.stringify(schema).length <= schemaMaxChars
  } catch {
    return false
  }
}
