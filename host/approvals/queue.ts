/**
 * The approval queue of a run. Journals a question before showing it, and an answer before it takes effect. Rules and
 * modes answer first, a person answers the rest, and the first answer wins.
 */
import * as z from 'zod'
import {
  AnswerReach,
  type ApprovalDecision,
  type ApprovalRequest,
  type ApprovalRule,
  ApprovalScope,
} from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { Text } from '#specs/protocol/text.ts'
import { formatTime } from '../files/format.ts'
import { canRemember, ruleAccess, ruleCall, settleByPerson } from './answers.ts'
import { describeRequest } from './approval-event.ts'
import { commandOf } from './calls.ts'
import { explainCommand } from './command-rules.ts'
import {
  type Answerer,
  type AnswerResult,
  type ApprovalAnswer,
  type ApprovalMode,
  type AskOptions,
  type DecisionRecord,
  type HostQuestion,
  unattended,
  withdrawn,
} from './decisions.ts'
import { offeredAnswers } from './offered-answers.ts'
import { planOf, planTool } from './plan-question.ts'
import { matchRules } from './rules.ts'
import { describeAnswer, isUserQuestion, ruleQuestion, unanswered } from './user-question.ts'

export type { Answerer, AnswerResult, ApprovalAnswer, ApprovalMode, HostQuestion } from './decisions.ts'

export interface ApprovalQueueOptions {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  /** Whether a person can answer; if not, questions are denied. */
  readonly interactive: boolean
  /** Journals an event; resolves when it is stored. */
  readonly record: (event: HostEvent) => Promise<unknown>
  /**
   * Called when a question starts (+1) or stops (-1) waiting for a person: deadlines pause meanwhile.
   * @param isUnseen whether the question is hidden from the agent, as for a program's connection
   */
  readonly onWaiting?: (waiting: number, isUnseen: boolean) => void
  /** Lists why a person's plan cannot be the next one. Absent: any plan can. */
  readonly findPlanProblems?: (plan: Plan) => readonly string[]
  /** Called with each approved plan, before the agent gets the answer. */
  readonly onPlanAllowed?: (plan: Plan) => void
}

/** A question that waits for a person. */
interface Waiting {
  readonly request: ApprovalRequest
  readonly enforced: HostQuestion | undefined
  readonly mustAsk: boolean
  readonly isUnseen: boolean
  /** Whether a yes can be for the same command in this run. */
  readonly remembers: boolean
  readonly answered: PromiseWithResolvers<DecisionRecord>
}

/** Fields of every answer, also checked for untyped callers. Plan and answer are validated by question type. */
const AnswerForm = z.looseObject({
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  reach: AnswerReach.optional(),
  hint: Text.optional(),
})

/** Decisions that are remembered. */
const decidedMax = 1_000
const application: Answerer = { name: 'the application', via: 'library' }
const deciders = {
  rule: 'a rule',
  mode: 'the approval mode',
  cancel: 'the end of the run',
  agent: 'the agent, which withdrew it',
} as const

export class ApprovalQueue {
  readonly #options: ApprovalQueueOptions
  /** By approval id, oldest first. */
  readonly #waiting = new Map<string, Waiting>()
  /** Answers of scope `run`, by tool. */
  readonly #runAnswers = new Map<string, DecisionRecord>()
  /** Answers of scope `run` and reach `command`, by the text of the command. */
  readonly #commandAnswers = new Map<string, DecisionRecord>()
  /** The last decisions, by approval id, for those who answer later. */
  readonly #decided = new Map<string, { readonly ruling: DecisionRecord; readonly at: number }>()
  /** Number of `ask_user` questions put to a person. */
  #questions = 0
  /** Decisions for an agent that was lost, by call: each is for one question of the next. */
  readonly #earlier = new Map<string, DecisionRecord>()
  #closed: DecisionRecord | undefined
  #interactive: boolean

  constructor(options: ApprovalQueueOptions) {
    this.#options = options
    this.#interactive = options.interactive
  }

  /** Takes what was decided before the agent was lost: it is not asked again. */
  restore(
    decided: readonly { readonly request: Omit<ApprovalRequest, 'runId'>; readonly ruling: DecisionRecord }[],
  ): void {
    for (const { request, ruling } of decided) this.#earlier.set(callKey(request), ruling)
  }

  /** Ids of the pending questions, oldest first. */
  get pending(): string[] {
    return [...this.#waiting.keys()]
  }

  /** Resolves when the question is no longer pending, whatever answered it. */
  async whenResolved(approvalId: string): Promise<void> {
    await this.#waiting.get(approvalId)?.answered.promise
  }

  /**
   * Answers a request. The link to the guest asks once, however often the guest repeats its question. A request under
   * the id of a pending question is denied.
   * @param signal withdraws the question; a string as its reason says why
   * @param enforced for the host's own question about network access
   * @param asking overrides for a question about a call
   */
  async ask(
    request: ApprovalRequest,
    signal?: AbortSignal,
    enforced?: HostQuestion,
    asking: AskOptions = {},
  ): Promise<ApprovalDecision> {
    if (this.#waiting.has(request.approvalId))
      return { decision: 'deny', hint: 'another approval waits under this id' }
    const { approvalId } = request
    const { record, rules } = this.#options
    const known = enforced === undefined ? this.#takeEarlier(request) : undefined
    const ruled = known ?? this.#rule(request, enforced, asking)
    const isCall = ruled === undefined && enforced === undefined && !isUserQuestion(request)
    const remembers = isCall && canRemember(request, rules, asking)
    const because = isCall ? explainCommand(rules, request) : undefined
    // Starts waiting before the question is shown, so that a viewer can answer it.
    const answered =
      ruled === undefined ? this.#startWaiting({ request, enforced, remembers }, asking, signal) : undefined
    const isEnforced = enforced !== undefined || asking.askedBy === 'host'
    if (known === undefined)
      await record(describeRequest(request, { access: enforced?.access, isEnforced, remembers, because }))
    const ruling = ruled ?? (await answered) ?? unattended
    this.#noteDecided(approvalId, ruling)
    if (known === undefined) await record({ type: 'approval-decision', approvalId, ...ruling })
    asking.onDecision?.(ruling)
    if (enforced !== undefined) return await this.#apply(enforced, ruling)
    const { decision, hint, plan, answer } = ruling
    const allowed = decision === 'allow' ? (plan ?? planOf(request)) : undefined
    if (allowed !== undefined) this.#options.onPlanAllowed?.(allowed)
    // A hint with a denied plan requests another plan, which needs an interactive person.
    const isWord = hint !== undefined && !(ruling.by === 'mode' && request.tool === planTool)
    return {
      decision,
      ...(isWord ? { hint } : {}),
      ...(plan === undefined ? {} : { plan }),
      ...(answer === undefined ? {} : { answer }),
    }
  }

  /** Records a person's answer, or says why it does not count. */
  answer(approvalId: string, answer: ApprovalAnswer, by: Answerer = application): AnswerResult {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined) return this.#explainGone(approvalId)
    if (!AnswerForm.safeParse(answer).success) return notOffered(entry)
    const { request, enforced, remembers } = entry
    const asked = { request, access: enforced?.access, remembers }
    const settled = settleByPerson(asked, answer, this.#options.findPlanProblems)
    if (settled === undefined) return notOffered(entry)
    const ruling = { ...settled, name: by.name.slice(0, limits.lineMaxChars), via: by.via }
    this.#noteDecided(approvalId, ruling)
    this.#resolve(approvalId, ruling)
    const { plan: _, ...runAnswer } = ruling
    // The next plan question is about another plan.
    if (enforced === undefined && ruling.scope === 'run') this.#applyToCalls(request, runAnswer)
    return { taken: true }
  }

  #noteDecided(approvalId: string, ruling: DecisionRecord): void {
    if (this.#decided.has(approvalId)) return
    this.#decided.set(approvalId, { ruling, at: Date.now() })
    const [oldest] = this.#decided.keys()
    if (this.#decided.size > decidedMax && oldest !== undefined) this.#decided.delete(oldest)
  }

  #explainGone(approvalId: string): AnswerResult {
    const decided = this.#decided.get(approvalId)
    if (decided === undefined) {
      const message = `no approval of this run has the ID ${JSON.stringify(approvalId)}; list them: caisson approvals list, or pendingApprovals of the run's state`
      return { taken: false, reason: 'unknown', message }
    }
    const { ruling, at } = decided
    const who = ruling.by === 'person' ? `${ruling.name} (${ruling.via})` : deciders[ruling.by]
    const word = ruling.decision === 'allow' ? 'allowed' : 'denied'
    const message = `${approvalId} was already ${word} by ${who} at ${formatTime(at)}; the first answer counts`
    return { taken: false, reason: 'decided', message }
  }

  /** Applies the answer to all pending and later questions of the tool, or about the same command. */
  #applyToCalls({ tool, ...asked }: ApprovalRequest, ruling: DecisionRecord): void {
    const command = ruling.reach === 'command' ? commandOf({ tool, ...asked }) : undefined
    if (command === undefined) this.#runAnswers.set(tool, ruling)
    else this.#commandAnswers.set(command, ruling)
    for (const [id, { request, enforced, mustAsk, remembers }] of [...this.#waiting]) {
      if (request.tool !== tool || enforced !== undefined) continue
      // A yes to other questions does not answer one that requires a person.
      const isMeant =
        command === undefined
          ? !(mustAsk && ruling.decision === 'allow') &&
            matchRules(this.#options.rules, request) === undefined
          : remembers && commandOf(request) === command
      if (isMeant) this.#resolve(id, ruling)
    }
  }

  /** No person can answer any more: denies pending questions, and later ones count as non-interactive. */
  detach(): void {
    this.#interactive = false
    for (const [id, { request, enforced }] of [...this.#waiting]) {
      const { question } = request
      const left = question === undefined ? unattended : unanswered(question, 'no user is available any more')
      this.#resolve(id, enforced?.unattended ?? left)
    }
  }

  /** Denies all pending and later questions, when the run is cancelled or has ended. */
  close(): void {
    this.#closed = { decision: 'deny', scope: 'run', by: 'cancel' }
    for (const id of this.pending) this.#resolve(id, this.#closed)
  }

  async #apply(enforced: HostQuestion, ruling: DecisionRecord): Promise<ApprovalDecision> {
    const decision = await enforced.apply(ruling)
    // The answer may apply to other questions too.
    for (const [id, other] of [...this.#waiting]) {
      const known = other.enforced?.known()
      if (known !== undefined) this.#resolve(id, known)
    }
    return decision
  }

  #takeEarlier(request: ApprovalRequest): DecisionRecord | undefined {
    if (this.#closed !== undefined) return undefined
    const key = callKey(request)
    const ruling = this.#earlier.get(key)
    this.#earlier.delete(key)
    return ruling
  }

  /** The decision without a person; undefined if one must be asked. */
  #rule(
    request: ApprovalRequest,
    enforced: HostQuestion | undefined,
    asking: AskOptions,
  ): DecisionRecord | undefined {
    if (this.#closed !== undefined) return this.#closed
    const { mode, rules } = this.#options
    const scene = { mode, rules, interactive: this.#interactive }
    if (enforced !== undefined) return ruleAccess(request, enforced, scene)
    const command = commandOf(request)
    const runAnswer =
      this.#runAnswers.get(request.tool) ??
      (command === undefined ? undefined : this.#commandAnswers.get(command))
    if (isUserQuestion(request)) return ruleQuestion(request, { ...scene, runAnswer, asked: this.#questions })
    return ruleCall(request, scene, runAnswer, asking)
  }

  #startWaiting(
    asked: Pick<Waiting, 'request' | 'enforced' | 'remembers'>,
    { mustAsk = false, isUnseen = asked.enforced?.access.from === 'connection' }: AskOptions,
    signal: AbortSignal | undefined,
  ): Promise<DecisionRecord> {
    const { request } = asked
    const { approvalId } = request
    const answered = Promise.withResolvers<DecisionRecord>()
    this.#waiting.set(approvalId, { ...asked, mustAsk, isUnseen, answered })
    if (request.question !== undefined) this.#questions += 1
    this.#options.onWaiting?.(1, isUnseen)
    const withdraw = () => this.#resolve(approvalId, withdrawn(signal?.reason))
    signal?.addEventListener('abort', withdraw)
    void answered.promise.then(() => signal?.removeEventListener('abort', withdraw))
    if (signal?.aborted) withdraw()
    return answered.promise
  }

  #resolve(approvalId: string, ruling: DecisionRecord): void {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined) return
    this.#waiting.delete(approvalId)
    this.#options.onWaiting?.(-1, entry.isUnseen)
    entry.answered.resolve(ruling)
  }
}

/** Of what is asked about: the host draws the ids of its own questions anew. */
function callKey({
  agentPath,
  stepId,
  callId,
  tool,
  arguments: given,
}: Omit<ApprovalRequest, 'runId'>): string {
  return JSON.stringify([agentPath, stepId, callId, tool, given])
}

function notOffered({ request, enforced, remembers }: Waiting): AnswerResult {
  const { approvalId, question } = request
  const labels = offeredAnswers(request, enforced?.access, remembers).map(({ label }) => label)
  const form = question === undefined ? '' : ` (${describeAnswer(question)})`
  const message = `${approvalId} does not accept this answer; expected one of: ${labels.join(', ')}${form}`
  return { taken: false, reason: 'not_offered', message }
}
