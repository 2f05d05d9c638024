/**
 * The one queue of approvals of a run. A question is journaled before it is shown and its answer before it takes
 * effect; rules and modes answer first, a person answers the rest, the first answer wins.
 */
import { createHash } from 'node:crypto'
import type {
  ApprovalDecision,
  ApprovalRecord,
  ApprovalRequest,
  ApprovalRule,
  ApprovalScope,
} from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { matchRules } from './rules.ts'

/** What answers when no rule does: a person, always yes, always no. */
export type ApprovalMode = 'ask' | 'all' | 'none'

/** An answer by a person. */
export interface ApprovalAnswer {
  readonly decision: 'allow' | 'deny'
  /** `run`: the same answer for every later call of this tool in this run. */
  readonly scope: ApprovalScope
  /** For a denial: what the agent should do instead. */
  readonly hint?: string
}

export interface ApprovalQueueOptions {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  /** Whether anybody is there to ask; if not, what asks is denied. */
  readonly attended: boolean
  /** Journals an event; the queue goes on when it is kept. */
  readonly record: (event: HostEvent) => Promise<unknown>
  /** Called when a question starts (+1) or stops (-1) to wait for a person: deadlines stand still meanwhile. */
  readonly onWaiting?: (waiting: number) => void
}

type Ruling = Omit<ApprovalRecord, 'approvalId'>
/** A question that was asked; what it was about is in the journal. */
interface Asked {
  readonly digest: string
  readonly decision: Promise<ApprovalDecision>
  isSettled: boolean
}

/** A question that a person has before them. */
interface Waiting {
  readonly request: ApprovalRequest
  readonly answered: PromiseWithResolvers<Ruling>
}

/** Answers that are kept for a guest that asks again. */
const keptAnswers = 1_024

const unattended: Ruling = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: 'nobody is there to ask; --approve all or a rule file would allow it',
  hint: 'nobody is there to approve this; go on without it and say so in your answer',
}

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
   */
  async ask(request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalDecision> {
    const digest = digestOf(request)
    const known = this.#asked.get(request.approvalId)
    if (known !== undefined && known.digest !== digest) {
      return { decision: 'deny', hint: 'this approval id was used before for another call' }
    }
    if (known !== undefined) return known.decision
    this.#forgetOldest()
    const asked: Asked = { digest, decision: this.#settle(request, digest, signal), isSettled: false }
    this.#asked.set(request.approvalId, asked)
    const settle = () => {
      asked.isSettled = true
    }
    asked.decision.then(settle, settle)
    return asked.decision
  }

  /** A person's answer. False when the question is not open: unknown, or already answered. */
  answer(approvalId: string, answer: ApprovalAnswer): boolean {
    const entry = this.#waiting.get(approvalId)
    if (entry === undefined) return false
    const hint = answer.hint === undefined ? {} : { hint: answer.hint }
    const ruling: Ruling = { decision: answer.decision, scope: answer.scope, by: 'person', ...hint }
    this.#resolve(approvalId, ruling)
    if (answer.scope === 'run') {
      const { tool } = entry.request
      this.#standing.set(tool, ruling)
      for (const [id, { request }] of [...this.#waiting]) {
        if (request.tool === tool && matchRules(this.#options.rules, request) === undefined)
          this.#resolve(id, ruling)
      }
    }
    return true
  }

  /** Nobody will answer any more: what waits is denied, and what comes is treated as unattended. */
  leave(): void {
    this.#attended = false
    for (const id of this.pending) this.#resolve(id, unattended)
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
  ): Promise<ApprovalDecision> {
    const { approvalId, runId: _, ...asked } = request
    const { record } = this.#options
    const ruled = this.#rule(request)
    // Waiting before it is shown: who sees the question can answer it.
    const answered = ruled === undefined ? this.#startWaiting(request, signal) : undefined
    await record({
      type: 'approval-request',
      kind: 'cooperative',
      request: { approvalId, ...asked },
      digest,
    })
    const ruling = ruled ?? (await answered) ?? unattended
    await record({ type: 'approval-decision', approvalId, ...ruling })
    return ruling.hint === undefined
      ? { decision: ruling.decision }
      : { decision: ruling.decision, hint: ruling.hint }
  }

  #forgetOldest(): void {
    for (const [id, { isSettled }] of this.#asked) {
      if (this.#asked.size < keptAnswers) return
      if (isSettled) this.#asked.delete(id)
    }
  }

  /** What needs no person; undefined when one must be asked. */
  #rule(request: ApprovalRequest): Ruling | undefined {
    if (this.#closed !== undefined) return this.#closed
    const { mode, rules } = this.#options
    const rule = matchRules(rules, request)
    if (rule !== undefined && rule.effect !== 'ask') {
      const because = rule.reason === undefined ? {} : { hint: rule.reason }
      return {
        decision: rule.effect,
        scope: 'once',
        by: 'rule',
        rule: describeRule(rule),
        ...(rule.effect === 'deny' ? because : {}),
      }
    }
    const standing = rule === undefined ? this.#standing.get(request.tool) : undefined
    if (standing !== undefined) return standing
    if (mode === 'none') return { decision: 'deny', scope: 'run', by: 'mode', rule: '--approve none' }
    if (mode === 'all' && rule === undefined)
      return { decision: 'allow', scope: 'run', by: 'mode', rule: '--approve all' }
    return this.#attended ? undefined : unattended
  }

  #startWaiting(request: ApprovalRequest, signal: AbortSignal | undefined): Promise<Ruling> {
    const { approvalId } = request
    const answered = Promise.withResolvers<Ruling>()
    this.#waiting.set(approvalId, { request, answered })
    this.#options.onWaiting?.(1)
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
    this.#options.onWaiting?.(-1)
    entry.answered.resolve(ruling)
  }
}

function withdrawn(reason: unknown): Ruling {
  const rule = typeof reason === 'string' ? reason : 'the agent does not ask any more'
  return { decision: 'deny', scope: 'once', by: 'agent', rule: rule.slice(0, limits.lineMaxChars) }
}

function digestOf(request: ApprovalRequest): string {
  const { agentPath, tool, arguments: given } = request
  return createHash('sha256')
    .update(JSON.stringify([agentPath, tool, given]))
    .digest('hex')
}

function describeRule(rule: ApprovalRule): string {
  const pattern =
    rule.pattern === undefined ? '' : ` ${rule.argument ?? ''}${rule.argument ? '=' : ''}${rule.pattern}`
  return `${rule.effect} ${rule.tool}${pattern}`.slice(0, 500)
}
