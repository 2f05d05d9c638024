/**
 * Defines which answers a question accepts, and what answers it without a person. Pure; the queue decides when to ask.
 */
import type { AccessQuestion, AnswerReach, ApprovalRequest, ApprovalRule } from '#specs/protocol/approval.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { commandOf, type Ruling } from './calls.ts'
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

/** What an answer is checked against. */
interface AskedQuestion {
  readonly request: ApprovalRequest
  readonly access: AccessQuestion | undefined
  /** Whether a yes can be for the same command in this run. */
  readonly remembers: boolean
  /** ms since 1970. */
  readonly now: number
}

/**
 * The decision without a person; undefined if one must be asked. @param runAnswer the person's answer for the whole run,
 * or for this command
 */
export function ruleCall(
  request: ApprovalRequest,
  { mode, rules, interactive }: ApprovalContext,
  runAnswer: DecisionRecord | undefined,
  { mustAsk = false }: AskOptions = {},
): DecisionRecord | undefined {
  // A yes would allow every later plan.
  if (request.tool === planTool && planOf(request) === undefined) return noPlan
  const ruling = matchRules(rules, request)
  if (ruling?.effect === 'deny' || (ruling?.effect === 'allow' && !mustAsk))
    return decisionByRule(ruling, ruling.effect)
  const isAsked = mustAsk || ruling !== undefined
  // A person who wants no more questions is not asked because of a hook either.
  const isNo = runAnswer?.decision === 'deny' && isUndecided(ruling)
  // Whoever allowed this very command has seen what rules cannot.
  const isSame = runAnswer?.reach === 'command' && isUndecided(ruling) && !mustAsk
  if (runAnswer !== undefined && (!isAsked || isNo || isSame)) return runAnswer
  if (mode === 'none') return modeNone
  if (mode === 'all' && !isAsked)
    return { decision: 'allow', scope: 'run', by: 'mode', rule: 'option approvals.mode: all' }
  return interactive ? undefined : unattended
}

/** Whether a yes to this command would answer the same command later, where a person is asked about it. */
export function canRemember(
  request: ApprovalRequest,
  rules: readonly ApprovalRule[],
  { mustAsk = false }: AskOptions = {},
): boolean {
  return !mustAsk && commandOf(request) !== undefined && isUndecided(matchRules(rules, request))
}

/** Whether no rule matches for certain. */
function isUndecided(ruling: Ruling | undefined): boolean {
  return ruling === undefined || ruling.isUnsure === true
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
  const ruling = matchRules(named, enforced.call)
  if (ruling?.effect === 'deny') return decisionByRule(ruling, 'deny')
  const { argument = 'host' } = ruling?.rules[0] ?? {}
  // A rule about the whole address knows no more than its host.
  const reach = argument === 'host' ? 'host' : 'path'
  if (ruling?.effect === 'allow' && offers(enforced.access, reach))
    return { ...decisionByRule(ruling, 'allow'), scope: 'run', reach }
  if (mode === 'none') return modeNone
  return interactive ? undefined : enforced.unattended
}

/**
 * The decision by a person's answer; undefined if the question does not accept it. Tool questions do not accept
 * `always`, and of reaches only `command`, with a yes for the run; access questions accept only their listed reaches. A
 * plan is valid only as a yes to a plan question and must keep started steps; an answer only for `ask_user`, in its form.
 */
export function settleByPerson(
  { request, access, remembers, now }: AskedQuestion,
  given: ApprovalAnswer,
  findPlanProblems?: (plan: Plan) => readonly string[],
): DecisionRecord | undefined {
  const { forMs, scope } = given
  if (forMs === undefined) return settleInForm({ request, access, remembers }, given, findPlanProblems)
  // Network access for the run does not expire.
  if (scope !== 'run' || access !== undefined) return undefined
  const ruling = settleInForm({ request, access, remembers }, given, findPlanProblems)
  return ruling && { ...ruling, until: now + forMs }
}

function settleInForm(
  { request, access, remembers }: Omit<AskedQuestion, 'now'>,
  given: ApprovalAnswer,
  findPlanProblems?: (plan: Plan) => readonly string[],
): DecisionRecord | undefined {
  if (request.question !== undefined) return settleQuestion(request.question, given)
  if (given.answer !== undefined) return undefined
  const plan = given.plan === undefined ? undefined : takePlan(request, given, findPlanProblems)
  if (plan === null) return undefined
  const { decision, scope, hint } = given
  const reach = given.reach ?? access?.offers[0]?.reach
  const isForCommand = remembers && reach === 'command' && decision === 'allow' && scope === 'run'
  const isOffered =
    access === undefined ? scope !== 'always' && (reach === undefined || isForCommand) : offers(access, reach)
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

function offers({ offers: offered }: AccessQuestion, reach: AnswerReach | undefined): boolean {
  return offered.some((offer) => offer.reach === reach)
}
