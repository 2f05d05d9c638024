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

export class ApprovalQueue {
  readonly #options: ApprovalQueueOptions
  readonly #entries = new Map<string, Entry>()
  /** Answers of scope `run`, by tool. */
  readonly #standing = new Map<string, Ruling>()
  readonly #waiting = new Set<string>()
  #closed: Ruling | undefined

  constructor(options: ApprovalQueueOptions) {
    this.#options = options
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
    this.#stopWaiting(approvalId)
    const hint = answer.hint === undefined ? {} : { hint: answer.hint }
    const ruling: Ruling = { decision: answer.decision, scope: answer.scope, by: 'person', ...hint }
    if (answer.scope === 'run') this.#standing.set(entry.request.tool, ruling)
    entry.answered.resolve(ruling)
    return true
  }

  /** Denies what waits and all that is still asked, as the run is being cancelled or has ended. */
  close(): void {
    this.#closed = { decision: 'deny', scope: 'run', by: 'cancel' }
    for (const id of this.pending) {
      this.#stopWaiting(id)
      this.#entries.get(id)?.answered.resolve(this.#closed)
    }
  }

  async #settle(entry: Entry): Promise<ApprovalDecision> {
    const { approvalId, runId: _, ...asked } = entry.request
    const { record } = this.#options
    await record({
      type: 'approval-request',
      kind: 'cooperative',
      request: { approvalId, ...asked },
      digest: entry.digest,
    })
    const ruling = this.#rule(entry.request) ?? (await this.#person(entry))
    await record({ type: 'approval-decision', approvalId, ...ruling })
    return ruling.hint === undefined
      ? { decision: ruling.decision }
      : { decision: ruling.decision, hint: ruling.hint }
  }

  /** What needs no person; undefined when one must be asked. */
  #rule(request: ApprovalRequest): Ruling | undefined {
    if (this.#closed !== undefined) return this.#closed
    const { mode, rules, attended } = this.#options
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
    if (attended) return undefined
    return {
      decision: 'deny',
      scope: 'once',
      by: 'mode',
      rule: 'nobody is there to ask; --approve all or a rule file would allow it',
      hint: 'nobody is there to approve this; go on without it and say so in your answer',
    }
  }

  async #person(entry: Entry): Promise<Ruling> {
    this.#waiting.add(entry.request.approvalId)
    this.#options.onWaiting?.(1)
    return entry.answered.promise
  }

  #stopWaiting(approvalId: string): void {
    if (this.#waiting.delete(approvalId)) this.#options.onWaiting?.(-1)
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
