/** What a person can answer to which question, and what settles one without them. Pure; when it is asked is the queue's. */
import type { AccessQuestion, ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { AccessReach } from '#specs/protocol/egress.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { ApprovalAnswer, ApprovalMode, AskOptions, HostQuestion } from './approval-types.ts'
import { type DecisionRecord, decisionByRule, modeNone, noPlan, unattended } from './decisions.ts'
import { planOf, planTool, readPlan } from './plan-question.ts'
import { matchRules } from './rules.ts'
import { settleQuestion } from './user-question.ts'

/** What answers when no person does. */
export interface Scene {
  readonly mode: ApprovalMode
  readonly rules: readonly ApprovalRule[]
  readonly interactive: boolean
}

/** What needs no person; undefined when one must be asked. @param standing what was answered for the run to this tool */
export function ruleCall(
  request: ApprovalRequest,
  { mode, rules, interactive }: Scene,
  standing: DecisionRecord | undefined,
  { mustAsk = false }: AskOptions = {},
): DecisionRecord | undefined {
  // A yes to it would stand for every plan that comes.
  if (request.tool === planTool && planOf(request) === undefined) return noPlan
  const rule = matchRules(rules, request)
  if (rule?.effect === 'deny' || (rule?.effect === 'allow' && !mustAsk))
    return decisionByRule(rule, rule.effect)
  const isAsked = mustAsk || rule !== undefined
  // Who wants to hear no more of it is not asked because a hook wants it either.
  const isNo = standing?.decision === 'deny' && rule === undefined
  if (standing !== undefined && (!isAsked || isNo)) return standing
  if (mode === 'none') return modeNone
  if (mode === 'all' && !isAsked)
    return { decision: 'allow', scope: 'run', by: 'mode', rule: '--approve all' }
  return interactive ? undefined : unattended
}

/** The same for a way out, which only a rule that names its tool allows: what went out cannot be taken back. */
export function ruleAccess(
  { tool }: Pick<ApprovalRequest, 'tool'>,
  enforced: HostQuestion,
  { mode, rules, interactive }: Scene,
): DecisionRecord | undefined {
  const known = enforced.known()
  if (known !== undefined) return known
  const named = rules.filter((rule) => rule.effect !== 'allow' || rule.tool === tool)
  const rule = matchRules(named, enforced.call)
  if (rule?.effect === 'deny') return decisionByRule(rule, 'deny')
  // A rule about the whole address knows no more of its host.
  const reach = rule?.argument === undefined || rule.argument === 'host' ? 'host' : 'path'
  if (rule?.effect === 'allow' && offers(enforced.access, reach))
    return { ...decisionByRule(rule, 'allow'), scope: 'run', reach }
  if (mode === 'none') return modeNone
  return interactive ? undefined : enforced.unattended
}

/**
 * What a person's answer settles; undefined when the question does not offer it: a tool's question has no `always` and no
 * reach, one about a way out only the reaches it names. A plan answers a question about one alone, with a yes, and changes
 * nothing that has begun; an answer answers one of `ask_user`, and has the form that it asks for.
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

/** A person's plan in its one form; null where the question does not take it. */
function takePlan(
  request: ApprovalRequest,
  { decision, plan }: ApprovalAnswer,
  findPlanProblems?: (plan: Plan) => readonly string[],
): Plan | null {
  const read = readPlan(plan)
  if (planOf(request) === undefined || decision !== 'allow' || !read.ok) return null
  const problems = findPlanProblems?.(read.value) ?? []
  return problems.length === 0 ? read.value : null
}

function offers({ offers: offered }: AccessQuestion, reach: AccessReach | undefined): boolean {
  return offered.some((offer) => offer.reach === reach)
}
