/**
 * What people, hooks and host tools said in a run, out of its journal and recording: a replay gets the same, each answer
 * once, in its order. Nothing on this machine is called.
 */
import * as z from 'zod'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { HostToolResult, mcpOfferTool } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { PendingApproval } from '#specs/protocol/run-state.ts'
import type { ApprovalAnswer } from '../../approvals/queue.ts'
import { parseJson } from '../../files/json.ts'
import type { Hook, HookInput, HookVerdict } from '../../hooks/hook.ts'
import type { Recording } from '../../recording/replay.ts'
import { HostToolError, type HostTools } from '../../tools/host-tools.ts'
import type { PastLines } from './past-lines.ts'
import type { ReplaySetup } from './setup.ts'

type Decision = Extract<JournalEvent['event'], { type: 'approval-decision' }>
type HookEnd = Extract<JournalEvent['event'], { type: 'hook-end' }>

/** What to do with a question: an answer, or the end of the replay where the run got none. */
export type ReplayedAnswer =
  | { readonly kind: 'answer'; readonly answer: ApprovalAnswer; readonly by: string }
  | { readonly kind: 'none' }

const notRecorded = 'the run that is replayed was not asked this'

/** Values that are taken in their order, by key. */
class Queues<T> {
  readonly #byKey = new Map<string, T[]>()

  add(key: string, value: T): void {
    const known = this.#byKey.get(key)
    if (known === undefined) this.#byKey.set(key, [value])
    else known.push(value)
  }

  take(key: string): T | undefined {
    return this.#byKey.get(key)?.shift()
  }
}

export class PastAnswers {
  /** Null: asked, and never decided. */
  readonly #decisions = new Queues<Decision | null>()
  /** By place, without the call. */
  readonly #hooks = new Map<string, HookEnd[]>()
  readonly #calls = new Queues<HostToolResult>()
  /** Whether questions waited for a person. */
  readonly hasPerson: boolean
  readonly #isCutOff: boolean

  constructor({ lines, isCutOff }: PastLines, { calls }: Pick<Recording, 'calls'>) {
    this.#isCutOff = isCutOff
    const decided = new Map<string, Decision>()
    for (const { event } of lines)
      if (event.type === 'approval-decision') decided.set(event.approvalId, event)
    for (const { event } of lines) {
      if (event.type === 'approval-request') {
        const { request } = event
        this.#decisions.add(keyOfQuestion(request), decided.get(request.approvalId) ?? null)
      } else if (event.type === 'hook-end') {
        const key = keyOfHook(event)
        this.#hooks.set(key, [...(this.#hooks.get(key) ?? []), event])
      }
    }
    this.hasPerson = lines.some(
      ({ event }) =>
        event.type === 'approval-request' &&
        ['person', 'cancel', undefined].includes(decided.get(event.request.approvalId)?.by),
    )
    for (const [request, result] of calls) {
      const call = RecordedCall.safeParse(request)
      const known = HostToolResult.safeParse(result)
      if (call.success && known.success)
        this.#calls.add(JSON.stringify([call.data.tool, call.data.arguments]), known.data)
    }
  }

  /** What a person, or whoever decided, said to this question. */
  answerTo(question: Pick<PendingApproval, 'agentPath' | 'stepId' | 'tool' | 'arguments'>): ReplayedAnswer {
    const decision = this.#decisions.take(keyOfQuestion(question))
    if (decision === undefined) {
      // Pins of MCP servers are not the run's: servers that were known are asked about in a replay.
      if (question.tool === mcpOfferTool) return answered({ decision: 'allow', scope: 'once' })
      return this.#isCutOff
        ? { kind: 'none' }
        : answered({ decision: 'deny', scope: 'once', hint: notRecorded })
    }
    if (decision === null || decision.by === 'cancel') return { kind: 'none' }
    const { decision: word, scope, reach, hint, plan, answer, name = 'the recording' } = decision
    return {
      kind: 'answer',
      answer: {
        decision: word,
        scope,
        ...(reach === undefined ? {} : { reach }),
        ...(hint === undefined ? {} : { hint }),
        ...(plan === undefined ? {} : { plan }),
        ...(answer === undefined ? {} : { answer }),
      },
      by: name,
    }
  }

  /** The hooks of the run; each says again what it said. */
  hooks(setup: Pick<ReplaySetup, 'hooks'>): Hook[] {
    return setup.hooks.map(({ tools, ...hook }) => ({
      ...hook,
      ...(tools === undefined ? {} : { tools }),
      ask: async (input) => ({ ok: true, value: this.#verdict(hook.name, input) }),
    }))
  }

  /** The host tools of the run; each call gives what it gave. */
  hostTools({ task, askingTools }: Pick<ReplaySetup, 'task' | 'askingTools'>): HostTools {
    const asking = new Set(askingTools)
    return Object.fromEntries(
      (task.hostTools ?? []).map(({ name, description, parameters, readOnly }) => {
        const execute = async (input: unknown): Promise<string> => this.#resultOf(name, input)
        return [name, { description, inputSchema: parameters, readOnly, ask: asking.has(name), execute }]
      }),
    )
  }

  #resultOf(tool: string, input: unknown): string {
    const result = this.#calls.take(JSON.stringify([tool, toCanonicalJson(input)]))
    if (result === undefined) throw new HostToolError(notRecorded)
    if (result.ok) return result.output
    const { message, code, retryable } = result.error
    throw new HostToolError(message, { code, retryable })
  }

  #verdict(name: string, input: HookInput): HookVerdict {
    const { point } = input
    const place = 'agentPath' in input ? { agentPath: input.agentPath, stepId: input.stepId } : {}
    const known =
      this.#hooks.get(keyOfHook({ point, hook: name.slice(0, limits.lineMaxChars), ...place })) ?? []
    // Steps that run side by side may draw each other's ids of calls.
    const ofCall = known.findIndex(({ callId }) => 'callId' in input && callId === input.callId)
    const [said] = known.splice(Math.max(0, ofCall), 1)
    if (said === undefined) return { decision: 'deny', reason: notRecorded }
    const changed = Arguments.safeParse(parseJson(said.arguments ?? ''))
    return {
      decision: said.decision,
      ...(said.reason === undefined ? {} : { reason: said.reason }),
      ...(changed.success ? { arguments: changed.data } : {}),
      ...(said.note === undefined ? {} : { note: said.note }),
      ...(said.context === undefined ? {} : { context: said.context }),
    }
  }
}

type Place = Pick<HookEnd, 'point' | 'hook' | 'agentPath' | 'stepId'>

const RecordedCall = z.object({ tool: z.string(), arguments: z.string() })
const Arguments = z.record(z.string(), z.unknown())

function answered(answer: ApprovalAnswer): ReplayedAnswer {
  return { kind: 'answer', answer, by: 'the recording' }
}

function keyOfQuestion({
  agentPath,
  stepId,
  tool,
  arguments: given,
}: Pick<PendingApproval, 'agentPath' | 'stepId' | 'tool' | 'arguments'>): string {
  return JSON.stringify([agentPath, stepId, tool, given])
}

function keyOfHook({ point, hook, agentPath, stepId }: Place): string {
  return JSON.stringify([point, hook, agentPath ?? '', stepId ?? ''])
}
