/**
 * The one decision about egress: a pure function of rules and target. Deny overrides ask, ask overrides allow; a
 * person's grant answers only an ask. Targets without a rule are denied, or asked about if configured.
 */

import { hostInside } from '#specs/node/web/addresses.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Target } from '../net/target.ts'
import { describeTarget, targetUrl } from '../net/target.ts'
import { isAbout, isHiddenByTunnel, orderRules, type PolicyRule, readEgressRules } from './rules.ts'

/** Maximum length of a target's part in a message, in characters. */
const shownMaxChars = 300

/** The rules of one run. */
export interface EgressPolicy {
  /** Strongest first. */
  readonly rules: readonly PolicyRule[]
  /** Decision for targets without a rule. */
  readonly otherwise: 'deny' | 'ask'
  /** Targets that none of these is about are denied. Absent: there is no such bound. */
  readonly within?: readonly PolicyRule[]
}

export interface Decision {
  readonly effect: EgressRule['effect']
  /** The deciding rule, in words. */
  readonly rule: string
  /** Null if no rule matches the target. */
  readonly by: PolicyRule | null
  /** Whether a person may still allow it; false for denied targets and non-public addresses. */
  readonly canAsk: boolean
}

interface PolicyInput {
  readonly configuration: readonly EgressRule[]
  /** Rules of this run only. */
  readonly run?: readonly EgressRule[]
  readonly otherwise: 'deny' | 'ask'
}

/** @returns the reason against the first unusable rule */
export function makePolicy({
  configuration,
  run = [],
  otherwise,
}: PolicyInput): Result<EgressPolicy, string> {
  const configured = readEgressRules(configuration, 'configuration', 'egress.rules')
  if (!configured.ok) return configured
  const own = readEgressRules(run, 'run', 'the rules of the run')
  if (!own.ok) return own
  return { ok: true, value: { rules: orderRules([...configured.value, ...own.value]), otherwise } }
}

const outside = 'this sub-agent may reach only the hosts that it was given'

/** @param granted a person's answers so far: they answer an ask and never override a deny */
export function decide(policy: EgressPolicy, target: Target, granted: readonly PolicyRule[] = []): Decision {
  const find = (effect: EgressRule['effect'], among = policy.rules): PolicyRule | undefined =>
    among.find((rule) => rule.rule.effect === effect && isAbout(rule, target))
  if (policy.within?.some((rule) => isAbout(rule, target)) === false)
    return { effect: 'deny', rule: outside, by: null, canAsk: false }
  const denying = find('deny')
  if (denying !== undefined) return by(denying, false)
  const deciding = find('ask') ?? find('allow')
  if (deciding?.rule.effect === 'allow') return by(deciding, true)
  const inside = deciding === undefined ? hostInside(target.host) : null
  if (inside !== null) {
    const rule = `${target.host} is an address of ${inside}; only a rule that names it, ${target.scheme} and port ${target.port} can allow it`
    return { effect: 'deny', rule, by: null, canAsk: false }
  }
  const grant = find('allow', orderRules(granted))
  if (grant !== undefined) return by(grant, true)
  if (deciding !== undefined) return by(deciding, true)
  return {
    effect: policy.otherwise,
    rule: policy.otherwise === 'ask' ? 'no rule is about it: ask (the default)' : 'no rule allows it',
    by: null,
    canAsk: true,
  }
}

/**
 * Judges an address that a permitted host resolves to: null if the connection is allowed, else the reason. A non-public
 * address needs a rule for exactly that address; a deny rule for an address applies under every name.
 * @param inside the kind of non-public address; null if it is public
 */
export function judgeResolved(
  policy: EgressPolicy,
  target: Target,
  address: string,
  inside: string | null,
): string | null {
  const atAddress = { ...target, host: address }
  const rule = policy.rules.find((one) => one.host.kind === 'address' && isAbout(one, atAddress))
  const isName = target.host !== address
  const sentence = isName ? `${target.host} is ${address}` : address
  if (rule !== undefined && rule.rule.effect !== 'allow' && isName)
    return `${sentence}, for which there is the rule “${rule.text}”`
  if (inside === null || rule !== undefined) return null
  return `${sentence}${isName ? ',' : ' is'} an address of ${inside}; only a rule that allows this very address lets a connection go there`
}

/** A refusal for the agent: what was refused, by which rule, and what to do. */
export function explainRefusal(policy: EgressPolicy, target: Target, decision: Decision): string {
  const what = `refused: ${shorten(describeTarget(target))}`
  const hidden = policy.rules.find((rule) => rule.rule.effect === 'allow' && isHiddenByTunnel(rule, target))
  if (decision.by === null && hidden !== undefined) {
    return `${what}: the rule “${hidden.text}” looks at method or path, which a tunnel hides. Use the tool web_fetch, or plain http:// with the proxy where the rule allows http.`
  }
  if (decision.by === null && !decision.canAsk) return `${what}: ${decision.rule}. Do without it.`
  if (!decision.canAsk)
    return `${what}: the rule “${decision.rule}” denies it, and it cannot be allowed in this run. Continue without it.`
  const why = decision.by === null ? decision.rule : `the rule “${decision.rule}”`
  return `${what}: ${why}. If the task needs it, ask with the tool request_access (url "${shorten(targetUrl(target))}" and a reason); else do without it.`
}

function shorten(text: string): string {
  return text.length <= shownMaxChars ? text : `${text.slice(0, shownMaxChars)}…`
}

function by(rule: PolicyRule, canAsk: boolean): Decision {
  return { effect: rule.rule.effect, rule: rule.text, by: rule, canAsk }
}
