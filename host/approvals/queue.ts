/**
 * The one queue of approvals of a run. A question is journaled before it is shown and its answer before it takes
 * effect; rules and modes answer first, a person answers the rest, the first answer wins.
 */
import { createHash } from 'node:crypto'
import * as z from 'zod'
import {
  type ApprovalDecision,
  type ApprovalRequest,
  type ApprovalRule,
  ApprovalScope,
} from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { AccessReach } from '#specs/protocol/egress.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { Text } from '#specs/protocol/text.ts'
import { ruleAccess, ruleCall, settleByPerson } from './answers.ts'
import type { ApprovalAnswer, ApprovalMode, AskOptions, HostQuestion } from './approval-types.ts'
import { type DecisionRecord, unattended, withdrawn } from './decisions.ts'
import { planOf, planTool } from './plan-question.ts'
import { matchRules } from './rules.ts'
import { isUserQuestion, ruleQuestion, unanswered } from './user-question.ts'

export type { ApprovalAnswer, ApprovalMode, AskOptions, HostQuestion } from './approval-types.ts'

export interface ApprovalQueueOptions {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  /** Whether anybody is there to ask; if not, what asks is denied. */
  readonly interactive: boolean
  /** Journals an event; the queue goes on when it is kept. */
  readonly record: (event: HostEvent) => Promise<unknown>
  /**
   * Called when a question starts (+1) or stops (-1) to wait for a person: deadlines stand still meanwhile.
   * @param isUnseen whether the agent does not know that it is asked, as of a connection that a program makes
   */
  readonly onWaiting?: (waiting: number, isUnseen: boolean) => void
  /** What keeps a person's plan from being the next one; absent: nothing does. */
  readonly findPlanProblems?: (plan: Plan) => readonly string[]
  /** Told of each plan that may be carried out, before the agent hears it. */
  readonly onPlanAllowed?: (plan: Plan) => void
}

/** A question that was asked; what it was about is in the journal. */
interface Asked {
  readonly digest: string
  readonly decision: Promise<ApprovalDecision>
  isSettled: boolean
}

/** A question that a person has before them. */
interface Waiting {
  readonly request: ApprovalRequest
  readonly enforced: HostQuestion | undefined
  readonly mustAsk: boolean
  readonly isUnseen: boolean
  readonly answered: PromiseWithResolvers<DecisionRecord>
}

/** Answers that are kept for a guest that asks again. */
const keptAnswers = 1_024

/** What every answer has, from an application without types as well; plan and answer are read by what the question asks for. */
const AnswerForm = z.looseObject({
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  reach: AccessReach.optional(),
  hint: Text.optional(),
})

export class ApprovalQueue {
  readonly #options: ApprovalQueueOptions
  /** By approval id, oldest first. */
  readonly #asked = new Map<string, Asked>()
  readonly #waiting = new Map<string, Waiting>()
  /** Answers of scope `run`, by tool. */
  readonly #standing = new Map<string, DecisionRecord>()
  /** Questions of `ask_user` that a person was asked. */
  #questions = 0
  #closed: DecisionRecord | undefined
  #interactive: boolean

  constructor(options: ApprovalQueueOptions) {
    this.#options = options
    this.#interactive = options.interactive
  }

  /** Ids of the questions that wait for a person, oldest first. */
  get pending(): string[] {
    return [...this.#waiting.keys()]
  }

  /** Resolves when the question does not wait for a person any more, whoever or whatever answered it. */
  async whenResolved(approvalId: string): Promise<void> {
    await this.#waiting.get(approvalId)?.answered.promise
  }

  /**
   * The answer to a request. Asked again under the same id (after a lost session) it is the same question; asked under
   * the same id with other content it is denied, for the answer was given for something else. Answers are remembered as
   * far back as a guest can have to ask again.
   * @param signal withdraws the question; its reason, if it is a text, says why
   * @param enforced for a question of the host's own about a way out
   * @param asking of one about a call: what is otherwise than usual
   */
  async ask(
    request: ApprovalRequest,
    signal?: AbortSignal,
    enforced?: HostQuestion,
    asking: AskOptions = {},
  ): Promise<ApprovalDecision> {
    const digest = digestOf(request)
    const known = this.#asked.get(request.approvalId)
    if (known !== undefined && known.digest !== digest) {
      return { decision: 'deny', hint: 'this approval id was used before for another call' }
    }
    if (known !== undefined) return known.decision
    this.#forgetOldest()
    const asked: Asked = {
      digest,
      decision: this.#settle(request, digest, signal, enforced, asking),
      isSettled: false,
    }
    this.#asked.set(request.approvalId, asked)
    const settle = () => {
      asked.isSettled = true
    }
    asked.decision.then(settle, settle)
    return asked.decision
  }

  /** A person's answer. False when the question is not open (unknown, or already answered), or does not offer such an answer. */
  answer(approvalId: string, answer: ApprovalAnswer): boolean {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined || !AnswerForm.safeParse(answer).success) return false
    const { request, enforced } = entry
    const asked = { request, access: enforced?.access }
    const ruling = settleByPerson(asked, answer, this.#options.findPlanProblems)
    if (ruling === undefined) return false
    this.#resolve(approvalId, ruling)
    const { plan: _, ...standing } = ruling
    // The next question is about another plan.
    if (enforced === undefined && ruling.scope === 'run') this.#stand(request.tool, standing)
    return true
  }

  /** The answer to every later question of the tool, and to those that wait. */
  #stand(tool: string, ruling: DecisionRecord): void {
    this.#standing.set(tool, ruling)
    for (const [id, { request, enforced, mustAsk }] of [...this.#waiting]) {
      // A yes to others is no look at what has to be looked at.
      const isMeant =
        request.tool === tool && enforced === undefined && !(mustAsk && ruling.decision === 'allow')
      if (isMeant && matchRules(this.#options.rules, request) === undefined) this.#resolve(id, ruling)
    }
  }

  /** Nobody will answer any more: what waits is denied, and what comes is treated as unattended. */
  detach(): void {
    this.#interactive = false
    for (const [id, { request, enforced }] of [...this.#waiting]) {
      const { question } = request
      const left = question === undefined ? unattended : unanswered(question, 'nobody is there any more')
      this.#resolve(id, enforced?.unattended ?? left)
    }
  }

  /** Denies what waits and all that is still asked, as the run is being cancelled or has ended. */
  close(): void {
    this.#closed = { decision: 'deny', scope: 'run', by: 'cancel' }
    for (const id of this.pending) this.#resolve(id, this.#closed)
  }

  async #settle(
    request: ApprovalRequest,
    digest: string,
    signal: AbortSignal | undefined,
    enforced: HostQuestion | undefined,
    asking: AskOptions,
  ): Promise<ApprovalDecision> {
    const { approvalId, runId: _, ...asked } = request
    const { record } = this.#options
    const ruled = this.#rule(request, enforced, asking)
    // Waiting before it is shown: who sees the question can answer it.
    const answered = ruled === undefined ? this.#startWaiting(request, signal, enforced, asking) : undefined
    await record({
      type: 'approval-request',
      kind: enforced === undefined && asking.words === undefined ? 'cooperative' : 'enforced',
      request: { approvalId, ...asked },
      digest,
      ...(enforced === undefined ? {} : { access: enforced.access }),
    })
    const ruling = ruled ?? (await answered) ?? unattended
    await record({ type: 'approval-decision', approvalId, ...ruling })
    asking.onDecision?.(ruling)
    if (enforced !== undefined) return await this.#carryOut(enforced, ruling)
    const { decision, hint, plan, answer } = ruling
    const allowed = decision === 'allow' ? (plan ?? planOf(request)) : undefined
    if (allowed !== undefined) this.#options.onPlanAllowed?.(allowed)
    // To a plan, a word with the denial asks for another one; nobody is there who would.
    const isWord = hint !== undefined && !(ruling.by === 'mode' && request.tool === planTool)
    return {
      decision,
      ...(isWord ? { hint } : {}),
      ...(plan === undefined ? {} : { plan }),
      ...(answer === undefined ? {} : { answer }),
    }
  }

  async #carryOut(enforced: HostQuestion, ruling: DecisionRecord): Promise<ApprovalDecision> {
    const decision = await enforced.carryOut(ruling)
    // It may be the answer to others, too.
    for (const [id, other] of [...this.#waiting]) {
      const known = other.enforced?.known()
      if (known !== undefined) this.#resolve(id, known)
    }
    return decision
  }

  #forgetOldest(): void {
    for (const [id, { isSettled }] of this.#asked) {
      if (this.#asked.size < keptAnswers) return
      if (isSettled) this.#asked.delete(id)
    }
  }

  /** What needs no person; undefined when one must be asked. */
  #rule(
    request: ApprovalRequest,
    enforced: HostQuestion | undefined,
    asking: AskOptions,
  ): DecisionRecord | undefined {
    if (this.#closed !== undefined) return this.#closed
    const { mode, rules } = this.#options
    const scene = { mode, rules, interactive: this.#interactive }
    if (enforced !== undefined) return ruleAccess(request, enforced, scene)
    const standing = this.#standing.get(request.tool)
    if (isUserQuestion(request)) return ruleQuestion(request, { ...scene, standing, asked: this.#questions })
    return ruleCall(request, scene, standing, asking)
  }

  #startWaiting(
    request: ApprovalRequest,
    signal: AbortSignal | undefined,
    enforced: HostQuestion | undefined,
    { mustAsk = false, isUnseen = enforced?.access.from === 'connection' }: AskOptions,
  ): Promise<DecisionRecord> {
    const { approvalId } = request
    const answered = Promise.withResolvers<DecisionRecord>()
    this.#waiting.set(approvalId, { request, enforced, mustAsk, isUnseen, answered })
    if (request.question !== undefined) this.#questions += 1
    this.#options.onWaiting?.(1, isUnseen)
    const withdraw = () => this.#resolve(approvalId, withdrawn(signal?.reason))
    signal?.addEventListener('abort', withdraw, { once: true })
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

function digestOf(request: ApprovalRequest): string {
  const { agentPath, tool, arguments: given, question } = request
  const asked = question === undefined ? [] : [toCanonicalJson(question)]
  return createHash('sha256')
    .update(JSON.stringify([agentPath, tool, given, ...asked]))
    .digest('hex')
}
