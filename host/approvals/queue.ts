/**
 * The one queue of approvals of a run. A question is journaled before it is shown and its answer before it takes
 * effect; rules and modes answer first, a person answers the rest, the first answer wins.
 */
import { createHash } from 'node:crypto'
import type {
  AccessQuestion,
  ApprovalDecision,
  ApprovalRequest,
  ApprovalRule,
  ApprovalScope,
} from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { planOf, planTool, readPlan } from './plan-question.ts'
import { type Call, matchRules } from './rules.ts'
import { byRule, modeNone, noPlan, type Ruling, unattended, withdrawn } from './rulings.ts'

/** What answers when no rule does: a person, always yes, always no. */
export type ApprovalMode = 'ask' | 'all' | 'none'

/** An answer by a person. */
export interface ApprovalAnswer {
  readonly decision: 'allow' | 'deny'
  /** `run`: the same answer for every later call of this tool in this run; `always` for a way out alone. */
  readonly scope: ApprovalScope
  /** Of a way out: one that the question offers; absent: its first. */
  readonly reach?: AccessReach
  /** For a denial: what the agent should do instead. */
  readonly hint?: string
  /** To a question about a plan, with a yes: what is to be carried out in its place. */
  readonly plan?: Plan
}

export interface ApprovalQueueOptions {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  /** Whether anybody is there to ask; if not, what asks is denied. */
  readonly attended: boolean
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

/** What makes a question the host's own: its words, what answers it, and what an answer brings about. */
export interface Enforced {
  readonly access: AccessQuestion
  /** What rules that name the tool look at. */
  readonly call: Call
  /** The answer that is there without anybody being asked; also looked for while it waits. */
  known(): Ruling | undefined
  /** The answer where nobody is there. */
  readonly unattended: Ruling
  /** Makes the answer hold, after it was journaled. @returns what the agent is told */
  carryOut(ruling: Ruling): Promise<ApprovalDecision>
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
  readonly enforced: Enforced | undefined
  readonly answered: PromiseWithResolvers<Ruling>
}

/** Answers that are kept for a guest that asks again. */
const keptAnswers = 1_024

export class ApprovalQueue {
  readonly #options: ApprovalQueueOptions
  /** By approval id, oldest first. */
  readonly #asked = new Map<string, Asked>()
  readonly #waiting = new Map<string, Waiting>()
  /** Answers of scope `run`, by tool. */
  readonly #standing = new Map<string, Ruling>()
  #closed: Ruling | undefined
  #attended: boolean

  constructor(options: ApprovalQueueOptions) {
    this.#options = options
    this.#attended = options.attended
  }

  /** Ids of the questions that wait for a person, oldest first. */
  get pending(): string[] {
    return [...this.#waiting.keys()]
  }

  /** Resolves when the question does not wait for a person any more, whoever or whatever answered it. */
  async settled(approvalId: string): Promise<void> {
    await this.#waiting.get(approvalId)?.answered.promise
  }

  /**
   * The answer to a request. Asked again under the same id (after a lost session) it is the same question; asked under
   * the same id with other content it is denied, for the answer was given for something else. Answers are remembered as
   * far back as a guest can have to ask again.
   * @param signal withdraws the question; its reason, if it is a text, says why
   * @param enforced for a question of the host's own
   */
  async ask(request: ApprovalRequest, signal?: AbortSignal, enforced?: Enforced): Promise<ApprovalDecision> {
    const digest = digestOf(request)
    const known = this.#asked.get(request.approvalId)
    if (known !== undefined && known.digest !== digest) {
      return { decision: 'deny', hint: 'this approval id was used before for another call' }
    }
    if (known !== undefined) return known.decision
    this.#forgetOldest()
    const asked: Asked = {
      digest,
      decision: this.#settle(request, digest, signal, enforced),
      isSettled: false,
    }
    this.#asked.set(request.approvalId, asked)
    const settle = () => {
      asked.isSettled = true
    }
    asked.decision.then(settle, settle)
    return asked.decision
  }

  /**
   * A person's answer. False when the question is not open (unknown, or already answered), or when it does not offer
   * such an answer: a tool's question has no `always` and no reach, one about a way out only the reaches it names. A plan
   * answers a question about one alone, with a yes, and changes nothing that has begun.
   */
  answer(approvalId: string, answer: ApprovalAnswer): boolean {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined) return false
    const plan = answer.plan === undefined ? undefined : this.#takePlan(entry, answer)
    if (plan === null) return false
    const { decision, scope, hint } = answer
    const reach = answer.reach ?? entry.enforced?.access.offers[0]?.reach
    if (
      entry.enforced === undefined
        ? scope === 'always' || reach !== undefined
        : !offers(entry.enforced, reach)
    )
      return false
    const ruling: Ruling = {
      decision,
      scope,
      ...(reach === undefined ? {} : { reach }),
      by: 'person',
      ...(hint === undefined ? {} : { hint }),
    }
    this.#resolve(approvalId, plan === undefined ? ruling : { ...ruling, plan })
    // The next question is about another plan.
    if (entry.enforced === undefined && scope === 'run') this.#stand(entry.request.tool, ruling)
    return true
  }

  /** A person's plan in its one form; null where the question does not take it. */
  #takePlan({ request }: Waiting, { decision, plan }: ApprovalAnswer): Plan | null {
    const read = readPlan(plan)
    if (planOf(request) === undefined || decision !== 'allow' || !read.ok) return null
    const problems = this.#options.findPlanProblems?.(read.value) ?? []
    return problems.length === 0 ? read.value : null
  }

  /** The answer to every later question of the tool, and to those that wait. */
  #stand(tool: string, ruling: Ruling): void {
    this.#standing.set(tool, ruling)
    for (const [id, { request, enforced }] of [...this.#waiting]) {
      const isMeant = request.tool === tool && enforced === undefined
      if (isMeant && matchRules(this.#options.rules, request) === undefined) this.#resolve(id, ruling)
    }
  }

  /** Nobody will answer any more: what waits is denied, and what comes is treated as unattended. */
  leave(): void {
    this.#attended = false
    for (const [id, { enforced }] of [...this.#waiting]) this.#resolve(id, enforced?.unattended ?? unattended)
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
    enforced: Enforced | undefined,
  ): Promise<ApprovalDecision> {
    const { approvalId, runId: _, ...asked } = request
    const { record } = this.#options
    const ruled =
      this.#closed ?? (enforced === undefined ? this.#rule(request) : this.#ruleAccess(request, enforced))
    // Waiting before it is shown: who sees the question can answer it.
    const answered = ruled === undefined ? this.#startWaiting(request, signal, enforced) : undefined
    await record({
      type: 'approval-request',
      kind: enforced === undefined ? 'cooperative' : 'enforced',
      request: { approvalId, ...asked },
      digest,
      ...(enforced === undefined ? {} : { access: enforced.access }),
    })
    const ruling = ruled ?? (await answered) ?? unattended
    await record({ type: 'approval-decision', approvalId, ...ruling })
    if (enforced !== undefined) return await this.#carryOut(enforced, ruling)
    const { decision, hint, plan } = ruling
    const allowed = decision === 'allow' ? (plan ?? planOf(request)) : undefined
    if (allowed !== undefined) this.#options.onPlanAllowed?.(allowed)
    // To a plan, a word with the denial asks for another one; nobody is there who would.
    const isWord = hint !== undefined && !(ruling.by === 'mode' && request.tool === planTool)
    return {
      decision,
      ...(isWord ? { hint } : {}),
      ...(plan === undefined ? {} : { plan }),
    }
  }

  async #carryOut(enforced: Enforced, ruling: Ruling): Promise<ApprovalDecision> {
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
  #rule(request: ApprovalRequest): Ruling | undefined {
    const { mode, rules } = this.#options
    // A yes to it would stand for every plan that comes.
    if (request.tool === planTool && planOf(request) === undefined) return noPlan
    const rule = matchRules(rules, request)
    if (rule !== undefined && rule.effect !== 'ask') {
      return byRule(rule, rule.effect)
    }
    const standing = rule === undefined ? this.#standing.get(request.tool) : undefined
    if (standing !== undefined) return standing
    if (mode === 'none') return modeNone
    if (mode === 'all' && rule === undefined)
      return { decision: 'allow', scope: 'run', by: 'mode', rule: '--approve all' }
    return this.#attended ? undefined : unattended
  }

  /** The same for a way out, which only a rule that names its tool allows: what went out cannot be taken back. */
  #ruleAccess({ tool }: ApprovalRequest, enforced: Enforced): Ruling | undefined {
    const known = enforced.known()
    if (known !== undefined) return known
    const { mode, rules } = this.#options
    const named = rules.filter((rule) => rule.effect !== 'allow' || rule.tool === tool)
    const rule = matchRules(named, enforced.call)
    if (rule?.effect === 'deny') return byRule(rule, 'deny')
    // A rule about the whole address knows no more of its host.
    const reach = rule?.argument === undefined || rule.argument === 'host' ? 'host' : 'path'
    if (rule?.effect === 'allow' && offers(enforced, reach))
      return { ...byRule(rule, 'allow'), scope: 'run', reach }
    if (mode === 'none') return modeNone
    return this.#attended ? undefined : enforced.unattended
  }

  #startWaiting(
    request: ApprovalRequest,
    signal: AbortSignal | undefined,
    enforced: Enforced | undefined,
  ): Promise<Ruling> {
    const { approvalId } = request
    const answered = Promise.withResolvers<Ruling>()
    this.#waiting.set(approvalId, { request, enforced, answered })
    this.#options.onWaiting?.(1, isUnseen(enforced))
    const withdraw = () => this.#resolve(approvalId, withdrawn(signal?.reason))
    signal?.addEventListener('abort', withdraw, { once: true })
    void answered.promise.then(() => signal?.removeEventListener('abort', withdraw))
    if (signal?.aborted) withdraw()
    return answered.promise
  }

  #resolve(approvalId: string, ruling: Ruling): void {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined) return
    this.#waiting.delete(approvalId)
    this.#options.onWaiting?.(-1, isUnseen(entry.enforced))
    entry.answered.resolve(ruling)
  }
}

function isUnseen(enforced: Enforced | undefined): boolean {
  return enforced?.access.from === 'connection'
}

function offers({ access }: Enforced, reach: AccessReach | undefined): boolean {
  return access.offers.some((offer) => offer.reach === reach)
}

function digestOf(request: ApprovalRequest): string {
  const { agentPath, tool, arguments: given } = request
  return createHash('sha256')
    .update(JSON.stringify([agentPath, tool, given]))
    .digest('hex')
}
