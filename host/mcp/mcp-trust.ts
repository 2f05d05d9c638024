/**
 * Decides whether an MCP server's tools may be offered in a run, by comparing the agent's report with earlier
 * approvals. Accepts a user's new server; asks a person about workspace servers and about changes.
 */
import { createHash, randomBytes } from 'node:crypto'
import { errorMessage } from '#specs/errors.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { McpOffer, type McpServer, mcpOfferTool } from '#specs/protocol/extension.ts'
import { describeMcpServer } from '#specs/protocol/mcp-config.ts'
import type { DecisionRecord } from '../approvals/decisions.ts'
import type { ApprovalQueue } from '../approvals/queue.ts'
import { parseJson } from '../files/json.ts'
import { compareOffer, describeOffer, isAsPinned, namesOfChanges } from './changes.ts'
import type { McpPin, McpPins, PinKey } from './pins.ts'

interface McpTrustOptions {
  readonly runId: string
  /** Real path of the workspace. */
  readonly directory: string
  /** The user's servers in this run. */
  readonly servers: Readonly<Record<string, McpServer>>
  readonly pins: McpPins
  readonly approvals: Pick<ApprovalQueue, 'ask'>
  /** Writes a line to the run's log. */
  readonly inform: (text: string) => void
  readonly now?: () => number
}

export class McpTrust {
  readonly #options: McpTrustOptions

  constructor(options: McpTrustOptions) {
    this.#options = options
  }

  /** Answers a question of {@link mcpOfferTool}. */
  async decide(request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalDecision> {
    const parsed = McpOffer.safeParse(parseJson(request.arguments))
    if (!parsed.success) return { decision: 'deny', hint: 'expected what an MCP server says of itself' }
    const offer = parsed.data
    const { directory, servers, pins } = this.#options
    const own = Object.hasOwn(servers, offer.server) ? servers[offer.server] : undefined
    if (offer.source === 'user' && (own === undefined || describeMcpServer(own) !== offer.runs))
      return { decision: 'deny', hint: 'the user has configured no such server for this run' }
    const key: PinKey = {
      source: offer.source,
      server: offer.server,
      ...(offer.source === 'workspace' ? { directory } : {}),
    }
    try {
      const pin = await pins.find(key)
      const changes = compareOffer(offer, pin)
      if (isAsPinned(pin, changes)) return { decision: 'allow' }
      // A new or changed entry in the user's configuration is the user's choice.
      if (offer.source === 'user' && (pin === undefined || changes.ranBefore !== undefined)) {
        this.#options.inform(`MCP server ${offer.server}: ${offer.tools.length} tools are pinned`)
        await this.#keep(key, offer)
        return { decision: 'allow' }
      }
      const shown = {
        preview: describeOffer(offer, pin, changes),
        changes: pin === undefined ? {} : namesOfChanges(changes),
      }
      return await this.#ask(request, key, offer, shown, signal)
    } catch (cause) {
      const why = errorMessage(cause)
      return { decision: 'deny', hint: `what was allowed before is not known: ${why}`.slice(0, 1_000) }
    }
  }

  async #ask(
    { runId, agentPath, stepId }: ApprovalRequest,
    key: PinKey,
    offer: McpOffer,
    { preview, changes }: { readonly preview: string; readonly changes: object },
    signal: AbortSignal | undefined,
  ): Promise<ApprovalDecision> {
    const { server, source, runs, tools } = offer
    // An answer that is found again is to the same words.
    const sha256 = createHash('sha256').update(toCanonicalJson(offer)).digest('hex')
    const shown = { server, source, runs, tools: tools.map(({ name }) => name), ...changes, sha256 }
    // Drawn: under an id of the agent a person may have read another question.
    const approvalId = `mcp-${randomBytes(8).toString('hex')}`
    const question: ApprovalRequest = {
      approvalId,
      runId,
      agentPath,
      stepId,
      callId: approvalId,
      tool: mcpOfferTool,
      arguments: toCanonicalJson(shown),
      preview,
    }
    let ruling: DecisionRecord | undefined
    const onDecision = (given: DecisionRecord): void => {
      ruling = given
    }
    const decision = await this.#options.approvals.ask(question, signal, undefined, { onDecision })
    // Rules and the mode apply only to their own run.
    if (decision.decision === 'allow' && ruling?.by === 'person' && ruling.earlierId === undefined)
      await this.#keep(key, offer)
    if (decision.decision === 'allow' || ruling?.by !== 'mode') return decision
    const rule = JSON.stringify({ effect: 'allow', tool: mcpOfferTool, pattern: server })
    const hint = `${ruling.rule ?? 'it was denied'}; the rule ${rule} in option approvals.rules allows this server`
    return { decision: 'deny', hint }
  }

  async #keep(key: PinKey, { runs, tools }: McpOffer): Promise<void> {
    const { pins, runId, now = Date.now } = this.#options
    const pin: McpPin = { ...key, runs, tools: [...tools], runId, at: now() }
    await pins.keep(pin)
  }
}
