/**
 * The egress of one run: judges by policy and grants, asks when a rule says so, connects to permitted targets, and
 * journals denials and connections. Serves no request itself.
 */
import type { Duplex } from 'node:stream'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { EgressRecord, EgressStart } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type GatewayErrorCode, gatewayError, type WireError } from '../net/gateway-error.ts'
import type { Target } from '../net/target.ts'
import { describeTarget } from '../net/target.ts'
import type { Connect, ConnectFailure } from './connect.ts'
import type { Egress, Permit } from './egress.ts'
import { type Decision, decide, type EgressPolicy, explainRefusal, judgeResolved } from './policy.ts'
import type { PolicyRule } from './rules.ts'

/** A person's answers, and the way to ask. */
export interface AccessAnswers {
  /** Current answers, as allow rules. */
  granted(): readonly PolicyRule[]
  /** The answer allowed a connection; an answer for one use is consumed. */
  used(rule: PolicyRule): void
  /**
   * Asks about a target because of `decision`; attempts for one place share a question.
   * @returns the grant in words, or the reason against it
   */
  askFor(target: Target, decision: Decision, signal: AbortSignal): Promise<Result<string, string>>
  /** Answers the agent's own question. */
  decide(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision>
}

interface RunEgressOptions {
  readonly policy: EgressPolicy
  readonly access: AccessAnswers
  readonly connect: Connect
  /** Resolves with whether the event is in the journal; never rejects. */
  readonly note: (event: HostEvent) => Promise<boolean>
}

/** Maximum journaled denials of one run; a guest can cause any number. */
const deniedMaxEvents = 256
/** Maximum permitted connections of one run: each is an event of the journal. */
const permitsMax = 10_000

export class RunEgress implements Egress {
  readonly #options: RunEgressOptions
  readonly #permits = new WeakSet<Permit>()
  #permitted = 0
  #denied = 0

  constructor(options: RunEgressOptions) {
    this.#options = options
  }

  async admit(target: Target, signal: AbortSignal): Promise<Result<Permit, WireError>> {
    const { policy, access } = this.#options
    const decision = decide(policy, target, access.granted())
    if (decision.effect === 'deny')
      return this.#deny(target, decision.rule, explainRefusal(policy, target, decision))
    if (this.#permitted >= permitsMax) {
      const rule = `a run may go out ${permitsMax} times`
      return this.#deny(target, rule, `refused: ${describeTarget(target)}: ${rule}. Do without it.`)
    }
    if (decision.effect === 'allow') {
      if (decision.by !== null) access.used(decision.by)
      return this.#permit(target, decision.rule)
    }
    const asked = await access.askFor(target, decision, signal)
    if (asked.ok) return this.#permit(target, asked.value)
    return this.#deny(
      target,
      asked.error,
      `refused: ${describeTarget(target)}: ${asked.error}. Do without it.`,
    )
  }

  async connect(permit: Permit, signal: AbortSignal): Promise<Result<Duplex, WireError>> {
    if (!this.#permits.has(permit)) throw new TypeError('the permit is not of this run')
    const { policy, connect } = this.#options
    const { target } = permit
    const judge = (address: string, inside: string | null): string | null =>
      judgeResolved(policy, target, address, inside)
    const connected = await connect(target, judge, signal)
    if (connected.ok) return connected
    const { kind, message } = connected.error
    if (kind !== 'refused') return { ok: false, error: gatewayError(codes[kind], message) }
    return this.#deny(target, message, `refused: ${describeTarget(target)}: ${message}. Do without it.`)
  }

  ask(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision> {
    return this.#options.access.decide(request, signal)
  }

  async start(kind: EgressStart['kind'], permit: Permit): Promise<Result<null, WireError>> {
    const [target, rule] = [line(describeTarget(permit.target)), line(permit.rule)]
    const isWritten = await this.#options.note({ type: 'egress-start', kind, target, rule })
    if (isWritten) return { ok: true, value: null }
    return {
      ok: false,
      error: gatewayError('closed', 'Nothing was sent: the journal of the run could not be written.'),
    }
  }

  record(record: EgressRecord): void {
    const { target, rule, error } = record
    void this.#options.note({
      type: 'egress-end',
      ...record,
      target: line(target),
      rule: line(rule),
      ...(error === undefined ? {} : { error: line(error) }),
    })
  }

  #permit(target: Target, rule: string): Result<Permit, WireError> {
    const permit: Permit = { target, rule }
    this.#permitted += 1
    this.#permits.add(permit)
    return { ok: true, value: permit }
  }

  #deny(target: Target, rule: string, message: string): { ok: false; error: WireError } {
    this.#denied += 1
    const reason = this.#denied === deniedMaxEvents ? `${rule}; further refusals are not listed` : rule
    if (this.#denied <= deniedMaxEvents)
      void this.#options.note({
        type: 'egress-denied',
        target: line(describeTarget(target)),
        reason: line(reason),
      })
    return { ok: false, error: gatewayError('egress_denied', message) }
  }
}

const codes: Readonly<Record<Exclude<ConnectFailure['kind'], 'refused'>, GatewayErrorCode>> = {
  unreachable: 'upstream_unreachable',
  timeout: 'upstream_timeout',
  cancelled: 'closed',
}

/** Shortens text to a journal line. */
function line(text: string): string {
  const whole = text.toWellFormed()
  return whole.length <= limits.lineMaxChars
    ? whole
    : `${whole.slice(0, limits.lineMaxChars - 1).toWellFormed()}…`
}
