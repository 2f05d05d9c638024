/**
 * What an interrupted run did that cannot be undone with its disk, and what people decided, from its journal: another
 * agent is given both again, and neither happens twice.
 */
import * as z from 'zod'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { HostToolResult } from '#specs/protocol/extension.ts'
import { AgentPath, Id } from '#specs/protocol/text.ts'
import type { AskedEvent, DecidedRequest } from '../approvals/queue.ts'
import { keyOfAnswer } from '../approvals/run-answers.ts'
import type { Recording } from '../recording/replay.ts'
import { type HostCallResult, type HostCallResults, hostToolFailure, keyOf } from '../tools/calls.ts'
import type { AgentMessage } from './guest/agent-control.ts'

/** Decided before the agent was lost. */
export interface DecidedApproval extends DecidedRequest {
  /** The agent's log may have the decision: no other question about the same call gets it. */
  readonly onlyUnderItsId?: true
}

/** Without a number it is none of an archive. */
type PastLine = Pick<JournalEvent, 'event'> &
  Partial<Pick<JournalEvent, 'seq'>> & { readonly agentPath?: string }

/** Addresses that a line names. */
const reachedMaxCount = 20

export class Past {
  readonly #checkpointId: string | null
  readonly #importedLines: number
  /** Requests without a decision. */
  readonly #asked = new Map<string, Omit<DecidedApproval, 'ruling'>>()
  /** Those of them that the last agent put to a person of this machine, and the host does not ask itself. */
  readonly #open = new Map<string, AskedEvent>()
  #decided: DecidedApproval[] = []
  #isSleeping = false
  #interruption: string | undefined
  #cancelledBy: string | undefined
  #agentDigest: string | undefined
  #imageKey: string | undefined
  /** What people said to the agent. */
  readonly messages: AgentMessage[] = []
  /** What people answered for the rest of the run. */
  readonly #runAnswers = new Map<string, DecidedApproval>()
  /** Those of them that no agent has had: behind the checkpoint, or before it and not seen until there. */
  newMessages: AgentMessage[] = []
  readonly #seen = new Set<string>()
  /** Paths of the sub-agents that ended. */
  readonly #ended = new Set<string>()
  /** Sub-agents that people cancelled and that were at work at the checkpoint or began behind it, with the reason. */
  readonly cancelledAgents = new Map<string, string>()
  #origin: string | undefined
  #forkedAt: string | null | undefined
  /** Whether the lines end where the run was forked. */
  #isFork = false
  readonly #reached = new Set<string>()
  /** Keys of calls that began. */
  readonly #calls = new Map<string, { readonly agentPath: string; readonly tool: string }>()

  /**
   * @param checkpointId from which the run continues; null: from its beginning
   * @param importedLines that came with an archive: their answers for the run and about network access do not apply
   */
  constructor(checkpointId: string | null, importedLines = 0) {
    this.#checkpointId = checkpointId
    this.#importedLines = importedLines
  }

  /** Takes the next line of the journal. */
  next({ event, seq = Number.POSITIVE_INFINITY, agentPath = 'root' }: PastLine): void {
    switch (event.type) {
      case 'run-start': {
        const { forkedFrom } = event
        if (forkedFrom !== undefined) this.#origin = `forked from ${forkedFrom.runId} at ${forkedFrom.step}`
        this.#isFork = forkedFrom?.checkpointId === null
        this.#forkedAt = forkedFrom?.checkpointId
        this.#meetVm(event)
        break
      }
      case 'vm-ready':
        this.#meetVm(event)
        break
      case 'run-sleep':
        this.#isSleeping = true
        break
      case 'run-interrupt':
        this.#interruption = event.message.split('\n')[0]
        break
      case 'run-take':
        this.#interruption ??= `${event.host} took the run over`
        break
      case 'run-resume':
        this.#isSleeping = false
        this.#interruption = undefined
        this.#isFork = false
        this.#open.clear()
        break
      case 'checkpoint':
        if (event.checkpointId === this.#forkedAt) {
          this.#isFork = true
          this.#cancelledBy = undefined
        }
        if (event.checkpointId !== this.#checkpointId) break
        // Decisions before are in the agent's log, but for those that had not reached it. It asks for those again under their
        // ids; the host draws the ids of its own questions anew.
        this.#decided = this.#decided
          .filter(({ access }) => access === undefined)
          .map((decided) => ({ ...decided, onlyUnderItsId: true as const }))
        this.#reached.clear()
        this.newMessages = this.newMessages.filter(
          (message) => !this.#seen.has(message.messageId) && !this.#ended.has(message.agentPath ?? 'root'),
        )
        for (const agentPath of this.#ended) this.cancelledAgents.delete(agentPath)
        break
      case 'egress-start':
        this.#reached.add(event.target)
        break
      case 'egress-end':
        // Older journals have the end alone. The web tools only read.
        if (event.kind === 'tunnel' || event.kind === 'http') this.#reached.add(event.target)
        break
      case 'approval-request':
        // What was asked and answered elsewhere decides nothing here: the agent asks again.
        if (seq <= this.#importedLines) break
        this.#asked.set(event.request.approvalId, { request: event.request, access: event.access })
        if (event.kind === 'cooperative') this.#open.set(event.request.approvalId, event)
        break
      case 'approval-decision': {
        const { type: _, approvalId, ...ruling } = event
        const asked = this.#asked.get(approvalId)
        this.#asked.delete(approvalId)
        this.#open.delete(approvalId)
        // A question that was withdrawn is asked again.
        if (asked === undefined || ruling.by === 'cancel' || ruling.by === 'agent') break
        const decided = { ...asked, ruling }
        this.#decided.push(decided)
        const isFirst = ruling.earlierId === undefined
        if (ruling.by === 'person' && ruling.scope === 'run' && isFirst)
          this.#runAnswers.set(keyOfAnswer(asked.request, ruling, asked.access), decided)
        break
      }
      case 'approval-revoke':
        for (const [key, { request }] of this.#runAnswers)
          if (request.approvalId === event.approvalId) this.#runAnswers.delete(key)
        // The call itself was allowed, and stays so; network access is asked for again.
        this.#decided = this.#decided.filter(
          ({ request, access }) => access === undefined || request.approvalId !== event.approvalId,
        )
        break
      case 'steer-request':
        this.#hear(event)
        break
      case 'steer-seen':
        for (const messageId of event.messageIds) this.#seen.add(messageId)
        break
      case 'agent-end':
        this.#ended.add(agentPath)
        break
      case 'agent-cancel-request':
        this.cancelledAgents.set(event.agentPath, event.reason)
        break
      case 'cancel-request':
        if (event.limit === undefined && seq > this.#importedLines) this.#cancelledBy = event.by
        break
      case 'host-tool-start':
        this.#calls.set(keyOf(event.callId, event.tool, event.arguments), event)
        break
      default:
    }
  }

  #hear({ messageId, text, agentPath }: AgentMessage): void {
    const message = { messageId, text, ...(agentPath === undefined ? {} : { agentPath }) }
    this.messages.push(message)
    this.newMessages.push(message)
  }

  #meetVm({
    agentDigest,
    imageKey,
  }: {
    agentDigest?: string | undefined
    imageKey?: string | undefined
  }): void {
    this.#agentDigest = agentDigest ?? this.#agentDigest
    this.#imageKey = imageKey ?? this.#imageKey
  }

  /** Agent and image of the last VM; undefined in older journals. */
  get madeWith(): { readonly agentDigest: string | undefined; readonly imageKey: string | undefined } {
    return { agentDigest: this.#agentDigest, imageKey: this.#imageKey }
  }

  /** Whether the run sleeps. */
  get isSleeping(): boolean {
    return this.#isSleeping
  }

  /** The person who cancelled the run, which had no end then. */
  get cancelledBy(): string | undefined {
    return this.#cancelledBy
  }

  /** Why the last process left the run: in its own words, else that another host took it over; undefined: nobody said. */
  get interruption(): string | undefined {
    return this.#interruption
  }

  /** Of a fork that no agent has begun: where it comes from. */
  get origin(): string | undefined {
    return this.#isFork ? this.#origin : undefined
  }

  /** What people answered for the rest of the run, without what was revoked. */
  get runAnswers(): readonly DecidedApproval[] {
    return [...this.#runAnswers.values()]
  }

  /** Calls and questions that wait for a person. */
  get open(): readonly AskedEvent[] {
    return [...this.#open.values()]
  }

  /** Decisions that the agent at the checkpoint may ask for again. */
  get decided(): readonly DecidedApproval[] {
    return this.#decided
  }

  /** What programs had reached since the checkpoint; their requests may be made again. */
  get reached(): string[] {
    return [...this.#reached].slice(0, reachedMaxCount)
  }

  /** Adds the calls of host tools whose result was lost with the host process. */
  addUnknownCalls(results: HostCallResults): void {
    for (const [key, { agentPath, tool }] of this.#calls) {
      if (results.has(key)) continue
      const text = `${tool} was called, and its result is not known: the host process ended meanwhile. Find out what it did before you call it again`
      results.set(key, { agentPath, result: Promise.resolve(hostToolFailure('cancelled', text)) })
    }
  }
}

/** Older recordings do not name the agent. */
const Call = z.object({
  agentPath: AgentPath.default('root'),
  callId: Id,
  tool: z.string(),
  arguments: z.string(),
})

/** Results of host tools in a recording, by call. */
export function* readCalls({ calls }: Pick<Recording, 'calls'>): Generator<[string, HostCallResult]> {
  for (const [request, result] of calls) {
    const call = Call.safeParse(request)
    const known = HostToolResult.safeParse(result)
    if (!call.success || !known.success) continue
    const { agentPath, callId, tool, arguments: given } = call.data
    yield [keyOf(callId, tool, given), { agentPath, result: Promise.resolve(known.data) }]
  }
}
