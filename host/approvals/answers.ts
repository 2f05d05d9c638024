/**
 * Defines which answers a question accepts, and what answers it without a person. Pure; the queue decides when to ask.
 */
import type { AccessQuestion, ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import {
  type ApprovalAnswer,
  type ApprovalMode,
  type AskOptions,
  type DecisionRecord,
  decisionByRule,
  type HostQuestion,
  modeNone,
  noPlan,
  unattended,
} from './decisions.ts'
import { parseOutsidePlan, planOf, planTool } from './plan-question.ts'
import { matchRules } from './rules.ts'
import { settleQuestion } from './user-question.ts'

/** Everything that can answer instead of a person. */
interface ApprovalContext {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  readonly interactive: boolean
}

/**
 * The decision without a person; undefined if one must be asked. @param runAnswer the person's answer for the whole run
 */
export function ruleCall(
  request: ApprovalRequest,
  { mode, rules, interactive }: ApprovalContext,
  runAnswer: DecisionRecord | undefined,
  { mustAsk = false }: AskOptions = {},
): DecisionRecord | undefined {
  // A yes would allow every later plan.
  if (request.tool === planTool && planOf(request) === undefined) return noPlan
  const rule = matchRules(rules, request)
  if (rule?.effect === 'deny' || (rule?.effect === 'allow' && !mustAsk))
    return decisionByRule(rule, rule.effect)
  const isAsked = mustAsk || rule !== undefined
  // A person who wants no more questions is not asked because of a hook either.
  const isNo = runAnswer?.decision === 'deny' && rule === undefined
  if (runAnswer !== undefined && (!isAsked || isNo)) return runAnswer
  if (mode === 'none') return modeNone
  if (mode === 'all' && !isAsked)
    return { decision: 'allow', scope: 'run', by: 'mode', rule: 'option approvals.mode: all' }
  return interactive ? undefined : unattended
}

/** The same for network access, which only a rule for this tool allows: sent data cannot be recalled. */
export function ruleAccess(
  { tool }: Pick<ApprovalRequest, 'tool'>,
  enforced: HostQuestion,
  { mode, rules, interactive }: ApprovalContext,
): DecisionRecord | undefined {
  const known = enforced.known()
  if (known !== undefined) return known
  const named = rules.filter((rule) => rule.effect !== 'allow' || rule.tool === tool)
  const rule = matchRules(named, enforced.call)
  if (rule?.effect === 'deny') return decisionByRule(rule, 'deny')
  // A rule about the whole address knows no more than its host.
  const reach = rule?.argument === undefined || rule.argument === 'host' ? 'host' : 'path'
  if (rule?.effect === 'allow' && offers(enforced.access, reach))
    return { ...decisionByRule(rule, 'allow'), scope: 'run', reach }
  if (mode === 'none') return modeNone
  return interactive ? undefined : enforced.unattended
}

/**
 * The decision by a person's answer; undefined if the question does not accept it. Tool questions accept neither
 * `always` nor a reach; access questions accept only their listed reaches. A plan is valid only as a yes to a plan
 * question and must keep started steps; an answer only for `ask_user`, in its form.
 */
export function settleByPerson(
  { request, access }: { readonly request: ApprovalRequest; readonly access: AccessQuestion | undefined },
  given: ApprovalAnswer,
  findPlanProblems?: (plan: Plan) => readonly string[],
): DecisionRecord | undefined {
  if (request.question !== undefined) return settleQuestion(request.question, given)
  if (given.answer !== undefined) return undefined
  const plan = given.plan === undefined ? undefined : takePlan(request, given, findPlanProblems)
  if (plan === null) return undefined
  const { decision, scope, hint } = given
  const reach = given.reach ?? access?.offers[0]?.reach
  const isOffered = access === undefined ? scope !== 'always' && reach === undefined : offers(access, reach)
  if (!isOffered) return undefined
  return {
    decision,
    scope,
    ...(reach === undefined ? {} : { reach }),
    by: 'person',
    ...(hint === undefined ? {} : { hint }),
    ...(plan === undefined ? {} : { plan }),
  }
}

/** A person's plan in canonical form; null if the question does not accept it. */
function takePlan(
  request: ApprovalRequest,
  { decision, plan }: ApprovalAnswer,
  findPlanProblems?: (plan: Plan) => readonly string[],
): Plan | null {
  const read = parseOutsidePlan(plan)
  if (planOf(request) === undefined || decision !== 'allow' || !read.ok) return null
  const problems = findPlanProblems?.(read.value) ?? []
  return problems.length === 0 ? read.value : null
}

function offers({ offers: offered }: AccessQuestion, reach: AccessReach | undefined): boolean {
  return offered.some((offer) => offer.reach === reach)
}
