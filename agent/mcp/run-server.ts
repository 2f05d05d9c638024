/**
 * One MCP server of a run: lists its tools once and has the host approve them before any is offered. The offered set
 * is fixed for the run. A call reaches only a tool whose definition was approved and has not changed since.
 */

import type { AdmitCall, McpAbilities, McpConnection } from '#runtime/mcp/connection.ts'
import type { AskPerson } from '#runtime/mcp/elicitation.ts'
import type { McpToolInfo } from '#runtime/mcp/lists.ts'
import type { McpResult } from '#runtime/mcp/result.ts'
import { type AnswerSchema, openSchema } from '#specs/node/json-schema.ts'
import { block } from '#specs/node/prompt-block.ts'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { McpOffer, McpServer } from '#specs/protocol/extension.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { type AskUser, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { boundTools, digestTool, makeOffer, type OfferSource } from './offer.ts'

interface ServerParts {
  readonly name: string
  readonly source: OfferSource
  readonly config: McpServer
  /** Asks whether the tools may be offered, or called with their current definitions. */
  ask(offer: McpOffer, agentPath: string, signal: AbortSignal): Promise<ApprovalDecision>
}

interface Caller {
  readonly connection: McpConnection
  readonly agentPath: string
  readonly signal: AbortSignal
  /** Absent when nobody can be asked. */
  readonly askUser?: AskUser | undefined
}

/** An offered tool and the validator of its arguments. */
export interface Definition {
  readonly info: McpToolInfo
  /** Null when its schema cannot be checked; the server then validates. */
  readonly schema: AnswerSchema<unknown> | null
}

const serverTag = 'server-content'
const errorMaxChars = 8_000

export class RunServer {
  readonly name: string
  readonly config: McpServer
  readonly #parts: ServerParts
  readonly #definitions = new Map<string, Definition>()
  /** Digests of approved definitions. */
  readonly #allowed = new Set<string>()
  /** Denied offers, with their messages. */
  readonly #denied = new Map<string, string>()
  #asking: Promise<unknown> = Promise.resolve()
  #abilities: McpAbilities = { resources: false, prompts: false }

  constructor(parts: ServerParts) {
    this.#parts = parts
    this.name = parts.name
    this.config = parts.config
  }

  get abilities(): McpAbilities {
    return this.#abilities
  }

  /** Sorted by name. */
  get definitions(): readonly Definition[] {
    return [...this.#definitions.values()]
  }

  /** The approved definition; absent when the run does not offer the tool. */
  definition(tool: string): Definition | undefined {
    return this.#definitions.get(tool)
  }

  /** Whether each workspace has its own process. */
  get isProgram(): boolean {
    return this.config.transport === 'stdio'
  }

  /** Starts the server and requests approval of its tools. @returns notes: why it is not used, or what is omitted */
  async open({ connection, agentPath, signal }: Caller): Promise<Result<string | null, string>> {
    const listed = await connection.listTools()
    if (!listed.ok) return { ok: false, error: listed.error }
    const abilities = await connection.readAbilities()
    const { tools, leftOut } = boundTools(listed.value)
    const denied = await this.#allow(tools, agentPath, signal)
    if (denied !== null) return { ok: false, error: `its tools are not offered: ${denied}` }
    if (abilities.ok) this.#abilities = abilities.value
    const note = `${leftOut} of its tools are left out: they are too many, or too large together`
    return { ok: true, value: leftOut === 0 ? null : note }
  }

  /** Calls a tool with validated arguments. */
  async call(
    tool: string,
    input: Record<string, unknown>,
    caller: Caller,
  ): Promise<Result<{ text: string }>> {
    const { connection, signal, askUser } = caller
    const refusal: { result?: ReturnType<typeof toolFailure> } = {}
    const admit: AdmitCall = async (now) => {
      const problem = await this.#judge(tool, now, caller)
      if (problem === null) return null
      refusal.result = problem
      return { ok: false, content: '' }
    }
    const result = await connection.callTool(tool, input, signal, admit, this.#askAs(askUser))
    return refusal.result ?? this.toToolResult(result, signal)
  }

  /** Forwards the server's questions to the person, marked as the server's. */
  #askAs(askUser: AskUser | undefined): AskPerson | undefined {
    if (askUser === undefined) return undefined
    return async (question, withdrawn) => {
      const reply = await askUser({ ...question, server: this.name }, withdrawn)
      return reply.ok ? reply.value.answer : null
    }
  }

  toToolResult(result: McpResult, signal: AbortSignal): Result<{ text: string }> {
    if (result.ok) return toolSuccess({ text: result.content })
    if (signal.aborted) return toolFailure('cancelled', result.content)
    if (result.isServersWord !== true) return toolFailure('unavailable', result.content, true)
    const words = block(serverTag, truncateMiddle(result.content, errorMaxChars))
    return toolFailure('unavailable', `the MCP server ${this.name} says that it failed:\n${words}`)
  }

  /** Null when the tool is unchanged since its approval. */
  async #judge(
    tool: string,
    now: McpToolInfo | undefined,
    { connection, agentPath, signal }: Caller,
  ): Promise<ReturnType<typeof toolFailure> | null> {
    const known = this.#definitions.get(tool)
    if (now === undefined)
      return toolFailure('unavailable', `the MCP server ${this.name} does not offer ${tool} any more`)
    const isAllowed = this.#allowed.has(digestTool(now))
    if (isAllowed && known !== undefined && digestTool(known.info) === digestTool(now)) return null
    if (!isAllowed) {
      const listed = await connection.listTools()
      if (!listed.ok) return toolFailure('unavailable', listed.error, true)
      const denied = await this.#allow(boundTools(listed.value).tools, agentPath, signal)
      if (denied !== null)
        return toolFailure(
          'denied',
          `the MCP server ${this.name} has changed ${tool} since it was allowed, and the change is not: ${denied}`,
        )
      // Left out of the offer for its size, or listed anew meanwhile: nobody has allowed this definition.
      if (!this.#allowed.has(digestTool(now)))
        return toolFailure(
          'unavailable',
          `the MCP server ${this.name} has changed ${tool}, and the change was not allowed: it is too large together with its other tools, or the server changed it again`,
        )
    } else await this.#define(now)
    const definition = block(
      serverTag,
      truncateMiddle(`${now.description}\n${JSON.stringify(now.inputSchema)}`, errorMaxChars),
    )
    return toolFailure(
      'stale',
      `nothing was done: the MCP server ${this.name} has changed ${tool}. It is now as follows; call it again if that fits.\n${definition}`,
      true,
    )
  }

  /** Asks, one question at a time; null when the tools may be used with their current definitions. */
  #allow(tools: readonly McpToolInfo[], agentPath: string, signal: AbortSignal): Promise<string | null> {
    const turn = this.#asking.then(() => this.#askFor(tools, agentPath, signal))
    this.#asking = turn.catch(() => undefined)
    return turn
  }

  async #askFor(
    tools: readonly McpToolInfo[],
    agentPath: string,
    signal: AbortSignal,
  ): Promise<string | null> {
    const offer = makeOffer(this.name, this.#parts.source, this.config, tools)
    const isNew = this.#allowed.size === 0
    if (!isNew && offer.tools.every(({ sha256 }) => this.#allowed.has(sha256))) return null
    const key = JSON.stringify(offer)
    const before = this.#denied.get(key)
    if (before !== undefined) return before
    const { decision, hint } = await this.#parts.ask(offer, agentPath, signal)
    if (decision === 'deny') {
      const words = hint === undefined || hint.trim() === '' ? 'it was denied' : hint
      this.#denied.set(key, words)
      return words
    }
    for (const { sha256 } of offer.tools) this.#allowed.add(sha256)
    // The run's offer is fixed at its beginning; the newest definition of those tools applies.
    for (const tool of tools) if (isNew || this.#definitions.has(tool.name)) await this.#define(tool)
    return null
  }

  async #define(info: McpToolInfo): Promise<void> {
    const opened = await openSchema(info.inputSchema)
    this.#definitions.set(info.name, { info, schema: opened.ok ? opened.value : null })
  }
}

/** A server's text in a block that it cannot leave. */
export function quoteServer(text: string): string {
  return block(serverTag, text)
}
