/**
 * What an interrupted run did that cannot be undone with its disk, and what people decided, from its journal: another
 * agent is given both again, and neither happens twice.
 */
import * as z from 'zod'
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { HostToolResult } from '#specs/protocol/extension.ts'
import { Id } from '#specs/protocol/text.ts'
import type { DecisionRecord } from '../approvals/decisions.ts'
import type { Recording } from '../recording/replay.ts'
import { type HostCallResults, hostToolFailure, keyOf } from '../tools/calls.ts'

export interface DecidedApproval {
  readonly request: Omit<ApprovalRequest, 'runId'>
  readonly ruling: DecisionRecord
}

/** Addresses that a line names. */
const reachedMaxCount = 20

export class Past {
  readonly #checkpointId: string | null
  /** Requests without a decision. */
  readonly #asked = new Map<string, DecidedApproval['request']>()
  #decided: DecidedApproval[] = []
  /** What people said to the agent. */
  readonly messages: { readonly messageId: string; readonly text: string }[] = []
  readonly #reached = new Set<string>()
  /** Keys of calls that began, with their tool. */
  readonly #calls = new Map<string, string>()

  /** @param checkpointId from which the run continues; null: from its beginning */
  constructor(checkpointId: string | null) {
    this.#checkpointId = checkpointId
  }

  /** Takes the next line of the journal. */
  next({ event }: Pick<JournalEvent, 'event'>): void {
    switch (event.type) {
      case 'checkpoint':
        // Decisions before are in the agent's log.
        if (event.checkpointId !== this.#checkpointId) break
        this.#decided = []
        this.#reached.clear()
        break
      case 'egress-end':
        // The web tools only read.
        if (event.kind === 'tunnel' || event.kind === 'http') this.#reached.add(event.target)
        break
      case 'approval-request':
        this.#asked.set(event.request.approvalId, event.request)
        break
      case 'approval-decision': {
        const { type: _, approvalId, ...ruling } = event
        const request = this.#asked.get(approvalId)
        this.#asked.delete(approvalId)
        // A question that was withdrawn is asked again.
        if (request !== undefined && ruling.by !== 'cancel') this.#decided.push({ request, ruling })
        break
      }
      case 'steer-request':
        this.messages.push({ messageId: event.messageId, text: event.text })
        break
      case 'host-tool-start':
        this.#calls.set(keyOf(event.callId, event.tool, event.arguments), event.tool)
        break
      default:
    }
  }

  /** Decisions that the agent has not acted on at the checkpoint. */
  get decided(): readonly DecidedApproval[] {
    return this.#decided
  }

  /** What programs had reached since the checkpoint; their requests may be made again. */
  get reached(): string[] {
    return [...this.#reached].slice(0, reachedMaxCount)
  }

  /** Adds the calls of host tools whose result was lost with the host process. */
  addUnknownCalls(results: HostCallResults): void {
    for (const [key, tool] of this.#calls) {
      if (results.has(key)) continue
      const text = `${tool} was called, and its result is not known: the host process ended meanwhile. Find out what it did before you call it again`
      results.set(key, Promise.resolve(hostToolFailure('cancelled', text)))
    }
  }
}

const Call = z.object({ callId: Id, tool: z.string(), arguments: z.string() })

/** Results of host tools in a recording, by call. */
export function* readCalls({
  calls,
}: Pick<Recording, 'calls'>): Generator<[string, Promise<HostToolResult>]> {
  for (const [request, result] of calls) {
    const call = Call.safeParse(request)
    const known = HostToolResult.safeParse(result)
    if (!call.success || !known.success) continue
    const { callId, tool, arguments: given } = call.data
    yield [keyOf(callId, tool, given), Promise.resolve(known.data)]
  }
}
