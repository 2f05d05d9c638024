/**
 * The approval queue of a run. Journals a question before showing it, and an answer before it takes effect. Rules and
 * modes answer first, a person answers the rest, and the first answer wins.
 */
import type {
  AccessQuestion,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalRule,
} from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { pendingApprovalOf } from '#specs/protocol/run-state.ts'
import { canRemember, ruleAccess, ruleCall, settleByPerson } from './answers.ts'
import { describeRequest } from './approval-event.ts'
import { ByCall } from './by-call.ts'
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
import {
  explainChanged,
  explainDecided,
  explainNotOffered,
  explainUnknown,
  readAnswer,
  unrecorded,
} from './explain-answer.ts'
import { planOf, planTool } from './plan-question.ts'
import { matchRules } from './rules.ts'
import { decisionBy, type NetworkAnswer, RunAnswers } from './run-answers.ts'
import { isTimedWait, type MayWait, ruleWait, timeHasCome, whenTimeHasCome } from './timed-waits.ts'
import { isUserQuestion, ruleQuestion, unanswered } from './user-question.ts'

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
  /** Whether an answer for the run decides later calls, too. Default true; false for a replay, which is given each. */
  readonly keepsRunAnswers?: boolean
  /** ms since 1970. Default `Date.now`. */
  readonly now?: () => number
  /** Whether steps may wait for a time. Absent: no. */
  readonly mayWait?: MayWait | undefined
  /** Called with each approved plan, before the agent gets the answer. */
  readonly onPlanAllowed?: (plan: Plan) => void
}

/** A question, as journaled, and what decided it. */
export interface DecidedRequest {
  readonly request: Omit<ApprovalRequest, 'runId'>
  readonly ruling: DecisionRecord
  /** Of a question about network access. */
  readonly access?: AccessQuestion | undefined
}

/** A question as the journal has it. */
export type AskedEvent = Extract<HostEvent, { type: 'approval-request' }>

/** What a run's journal says of approvals, for an agent that continues the run. */
export interface EarlierApprovals {
  /**
   * What was decided before the agent was lost: it is not asked again. `onlyUnderItsId`: the agent may have it, so that no
   * other question about the same call gets it.
   */
  readonly decided: readonly (DecidedRequest & { readonly onlyUnderItsId?: true })[]
  /** What people answered another process for the rest of the run. */
  readonly runAnswers?: readonly DecidedRequest[]
  /** Calls and questions of another process that nobody decided: answers apply before the agent asks again. */
  readonly open?: readonly AskedEvent[]
}

/** A question that waits for a person. */
interface Waiting {
  readonly request: ApprovalRequest
  readonly enforced: HostQuestion | undefined
  mustAsk: boolean
  readonly isUnseen: boolean
  readonly isOfHost: boolean
  /** As journaled. */
  readonly asked: AskedEvent
  /** Whether a yes can be for the same command in this run. */
  readonly remembers: boolean
  readonly answered: PromiseWithResolvers<DecisionRecord>
  /** Whether its decision could be journaled. */
  readonly recorded: PromiseWithResolvers<boolean>
  /** The call of `ask` that gets the decision; undefined: its agent has ended, and none has asked again. */
  asker: symbol | undefined
  /** Whether the journal has the question since that agent ended. */
  isJournaled: boolean
}

type AskedQuestion = Pick<Waiting, 'request' | 'enforced' | 'remembers' | 'isOfHost' | 'asked'>

/** A decision for an agent that was lost. */
interface Earlier {
  readonly approvalId: string
  readonly ruling: DecisionRecord
  readonly isNetwork: boolean
  readonly onlyUnderItsId?: true
}

/** Decisions that are remembered. */
const decidedMax = 1_000
const application: Answerer = { name: 'the application', via: 'library' }
export class ApprovalQueue {
  readonly #options: ApprovalQueueOptions
  /** By approval id, oldest first. */
  readonly #waiting = new Map<string, Waiting>()
  readonly #runAnswers: RunAnswers
  /** Answers for the run that are being journaled, by approval id. */
  readonly #recording = new Map<string, Promise<unknown>>()
  /** The last decisions, by approval id, for those who answer later. */
  readonly #decided = new Map<string, { readonly ruling: DecisionRecord; readonly at: number }>()
  /** Number of `ask_user` questions put to a person. */
  #questions = 0
  /** Decisions for an agent that was lost, by call: each is for one question of the next. */
  readonly #earlier = new ByCall<Earlier>()
  #closed: DecisionRecord | undefined
  /** Questions of agents that ended, by call: the next agent asks them again, and answers apply until then. */
  readonly #left = new ByCall<Waiting>()
  /** While no agent is there that asks: resolves once a question is decided. */
  #parked: PromiseWithResolvers<void> | undefined
  /** Whether a question was decided meanwhile. */
  #isDecided = false
  /** Another process takes the answers from now on. */
  #hasLeft = false
  #interactive: boolean

  constructor(options: ApprovalQueueOptions) {
    this.#options = options
    this.#runAnswers = new RunAnswers(options.now)
    this.#interactive = options.interactive
  }

  /** @param runId of the run that continues */
  restore(runId: string, { decided, runAnswers = [], open = [] }: EarlierApprovals): void {
    for (const { request, ruling, access } of runAnswers) {
      if (access === undefined) this.#runAnswers.add(request, ruling)
      else this.#runAnswers.addNetwork(request, access, ruling)
    }
    for (const { request, ruling, access, ...under } of decided) {
      const { approvalId } = request
      // The agent before this one may not have asked for it.
      this.#earlier.drop((earlier) => earlier.approvalId === approvalId)
      this.#earlier.add(request, { approvalId, ruling, isNetwork: access !== undefined, ...under })
      this.#noteDecided(approvalId, ruling)
    }
    for (const asked of open) this.#restoreOpen(runId, asked)
  }

  /** The question waits without an agent, as after {@link unpark}. */
  #restoreOpen(runId: string, asked: AskedEvent): void {
    const request = { ...asked.request, runId }
    const remembers = asked.answers?.some(({ reach }) => reach === 'command') === true
    // Until its agent says otherwise, a yes to other calls does not answer it.
    const entry = this.#waitFor(
      { request, enforced: undefined, remembers, isOfHost: false, asked },
      true,
      false,
    )
    entry.isJournaled = false
    this.#left.add(request, entry)
    // Where the journal cannot be written, the run fails by that itself.
    void entry.answered.promise.then((ruling) => this.#settle(entry, ruling)).catch(() => undefined)
  }

  /** What people answered about network access for the rest of the run. */
  get networkAnswers(): readonly NetworkAnswer[] {
    return this.#runAnswers.network
  }

  /**
   * The agents that asked end, and their questions wait on without them.
   * @returns resolves once a decision is journaled
   */
  park(): Promise<void> {
    this.#parked ??= Promise.withResolvers()
    return this.#parked.promise
  }

  /** Takes no more answers, as another process will. False when a question was decided since {@link park}. */
  leave(): boolean {
    this.#hasLeft = !this.#isDecided
    return this.#hasLeft
  }

  /**
   * Another agent is about to begin, which asks again what has no answer. Its questions wait on under their ids; the host
   * draws the ids of its own anew, so those are withdrawn.
   */
  async unpark(): Promise<void> {
    this.#parked = undefined
    this.#isDecided = false
    const gone: Waiting[] = []
    for (const [id, entry] of [...this.#waiting]) {
      if (entry.isUnseen || entry.isOfHost) {
        this.#resolve(id, withdrawn(askedAgain))
        gone.push(entry)
      } else this.#leave(entry)
    }
    await Promise.all(gone.map(({ recorded }) => recorded.promise))
  }

  #leave(entry: Waiting): void {
    if (entry.asker !== undefined) this.#options.onWaiting?.(-1, entry.isUnseen)
    entry.asker = undefined
    entry.isJournaled = false
    this.#left.add(entry.request, entry)
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
    const left = this.#takeLeft(request)
    if (left !== undefined) return await this.#askAgain(left, signal, asking)
    if (this.#waiting.has(request.approvalId))
      return { decision: 'deny', hint: 'another approval waits under this id' }
    const { approvalId } = request
    const { record, rules } = this.#options
    const known = this.#takeEarlier(request)
    const ruled = known ?? this.#rule(request, enforced, asking)
    const isCall = ruled === undefined && enforced === undefined && !isUserQuestion(request)
    const remembers = isCall && canRemember(request, rules, asking)
    const because = isCall ? explainCommand(rules, request) : undefined
    // Starts waiting before the question is shown, so that a viewer can answer it.
    const isOfHost = enforced !== undefined || asking.askedBy === 'host'
    const asked = describeRequest(request, {
      access: enforced?.access,
      isEnforced: isOfHost,
      remembers,
      because,
    })
    const waiting =
      ruled === undefined
        ? this.#startWaiting({ request, enforced, remembers, isOfHost, asked }, asking, signal)
        : undefined
    const asker = waiting?.asker
    if (known === undefined) await record(asked)
    const ruling = ruled ?? (await waiting?.answered.promise) ?? unattended
    if (waiting !== undefined) {
      await this.#settle(waiting, ruling)
      if (waiting.asker !== asker) return { decision: 'deny' }
    } else {
      this.#noteDecided(approvalId, ruling)
      if (known === undefined) await record({ type: 'approval-decision', approvalId, ...ruling })
    }
    asking.onDecision?.(ruling)
    return enforced === undefined ? this.#tell(request, ruling) : await this.#apply(enforced, ruling)
  }

  /** Journals the decision. One that has no agent is kept for the agent that asks again. */
  async #settle(entry: Waiting, ruling: DecisionRecord): Promise<void> {
    const { request, enforced, recorded } = entry
    const { approvalId } = request
    this.#noteDecided(approvalId, ruling)
    let isRecorded = false
    try {
      // No line for a question that the end of the run withdraws before an agent has asked it again.
      if (entry.isJournaled || ruling.by !== 'cancel') {
        await this.#journalAgain(entry)
        await this.#options.record({ type: 'approval-decision', approvalId, ...ruling })
        if (enforced !== undefined && isForRun(ruling))
          this.#runAnswers.addNetwork(request, enforced.access, ruling)
      }
      isRecorded = true
    } finally {
      recorded.resolve(isRecorded)
      this.#parked?.resolve()
    }
    if (this.#left.remove(request, entry))
      this.#earlier.add(request, { approvalId, ruling, isNetwork: enforced !== undefined })
  }

  /** The question of an agent that ended, when it is the one that this agent asks. */
  #takeLeft(request: ApprovalRequest): Waiting | undefined {
    // Another one about the same call waits on.
    if (this.#earlier.has(request, ({ approvalId }) => approvalId === request.approvalId)) return undefined
    const left = this.#left.take(request, (one) => one.request.approvalId === request.approvalId)
    if (left === undefined || left.request.approvalId === request.approvalId) return left
    this.#resolve(left.request.approvalId, withdrawn(askedAgain))
    return undefined
  }

  /** Another agent asks a question that waits: it gets the answer, and the person is not asked anew. */
  async #askAgain(
    entry: Waiting,
    signal: AbortSignal | undefined,
    asking: AskOptions,
  ): Promise<ApprovalDecision> {
    const asker = Symbol('asker')
    entry.asker = asker
    entry.mustAsk = asking.mustAsk === true
    const { request } = entry
    const { approvalId } = request
    if (this.#waiting.get(approvalId) === entry) this.#options.onWaiting?.(1, entry.isUnseen)
    this.#listen(entry, signal)
    // Rules, modes and answers of now may decide a call that a person has not decided yet.
    const ruled = isUserQuestion(request) ? undefined : this.#rule(request, undefined, asking)
    if (ruled !== undefined) this.#resolve(approvalId, ruled)
    await this.#journalAgain(entry)
    const ruling = await entry.answered.promise
    await entry.recorded.promise
    if (entry.asker !== asker) return { decision: 'deny' }
    asking.onDecision?.(ruling)
    return this.#tell(entry.request, ruling)
  }

  /** The line with which another agent continues the run closes all questions before it. */
  async #journalAgain(entry: Waiting): Promise<void> {
    if (entry.isJournaled) return
    entry.isJournaled = true
    await this.#options.record(entry.asked)
  }

  /** What the agent gets. */
  #tell(request: ApprovalRequest, ruling: DecisionRecord): ApprovalDecision {
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
    if (this.#hasLeft) return sleeping
    const { request, enforced, remembers, recorded } = entry
    const now = this.#options.now?.() ?? Date.now()
    const asked = { request, access: enforced?.access, remembers, now }
    const given = readAnswer(answer)
    const changed = given && explainChanged(request.runId, pendingApprovalOf(entry.asked), given)
    if (changed !== undefined) return changed
    const settled = given && settleByPerson(asked, given, this.#options.findPlanProblems)
    if (settled === undefined) return explainNotOffered(asked)
    const ruling = { ...settled, name: by.name.slice(0, limits.lineMaxChars), via: by.via }
    this.#noteDecided(approvalId, ruling)
    this.#resolve(approvalId, ruling)
    const isKept = this.#options.keepsRunAnswers !== false
    if ((isKept || enforced !== undefined) && ruling.scope === 'run') {
      if (enforced === undefined) this.#applyToCalls(request, ruling)
      this.#recording.set(approvalId, recorded.promise)
      void recorded.promise.then(() => this.#recording.delete(approvalId))
    }
    return { taken: true }
  }

  /**
   * As {@link answer}; an answer that was taken is in the journal, so it outlives this process.
   * @param ended resolves when the run has ended, or left this process
   */
  async answerDurably(
    approvalId: string,
    answer: ApprovalAnswer,
    by: Answerer,
    ended: Promise<unknown>,
  ): Promise<AnswerResult> {
    const recorded = this.#waiting.get(approvalId)?.recorded.promise
    const result = this.answer(approvalId, answer, by)
    if (!result.taken) return result
    const isRecorded = await Promise.race([recorded, ended.then(() => false)])
    return isRecorded === true ? result : unrecorded
  }

  /**
   * Revokes an answer for the run: it no longer decides, and calls ask again. What it has decided stays.
   * @returns resolves once that is journaled: false when no such answer applied
   */
  async revoke(approvalId: string, by: string): Promise<boolean> {
    if (this.#hasLeft || this.#closed !== undefined) return false
    const isCall = this.#runAnswers.revoke(approvalId)
    // Journaled after the answer: the last line about it counts. One about network access applies from then on.
    await this.#recording.get(approvalId)
    if (!isCall && !this.#runAnswers.revoke(approvalId)) return false
    this.#earlier.drop((earlier) => earlier.isNetwork && earlier.approvalId === approvalId)
    await this.#options.record({
      type: 'approval-revoke',
      approvalId,
      by: by.slice(0, limits.lineMaxChars).toWellFormed(),
    })
    return true
  }

  #noteDecided(approvalId: string, ruling: DecisionRecord): void {
    if (this.#decided.has(approvalId)) return
    this.#decided.set(approvalId, { ruling, at: Date.now() })
    const [oldest] = this.#decided.keys()
    if (this.#decided.size > decidedMax && oldest !== undefined) this.#decided.delete(oldest)
  }

  #explainGone(approvalId: string): AnswerResult {
    const decided = this.#decided.get(approvalId)
    return decided === undefined ? explainUnknown(approvalId) : explainDecided(approvalId, decided)
  }

  /** Applies the answer to all pending and later questions of the tool, or about the same command. */
  #applyToCalls(answered: ApprovalRequest, ruling: DecisionRecord): void {
    const { tool } = answered
    const command = this.#runAnswers.add(answered, ruling)
    // The next plan question is about another plan.
    const derived = decisionBy(answered.approvalId, ruling)
    for (const [id, { request, enforced, mustAsk, remembers }] of [...this.#waiting]) {
      if (request.tool !== tool || enforced !== undefined) continue
      // A yes to other questions does not answer one that requires a person.
      const isMeant =
        command === undefined
          ? !(mustAsk && ruling.decision === 'allow') &&
            matchRules(this.#options.rules, request) === undefined
          : remembers && commandOf(request) === command
      if (isMeant) this.#resolve(id, derived)
    }
  }

  /** No person can answer any more: denies pending questions, and later ones count as non-interactive. */
  detach(): void {
    this.#interactive = false
    for (const [id, { request, enforced }] of [...this.#waiting]) {
      if (isTimedWait(request)) continue
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
    const isOwn = ({ approvalId }: Earlier) => approvalId === request.approvalId
    return this.#earlier.take(request, isOwn, ({ onlyUnderItsId }) => onlyUnderItsId !== true)?.ruling
  }

  /** The decision without a person; undefined if one must be asked. */
  #rule(
    request: ApprovalRequest,
    enforced: HostQuestion | undefined,
    asking: AskOptions,
  ): DecisionRecord | undefined {
    if (this.#closed !== undefined) return this.#closed
    const { mode, rules, mayWait, now = Date.now } = this.#options
    if (isTimedWait(request)) return ruleWait(request, mayWait, now())
    const isUnattended = asking.isUnattended === true
    const scene = { mode, rules, interactive: this.#interactive && !isUnattended }
    if (enforced !== undefined) return ruleAccess(request, enforced, scene)
    const runAnswer = isUnattended ? undefined : this.#runAnswers.find(request)
    if (isUserQuestion(request)) return ruleQuestion(request, { ...scene, runAnswer, asked: this.#questions })
    return ruleCall(request, scene, runAnswer, asking)
  }

  #startWaiting(
    asked: AskedQuestion,
    { mustAsk = false, isUnseen = asked.enforced?.access.from === 'connection' }: AskOptions,
    signal: AbortSignal | undefined,
  ): Waiting {
    const entry = this.#waitFor(asked, mustAsk, isUnseen)
    entry.asker = Symbol('asker')
    this.#options.onWaiting?.(1, isUnseen)
    this.#listen(entry, signal)
    return entry
  }

  /** Without an asker yet. */
  #waitFor(asked: AskedQuestion, mustAsk: boolean, isUnseen: boolean): Waiting {
    const { request } = asked
    const { approvalId } = request
    const answered = Promise.withResolvers<DecisionRecord>()
    const recorded = Promise.withResolvers<boolean>()
    // Another agent of the run asks again what one before had withdrawn.
    this.#decided.delete(approvalId)
    const entry: Waiting = {
      ...asked,
      ...{ mustAsk, isUnseen, answered, recorded, asker: undefined, isJournaled: true },
    }
    this.#waiting.set(approvalId, entry)
    this.#awaitTime(entry)
    if (request.question !== undefined) this.#questions += 1
    return entry
  }

  #awaitTime({ request, answered }: Waiting): void {
    if (!isTimedWait(request)) return
    const over = new AbortController()
    void answered.promise.then(() => over.abort())
    const onTime = () => {
      if (!this.#hasLeft) this.#resolve(request.approvalId, timeHasCome)
    }
    whenTimeHasCome(request, onTime, over.signal)
  }

  /** Withdraws the question when its asker does, unless that has ended and the question waits on. */
  #listen(entry: Waiting, signal: AbortSignal | undefined): void {
    const { asker, request, answered } = entry
    const withdraw = () => {
      if (this.#parked === undefined && entry.asker === asker)
        this.#resolve(request.approvalId, withdrawn(signal?.reason))
    }
    signal?.addEventListener('abort', withdraw)
    void answered.promise.then(() => signal?.removeEventListener('abort', withdraw))
    if (signal?.aborted) withdraw()
  }

  #resolve(approvalId: string, ruling: DecisionRecord): void {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined) return
    this.#waiting.delete(approvalId)
    this.#isDecided = this.#parked !== undefined
    if (entry.asker !== undefined) this.#options.onWaiting?.(-1, entry.isUnseen)
    entry.answered.resolve(ruling)
  }
}

/** Whether a person answered for the rest of the run. */
function isForRun({ by, scope, earlierId }: DecisionRecord): boolean {
  return by === 'person' && scope === 'run' && earlierId === undefined
}

const askedAgain = 'another agent continues the run and asks again'

const sleeping: AnswerResult = {
  taken: false,
  reason: 'connection_lost',
  message: 'the run has just gone to sleep; answer again',
}
