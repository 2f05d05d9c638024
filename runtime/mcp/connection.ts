/**
 * The connection to one MCP server: opened on first use, reopened after a failure, never twice at once. Answers are
 * untrusted: lists are bounded, and every failure is a value. The protocol library loads with the first server.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import type { CallToolRequestOptions, CallToolResult, Transport } from '@modelcontextprotocol/client'
import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { CallClock } from './call-clock.ts'
import { isOfOneRequest, isTimeout, type Live, type McpRoot, openClient, ProbeEndedError } from './client.ts'
import { hideSecrets, type McpServerConfig } from './config.ts'
import { type AskPerson, type CallUnderWay, ServerQuestions } from './elicitation.ts'
import { openHttpTransport } from './http.ts'
import {
  type McpPromptInfo,
  type McpResourceInfo,
  type McpToolInfo,
  readPrompts,
  readResources,
  readTools,
} from './lists.ts'
import { type McpResult, toContentsResult, toMcpResult, toPromptResult } from './result.ts'
import { StdioTransport } from './stdio.ts'

export type McpState = 'idle' | 'connected' | 'failed' | 'closed'

export interface McpConnectionOptions {
  /** Transport to the server; default a child process, or `fetch`. */
  readonly openTransport?: (config: McpServerConfig) => Transport | Promise<Transport>
  /** Folders reported to the server on request; default none. */
  readonly roots?: readonly McpRoot[]
  /** Whether the server may ask the person during a call; default false. */
  readonly hasPerson?: boolean
}

/** What a server offers besides tools. */
export interface McpAbilities {
  readonly resources: boolean
  readonly prompts: boolean
}

/**
 * Called with the tool's current definition just before a call is sent to the server; a returned result replaces the
 * call.
 */
export type AdmitCall = (tool: McpToolInfo | undefined) => Promise<McpResult | null>

const connectTimeoutMs = 30_000
const callTimeoutMs = 60_000
/** Maximum duration of a call that reports progress. */
const callMaxMs = 10 * 60_000
/**
 * After a failed connection attempt the server is left alone for a while, longer after each failure and after slow
 * failures.
 */
const retryFirstMs = 5_000
const retryMaxMs = 300_000
/** The library's own deadline, which cannot pause: set to the maximum, so that ours applies. */
const libraryTimeoutMs = 2 ** 31 - 1
/** How long a server over HTTP has to end its session. */
const leaveTimeoutMs = 1_000

/** The headers of a call do not fit its arguments, by MCP 2026-07-28. */
const headerMismatch = -32_020

const stackFrames = /^[ \t]+at .*:\d+:\d+\)?\n?/gm

export class McpConnection {
  readonly name: string
  readonly config: McpServerConfig
  readonly #options: McpConnectionOptions
  readonly #shown: (text: string) => string
  readonly #questions = new ServerQuestions()
  #live: Promise<Live> | null = null
  #tools: Promise<readonly McpToolInfo[]> | null = null
  #failure: { readonly message: string; readonly retryAt: number } | null = null
  #failedConnects = 0
  /** The newest client, possibly still connecting. */
  #transport: Transport | null = null
  #state: McpState = 'idle'
  /** The program ends when it is asked for its revision. */
  #isOlder = false
  /** The first protocol violation by the server since the last request. */
  #oddity = ''

  constructor(name: string, config: McpServerConfig, options: McpConnectionOptions = {}) {
    this.name = name
    this.config = config
    this.#options = options
    this.#shown = hideSecrets(config)
  }

  get state(): McpState {
    return this.#state
  }

  /** Why it is not connected; null when nothing failed. */
  get problem(): string | null {
    return this.#failure?.message ?? null
  }

  /** Requested once, and again after the server reports a change or restarts. */
  async listTools(): Promise<Result<readonly McpToolInfo[], string>> {
    return await this.#list('tools', async (live) => {
      try {
        return await this.#toolsOf(live)
      } catch (cause) {
        this.#tools = null
        throw cause
      }
    })
  }

  async listResources(): Promise<Result<readonly McpResourceInfo[], string>> {
    return await this.#list('resources', (live) => readResources(live, this.#connectTimeoutMs))
  }

  async listPrompts(): Promise<Result<readonly McpPromptInfo[], string>> {
    return await this.#list('prompts', (live) => readPrompts(live, this.#connectTimeoutMs))
  }

  /** What else the server declares to offer. */
  async readAbilities(): Promise<Result<McpAbilities, string>> {
    return await this.#list('abilities', async ({ client }) => {
      const { resources, prompts } = client.getServerCapabilities() ?? {}
      return { resources: resources !== undefined, prompts: prompts !== undefined }
    })
  }

  /**
   * Executes a call. Aborting the signal notifies the server and returns at once.
   * @param ask shows the server's questions to the person; absent: they are refused
   */
  async callTool(
    tool: string,
    input: Record<string, unknown>,
    signal: AbortSignal,
    admit?: AdmitCall,
    ask?: AskPerson,
  ): Promise<McpResult> {
    const what = `the call of ${tool}`
    return await this.#ask(what, `carry out ${tool}`, { signal, ask }, async (live, begin) => {
      if (admit !== undefined) {
        const tools = await this.#toolsOf(live)
        const refused = await admit(tools.find(({ name }) => name === tool))
        if (refused !== null) return refused
        signal.throwIfAborted()
      }
      return toMcpResult(await this.#sendCall(live, tool, input, begin()))
    })
  }

  async readResource(uri: string, signal: AbortSignal): Promise<McpResult> {
    const what = 'give the resource'
    return await this.#ask('the reading of the resource', what, { signal }, async ({ client }, begin) =>
      toContentsResult(await client.readResource({ uri }, { ...begin(), cacheMode: 'bypass' })),
    )
  }

  async getPrompt(
    name: string,
    given: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<McpResult> {
    const what = 'give the prompt'
    const params = { name, arguments: { ...given } }
    return await this.#ask('the reading of the prompt', what, { signal }, async ({ client }, begin) =>
      toPromptResult(await client.getPrompt(params, begin())),
    )
  }

  async close(): Promise<void> {
    this.#state = 'closed'
    const transport = this.#transport
    // Do not wait for a server that is still connecting.
    if (transport !== null) await leave(transport)
    await this.#live?.then(({ client }) => client.close()).catch(() => undefined)
    this.#live = null
    this.#tools = null
  }

  get #connectTimeoutMs(): number {
    return this.config.connectTimeoutMs ?? connectTimeoutMs
  }

  #toolsOf(live: Live): Promise<readonly McpToolInfo[]> {
    if (!live.hearsOfChanges()) this.#tools = null
    this.#tools ??= readTools(live, this.#connectTimeoutMs)
    return this.#tools
  }

  /** In 2026-07-28 some arguments are in headers too, by the tool's definition. */
  async #sendCall(
    { client, library }: Live,
    name: string,
    input: Record<string, unknown>,
    bounds: CallToolRequestOptions,
  ): Promise<CallToolResult> {
    const known = (await this.#tools)?.find((tool) => tool.name === name)
    const definition = { name, inputSchema: { ...known?.inputSchema, type: 'object' as const } }
    try {
      const options = { ...bounds, toolDefinition: definition }
      return await client.callTool({ name, arguments: input }, options)
    } catch (cause) {
      // The definition that named the headers is not the server's any more.
      if (cause instanceof library.ProtocolError && cause.code === headerMismatch) this.#tools = null
      throw cause
    }
  }

  async #list<T>(what: string, read: (live: Live) => Promise<T>): Promise<Result<T, string>> {
    try {
      return { ok: true, value: await read(await this.#connect()) }
    } catch (cause) {
      const message = this.#words(cause)
      this.#failure ??= { message: `its ${what} could not be listed: ${message}`, retryAt: 0 }
      return { ok: false, error: message }
    }
  }

  /**
   * Sends one request; a failure is a value. @param what names its result, @param verb what the server failed to do
   */
  async #ask(
    what: string,
    verb: string,
    { signal, ask }: { readonly signal: AbortSignal; readonly ask?: AskPerson | undefined },
    request: (live: Live, begin: () => RequestBounds) => Promise<McpResult>,
  ): Promise<McpResult> {
    let live: Live | undefined
    const call: CallUnderWay = {
      ask:
        ask === undefined
          ? undefined
          : (question, withdrawn) =>
              ask({ ...question, question: this.#shown(question.question) }, withdrawn),
    }
    const end = this.#questions.begin(call)
    this.#oddity = ''
    // The library never releases its signal, and a run's signal outlives many calls.
    const own = new AbortController()
    // Do not wait for a server that is connecting or listing its tools.
    const aborted = Promise.withResolvers<never>()
    aborted.promise.catch(() => undefined)
    const abort = (): void => {
      own.abort(signal.reason)
      aborted.reject(signal.reason)
    }
    if (signal.aborted) abort()
    else signal.addEventListener('abort', abort, { once: true })
    try {
      const connected = await Promise.race([this.#connect(), aborted.promise])
      live = connected
      const asked = request(connected, () => {
        const clock = this.#beginClock(connected, own)
        call.clock = clock
        return { signal: own.signal, onprogress: () => clock.extend(), timeout: libraryTimeoutMs }
      })
      return await Promise.race([asked, aborted.promise])
    } catch (cause) {
      if (signal.aborted) return { ok: false, content: `${what} was cancelled` }
      if (live !== undefined) this.#judge(live, cause)
      const odd = isTimeout(cause) ? this.#oddWords() : ''
      const content = `the MCP server ${this.name} did not ${verb}: ${this.#words(cause)}${odd}`
      return { ok: false, content }
    } finally {
      end()
      call.clock?.[Symbol.dispose]()
      signal.removeEventListener('abort', abort)
    }
  }

  /** Cancels the request when its time is over. */
  #beginClock({ library }: Live, request: AbortController): CallClock {
    const silentMs = this.config.timeoutMs ?? callTimeoutMs
    return new CallClock({
      silentMs,
      totalMs: Math.max(silentMs, callMaxMs),
      onOver: (words) =>
        request.abort(new library.SdkError(library.SdkErrorCode.RequestTimeout, `timed out: ${words}`)),
    })
  }

  /**
   * Reconnects for the next request when a server over HTTP stopped responding correctly, such as after its restart.
   */
  #judge(live: Live, cause: unknown): void {
    if (this.config.transport === 'stdio' || isOfOneRequest(cause) || !(cause instanceof Error)) return
    live.client.close().catch(() => undefined)
  }

  async #connect(): Promise<Live> {
    if (this.#state === 'closed')
      throw new CaissonError('not_possible_now', 'the registry of MCP servers has been shut down')
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
    try {
      return await this.#openOnce()
    } catch (cause) {
      if (!(cause instanceof ProbeEndedError) || this.#isOlder) throw cause
      this.#isOlder = true
      return await this.#openOnce()
    }
  }

  async #openOnce(): Promise<Live> {
    const { openTransport = openUsualTransport, roots = [], hasPerson = false } = this.#options
    const transport = await openTransport(this.config)
    this.#transport = transport
    this.#oddity = ''
    if (this.state === 'closed')
      throw new CaissonError('not_possible_now', 'the registry of MCP servers has been shut down')
    let live: Live
    try {
      live = await openClient({
        transport,
        roots,
        timeoutMs: this.#connectTimeoutMs,
        isOlder: this.#isOlder || this.config.transport === 'sse',
        onToolsChanged: () => {
          this.#tools = null
        },
        onOddity: (words) => {
          this.#oddity ||= words
        },
        onEnd: () => this.#noteEnd(transport),
        ...(hasPerson ? { onQuestion: (params, signal) => this.#questions.answer(params, signal) } : {}),
      })
    } catch (cause) {
      if (cause instanceof ProbeEndedError && !this.#isOlder) throw cause
      const words = `${this.#words(cause)}${this.#lastWords(transport)}`
      throw new Error(words.includes(this.#shown(this.#oddity)) ? words : `${words}${this.#oddWords()}`)
    }
    // The next start of the program need not ask again.
    this.#isOlder ||= live.client.getProtocolEra() === 'legacy' && this.config.transport === 'stdio'
    this.#failure = null
    this.#failedConnects = 0
    this.#state = 'connected'
    return live
  }

  /** Describes a failure, redacted: servers echo input, and write their variables to their log. */
  #words(cause: unknown): string {
    if (!(cause instanceof Error)) return 'unknown failure'
    return this.#shown(`${cause.message}${answerOf(cause)}`)
      .slice(0, 500)
      .toWellFormed()
  }

  /** Other errors on the way that no request was waiting for. */
  #oddWords(): string {
    const words = this.#shown(this.#oddity).slice(0, 300).toWellFormed()
    return words === '' ? '' : `; it said what was not expected: ${words}`
  }

  /** The end of the server's own log, without stack frames. */
  #lastWords(transport: Transport): string {
    const told =
      'lastWords' in transport && typeof transport.lastWords === 'string' ? transport.lastWords : ''
    const words = this.#shown(told.replace(stackFrames, ''))
    return words === '' ? '' : `; it wrote: ${words.slice(-500).toWellFormed()}`
  }

  #noteEnd(transport: Transport): void {
    if (this.#transport !== transport) return
    this.#live = null
    this.#tools = null
    if (this.#state !== 'connected') return
    this.#state = 'failed'
    // It may be restarted at once: only a failed connection attempt delays the next.
    const message = `it ended by itself${this.#lastWords(transport)}`
    this.#failure = { message, retryAt: 0 }
  }
}

/** What a server answered instead of a message, if the error has it and does not say it. */
function answerOf(cause: Error): string {
  const data: unknown = 'data' in cause ? cause.data : undefined
  const text = typeof data === 'object' && data !== null && 'text' in data ? data.text : undefined
  const isNew = typeof text === 'string' && text !== '' && !cause.message.includes(text)
  return isNew ? `: ${text.slice(0, 300)}` : ''
}

type RequestBounds = CallToolRequestOptions

async function openUsualTransport(config: McpServerConfig): Promise<Transport> {
  return config.transport === 'stdio' ? new StdioTransport(config) : await openHttpTransport(config)
}

/** Ends the session with a server over HTTP and closes the connection. */
async function leave(transport: Transport): Promise<void> {
  if ('terminateSession' in transport && typeof transport.terminateSession === 'function') {
    const told = Promise.resolve(transport.terminateSession()).catch(() => undefined)
    await Promise.race([told, sleep(leaveTimeoutMs, undefined, { ref: false })])
  }
  await transport.close().catch(() => undefined)
}
