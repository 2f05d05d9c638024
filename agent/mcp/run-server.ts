/**
 * One MCP server of a run: asked for its tools once, and put before the host before any of them is offered. What the run offers
 * of it stays the same; a call goes to a tool whose definition was allowed, and to none that changed since.
 */

import { type AnswerSchema, openSchema } from '#runtime/arguments/json-schema.ts'
import type { AdmitCall, McpAbilities, McpConnection } from '#runtime/mcp/connection.ts'
import type { AskPerson } from '#runtime/mcp/elicitation.ts'
import type { McpToolInfo } from '#runtime/mcp/lists.ts'
import type { McpResult } from '#runtime/mcp/result.ts'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { McpOffer, McpServer } from '#specs/protocol/extension.ts'
import { block } from '../text/prompt-block.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { type AskUser, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { boundTools, digestTool, makeOffer, type OfferSource } from './offer.ts'

export interface ServerParts {
  readonly name: string
  readonly source: OfferSource
  readonly config: McpServer
  /** Whether the tools may be offered, or go on to be called as they are now. */
  ask(offer: McpOffer, agentPath: string, signal: AbortSignal): Promise<ApprovalDecision>
}

export interface Caller {
  readonly connection: McpConnection
  readonly agentPath: string
  readonly signal: AbortSignal
  /** Absent where nobody can be asked. */
  readonly askUser?: AskUser | undefined
}

/** A tool as the run offers it, with what its arguments are checked by. */
export interface Definition {
  readonly info: McpToolInfo
  /** Null where its schema is none that can be checked: the server does that then. */
  readonly schema: AnswerSchema<unknown> | null
}

const serverTag = 'server-content'
const errorMaxChars = 8_000

export class RunServer {
  readonly name: string
  readonly config: McpServer
  readonly #parts: ServerParts
  readonly #definitions = new Map<string, Definition>()
  /** Digests of definitions that were allowed. */
  readonly #allowed = new Set<string>()
  /** Offers that were denied, with the words for it. */
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

  /** As it is allowed now; absent where the run does not offer it. */
  definition(tool: string): Definition | undefined {
    return this.#definitions.get(tool)
  }

  /** Whether it is one process for each workspace. */
  get isProgram(): boolean {
    return this.config.transport === 'stdio'
  }

  /** Starts it and has its tools allowed. @returns what is to be noted: why it is not used, or what of it is left out */
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

  /** A call, with arguments that were checked. */
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

  /** The server's questions go to the person as its own. */
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

  /** Null where the tool is what was allowed. */
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

  /** Asks, one question at a time; null where the tools may be used as they are. */
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
    // What the run offers is settled when it begins; of those tools the newest definition holds.
    for (const tool of tools) if (isNew || this.#definitions.has(tool.name)) await this.#define(tool)
    return null
  }

  async #define(info: McpToolInfo): Promise<void> {
    const opened = await openSchema(info.inputSchema)
    this.#definitions.set(info.name, { info, schema: opened.ok ? opened.value : null })
  }
}

/** What a server said, in a block that it cannot leave. */
export function quoteServer(text: string): string {
  return block(serverTag, text)
}
