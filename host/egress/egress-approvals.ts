/**
 * Asks for network access: for the agent's `request_access`, and for connections that a rule asks about. Words the
 * question itself and stores the answer. Refuses without asking what a rule denies.
 */
import { randomBytes } from 'node:crypto'
import type { AccessQuestion, ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { AccessRequest } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { DecisionRecord } from '../approvals/decisions.ts'
import type { ApprovalQueue, HostQuestion } from '../approvals/queue.ts'
import { parseJson } from '../files/json.ts'
import type { Target } from '../net/target.ts'
import { parseTarget, targetUrl } from '../net/target.ts'
import { describe, offersFor, rulesOf } from './access-options.ts'
import { RunGrants } from './grants.ts'
import type { PersistentGrants } from './persistent-grants.ts'
import { type Decision, decide, type EgressPolicy } from './policy.ts'
import type { PolicyRule } from './rules.ts'
import type { AccessAnswers } from './run-egress.ts'

/** Name of the tool, and of all access questions in approval rules. */
export const accessTool = 'request_access'

interface EgressApprovalsOptions {
  readonly runId: string
  readonly policy: EgressPolicy
  readonly approvals: Pick<ApprovalQueue, 'ask' | 'networkAnswers'>
  readonly lasting: PersistentGrants
  /** How long a question stays open after the program gave up; programs often retry. Default 60 s. */
  readonly lingerMs?: number
}

/** An open question, shared by all connections to the same place. */
interface OpenQuestion {
  readonly answer: Promise<ApprovalDecision>
  readonly withdrawal: AbortController
  waiters: number
  lingering: NodeJS.Timeout | undefined
}

/** Maximum open questions about connections; a guest can try any number of places. */
const openMaxQuestions = 32
/** Maximum questions about connections per run, and the same number by the agent. */
const runMaxQuestions = 256

export class EgressApprovals implements AccessAnswers {
  readonly #options: EgressApprovalsOptions
  readonly #grants: RunGrants
  /** Key: scheme, host and port. */
  readonly #open = new Map<string, OpenQuestion>()
  /** Refused places with the message, since programs retry by themselves. */
  readonly #refused = new Map<string, string>()
  #asked = 0
  #askedByAgent = 0

  constructor(options: EgressApprovalsOptions) {
    this.#options = options
    const { approvals, lasting, runId } = options
    this.#grants = new RunGrants(lasting, runId, () => approvals.networkAnswers)
  }

  /** Current answers, as allow rules. */
  granted(): readonly PolicyRule[] {
    // If the grants cannot be read, none is in effect.
    this.#grants.refresh()
    return this.#grants.allowing()
  }

  /** The answer allowed a connection; an answer for one use is consumed. */
  used(rule: PolicyRule): void {
    this.#grants.use(rule)
  }

  /** Answers the agent's `request_access`; `hint` is for the agent, even with a yes. */
  async decide(request: ApprovalRequest, signal?: AbortSignal): Promise<ApprovalDecision> {
    const asked = AccessRequest.safeParse(parseJson(request.arguments))
    if (!asked.success) return { decision: 'deny', hint: 'expected a url and a reason' }
    const target = parseTarget(asked.data.url, 'GET')
    if (!target.ok) return { decision: 'deny', hint: target.error }
    const problem = this.#grants.refresh()
    if (problem !== null) return { decision: 'deny', hint: problem }
    if (this.#askedByAgent >= runMaxQuestions)
      return { decision: 'deny', hint: `this run asked ${runMaxQuestions} questions like this already` }
    this.#askedByAgent += 1
    const enforced = this.#enforced('agent', target.value, () => this.#knownForAgent(target.value))
    // Drawn: under an id of the agent a person may have read another question.
    const approvalId = `access-${randomBytes(8).toString('hex')}`
    const callId = request.callId === request.approvalId ? approvalId : request.callId
    return await this.#options.approvals.ask({ ...request, approvalId, callId }, signal, enforced)
  }

  /**
   * Asks about a target of a connection attempt. Attempts for one place share a question; an answer for one use allows
   * one of them.
   * @returns the words of the grant, or why access is denied
   */
  async askFor(target: Target, _decision: Decision, signal: AbortSignal): Promise<Result<string, string>> {
    const refusal = (why: string): Result<string, string> => ({ ok: false, error: why })
    for (;;) {
      const problem = this.#grants.refresh()
      if (problem !== null) return refusal(problem)
      const decision = decide(this.#options.policy, target, this.#grants.allowing())
      if (decision.effect === 'allow') {
        if (decision.by !== null) this.#grants.use(decision.by)
        return { ok: true, value: decision.rule }
      }
      const judged = this.#judge(target)
      if (judged.effect === 'deny') return refusal(judged.rule)
      const why = await this.#askAbout(target, signal)
      if (why !== null) return refusal(why)
    }
  }

  /** Null after a yes, because another connection may already have consumed it. */
  async #askAbout(target: Target, signal: AbortSignal): Promise<string | null> {
    const place = `${target.scheme}://${target.host}:${target.port}`
    const known = this.#refused.get(place)
    if (known !== undefined) return known
    const open = this.#open.get(place) ?? this.#openQuestion(place, target)
    if (typeof open === 'string') return open
    open.waiters += 1
    clearTimeout(open.lingering)
    const gone = Promise.withResolvers<ApprovalDecision>()
    const leave = () => gone.resolve({ decision: 'deny', hint: 'the program that asked has gone' })
    signal.addEventListener('abort', leave, { once: true })
    if (signal.aborted) leave()
    try {
      const { decision, hint } = await Promise.race([open.answer, gone.promise])
      return decision === 'allow' ? null : (hint ?? 'it was not allowed')
    } finally {
      signal.removeEventListener('abort', leave)
      open.waiters -= 1
      if (open.waiters === 0 && this.#open.get(place) === open) {
        const withdraw = () => open.withdrawal.abort('the program that asked has given up')
        open.lingering = setTimeout(withdraw, this.#options.lingerMs ?? 60_000)
        open.lingering.unref()
      }
    }
  }

  /** The open question of a place, or why there is none. */
  #openQuestion(place: string, target: Target): OpenQuestion | string {
    if (this.#open.size >= openMaxQuestions) return `${openMaxQuestions} questions like this wait already`
    if (this.#asked >= runMaxQuestions) return `this run asked ${runMaxQuestions} questions like this already`
    this.#asked += 1
    const approvalId = `access-${randomBytes(8).toString('hex')}`
    const request: ApprovalRequest = {
      approvalId,
      runId: this.#options.runId,
      agentPath: 'root',
      stepId: 'network',
      callId: approvalId,
      tool: accessTool,
      arguments: JSON.stringify({ url: targetUrl(target) }),
      preview: '',
    }
    const enforced = this.#enforced('connection', target, () => knownDecision(this.#judge(target)))
    const apply = async (ruling: DecisionRecord): Promise<ApprovalDecision> => {
      const decision = await enforced.apply(ruling)
      // An answer for more than once is kept elsewhere, where it can be revoked.
      const isLasting = (ruling.by === 'person' && ruling.scope === 'once') || ruling.by === 'mode'
      if (decision.decision === 'deny' && isLasting)
        this.#refused.set(place, decision.hint ?? 'it was not allowed')
      return decision
    }
    const withdrawal = new AbortController()
    const answer = this.#options.approvals.ask(request, withdrawal.signal, { ...enforced, apply })
    const question: OpenQuestion = { answer, withdrawal, waiters: 0, lingering: undefined }
    this.#open.set(place, question)
    const close = () => {
      clearTimeout(question.lingering)
      this.#open.delete(place)
    }
    answer.then(close, close)
    return question
  }

  #enforced(from: AccessQuestion['from'], target: Target, known: HostQuestion['known']): HostQuestion {
    const { scheme, host, port } = target
    const address = targetUrl(target)
    const { effect, rule } = this.#judge(target)
    const offers = offersFor(this.#options.policy, target)
    return {
      access: {
        from,
        address,
        because: (effect === 'allow' ? `for requests alone there is: ${rule}` : rule).slice(
          0,
          limits.lineMaxChars,
        ),
        // If requests are already allowed, adding the path changes nothing.
        offers: effect === 'allow' ? offers.filter(({ reach }) => reach !== 'path') : offers,
      },
      call: { tool: accessTool, arguments: JSON.stringify({ host, port, scheme, url: address }) },
      known,
      unattended: unattendedFor(target),
      apply: (ruling) => this.#apply(ruling, target, from),
    }
  }

  /** A yes helps the agent only if requests or tunnels are not allowed yet and no rule denies them. */
  #knownForAgent(target: Target): DecisionRecord | undefined {
    const request = this.#judge(target)
    if (request.effect !== 'allow' || target.scheme === 'http') return knownDecision(request)
    const tunnel = this.#judge({ ...target, method: null, path: null })
    return tunnel.effect === 'allow' || !tunnel.canAsk ? knownDecision(request) : undefined
  }

  async #apply(
    ruling: DecisionRecord,
    target: Target,
    from: AccessQuestion['from'],
  ): Promise<ApprovalDecision> {
    const { decision, scope, hint } = ruling
    const reach = ruling.reach === 'command' ? undefined : ruling.reach
    // The queue holds a person's answer for the run.
    const isHeld = ruling.by === 'person' && scope === 'run'
    if (decision === 'deny') {
      if (ruling.by === 'person' && scope === 'always')
        await this.#grants.add(rulesOf('deny', reach ?? 'host', target), scope)
      // The agent takes a hint for the user's own words.
      const words = hint ?? (from === 'agent' && ruling.by === 'person' ? undefined : refusalWords(ruling))
      return { decision, ...(words === undefined ? {} : { hint: words }) }
    }
    if (reach === undefined)
      return { decision, hint: `already allowed by the rule “${ruling.rule}”. If it fails, read its error.` }
    const problem = isHeld ? null : await this.#grants.add(rulesOf('allow', reach, target), scope)
    const how = scope === 'once' ? 'the next of them and no more' : scope === 'run' ? 'in this run' : 'always'
    const but = problem === null ? '' : ` (${problem})`
    return {
      decision,
      hint: `allowed: ${describe(reach, target)}, ${how}${but}. Try again what was refused.`,
    }
  }

  /** Judges by rules and by answers for more than one use. */
  #judge(target: Target): Decision {
    const decision = decide(this.#options.policy, target, this.#grants.reusable())
    const no = decision.effect !== 'allow' && decision.canAsk ? this.#grants.refusing(target) : undefined
    return no === undefined ? decision : { effect: 'deny', rule: no.text, by: no, canAsk: false }
  }
}

/** The decision by rules and earlier answers; undefined if a person must be asked. */
function knownDecision({ effect, rule, canAsk }: Decision): DecisionRecord | undefined {
  if (effect !== 'allow' && canAsk) return undefined
  const decision = effect === 'allow' ? 'allow' : 'deny'
  return { decision, scope: 'once', by: 'rule', rule: rule.slice(0, limits.lineMaxChars) }
}

function refusalWords({ by, rule = '' }: DecisionRecord): string {
  if (by === 'person') return 'the user denied it'
  if (by === 'rule') return `the rule “${rule}” denies it, and it cannot be allowed in this run`
  if (by === 'cancel') return 'the run is ending'
  return rule === '' ? 'no user is available to ask' : rule
}

/** Without a person: names the setting that would allow it. */
function unattendedFor({ scheme, host, port }: Target): DecisionRecord {
  const isPlain = scheme === 'https' && port === 443
  const rest = isPlain ? '' : `, schemes = ["${scheme}"], ports = [${port}]`
  const flag = isPlain ? `a rule for ${host} (option egress.rules), or ` : ''
  return {
    decision: 'deny',
    scope: 'once',
    by: 'mode',
    rule: `no user is available; to allow it, use ${flag}{ effect = "allow", host = "${host}"${rest} } in egress.rules of the configuration`,
    hint: 'no user is available to allow it; continue without it and say so in your answer',
  }
}
