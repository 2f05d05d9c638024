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
interface Entry {
  readonly request: ApprovalRequest
  readonly digest: string
  readonly answered: PromiseWithResolvers<Ruling>
  decision: Promise<ApprovalDecision> | undefined
}

const unattended: Ruling = {
  decision: 'deny',
  scope: 'once',
  by: 'mode',
  rule: 'nobody is there to ask; --approve all or a rule file would allow it',
  hint: 'nobody is there to approve this; go on without it and say so in your answer',
}

export class ApprovalQueue {
  readonly #options: ApprovalQueueOptions
  readonly #entries = new Map<string, Entry>()
  /** Answers of scope `run`, by tool. */
  readonly #standing = new Map<string, Ruling>()
  readonly #waiting = new Set<string>()
  #closed: Ruling | undefined
  #attended: boolean

  constructor(options: ApprovalQueueOptions) {
    this.#options = options
    this.#attended = options.attended
  }

  /** Ids of the questions that wait for a person, oldest first. */
  get pending(): string[] {
    return [...this.#waiting]
  }

  /**
   * The answer to a request. Asked again under the same id (after a lost session) it is the same question; asked under
   * the same id with other content it is denied, for the answer was given for something else.
   */
  async ask(request: ApprovalRequest): Promise<ApprovalDecision> {
    const digest = digestOf(request)
    const known = this.#entries.get(request.approvalId)
    if (known !== undefined && known.digest !== digest) {
      return { decision: 'deny', hint: 'this approval id was used before for another call' }
    }
    const entry = known ?? { request, digest, answered: Promise.withResolvers<Ruling>(), decision: undefined }
    this.#entries.set(request.approvalId, entry)
    entry.decision ??= this.#settle(entry)
    return entry.decision
  }

  /** A person's answer. False when the question is not open: unknown, or already answered. */
  answer(approvalId: string, answer: ApprovalAnswer): boolean {
    const entry = this.#entries.get(approvalId)
    if (entry === undefined || !this.#waiting.has(approvalId)) return false
    const hint = answer.hint === undefined ? {} : { hint: answer.hint }
    const ruling: Ruling = { decision: answer.decision, scope: answer.scope, by: 'person', ...hint }
    this.#resolve(approvalId, ruling)
    if (answer.scope === 'run') {
      const { tool } = entry.request
      this.#standing.set(tool, ruling)
      for (const id of this.pending) {
        const other = this.#entries.get(id)?.request
        if (other?.tool === tool && matchRules(this.#options.rules, other) === undefined)
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

  async #settle(entry: Entry): Promise<ApprovalDecision> {
    const { approvalId, runId: _, ...asked } = entry.request
    const { record } = this.#options
    const ruled = this.#rule(entry.request)
    // Waiting before it is shown: who sees the question can answer it.
    if (ruled === undefined) this.#startWaiting(approvalId)
    await record({
      type: 'approval-request',
      kind: 'cooperative',
      request: { approvalId, ...asked },
      digest: entry.digest,
    })
    const ruling = ruled ?? (await entry.answered.promise)
    await record({ type: 'approval-decision', approvalId, ...ruling })
    return ruling.hint === undefined
      ? { decision: ruling.decision }
      : { decision: ruling.decision, hint: ruling.hint }
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

  #startWaiting(approvalId: string): void {
    this.#waiting.add(approvalId)
    this.#options.onWaiting?.(1)
  }

  #resolve(approvalId: string, ruling: Ruling): void {
    if (this.#waiting.delete(approvalId)) this.#options.onWaiting?.(-1)
    this.#entries.get(approvalId)?.answered.resolve(ruling)
  }
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
