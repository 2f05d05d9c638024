/**
 * Asks whether a plan may be executed, when the task requires it; the answer may contain a changed plan. Shows plans as
 * lines.
 */
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Condition, Plan, Step } from '#specs/protocol/plan.ts'
import type { AgentRun } from '../run/run.ts'
import { askPerson } from '../step/step-calls.ts'
import { truncate, truncateMiddle } from '../text/truncate.ts'
import type { ApprovalQuestion } from '../tool-calls/call.ts'
import { findPlanProblems, type PlanBounds } from './parse-plan.ts'
import type { PlanState } from './plan-state.ts'
import { planningStepId, submitPlanName } from './planner.ts'

type Consent =
  | { readonly allowed: true; readonly plan: Plan; readonly isEdited: boolean }
  /** `hint`: what the person wants instead; absent when they gave none. */
  | { readonly allowed: false; readonly hint?: string }

/** How often a person may change a plan into one that cannot run before it counts as denied. */
const editsMax = 3

/** Asks about `plan`. Allowed at once when no approval is required; denied once `signal` aborts. */
export async function askConsent(
  plan: Plan,
  run: AgentRun,
  bounds: () => PlanBounds,
  signal: AbortSignal,
): Promise<Consent> {
  if (run.task.approvePlan !== true) return { allowed: true, plan, isEdited: false }
  for (let edit = 1; ; edit++) {
    const question = {
      callId: run.callIds.claim('submit-plan'),
      tool: submitPlanName,
      arguments: toCanonicalJson(plan),
      preview: truncateMiddle(describePlan(plan).toWellFormed(), limits.textMaxChars),
    }
    const answer = await ask(question, run, signal)
    if (answer === null) return { allowed: false }
    const hint = answer.hint?.trim() ?? ''
    if (answer.decision === 'deny') return hint === '' ? { allowed: false } : { allowed: false, hint }
    if (answer.plan === undefined) return { allowed: true, plan, isEdited: false }
    const isWorkflow = run.task.workflow !== undefined
    const problems = isWorkflow
      ? ['the steps of a workflow are those of its file']
      : await findPlanProblems(answer.plan, bounds())
    if (problems.length === 0) return { allowed: true, plan: answer.plan, isEdited: true }
    const text = truncate(`the changed plan cannot be executed: ${problems.join('; ')}`, 4_000)
    await run.report.event({ type: 'note', level: 'warn', text })
    if (edit >= editsMax) return { allowed: false }
  }
}

/** The host's answer; null when the run ended first. */
async function ask(
  question: ApprovalQuestion,
  run: AgentRun,
  signal: AbortSignal,
): Promise<ApprovalDecision | null> {
  try {
    return await askPerson(planningStepId, question, run, signal)
  } catch (error) {
    if (signal.aborted) return null
    throw error
  }
}

/** Makes the approved plan current; `reason` says why the plan was made. */
export async function adoptAllowed(
  book: PlanState,
  consent: Extract<Consent, { allowed: true }>,
  reason: string,
  run: AgentRun,
): Promise<void> {
  await book.adopt(consent.plan, consent.isEdited ? `${reason}; edited by the person` : reason, run)
}

const failures = {
  abort: null,
  continue: 'a failure only leaves out what needs it',
  replan: 'a failure replaces the rest with a new plan',
} as const

/** The plan in lines; each step with its conditions, dependencies and options. */
export function describePlan(plan: Plan): string {
  return [`Goal: ${plan.goal}`, ...plan.steps.map((step, index) => describeStep(step, index + 1))].join(
    '\n\n',
  )
}

function describeStep(step: Step, number: number): string {
  const facts = [
    step.kind === 'agent' ? describeAgent(step) : null,
    step.needs.length > 0 ? `after ${step.needs.join(', ')}` : null,
    step.when === undefined ? null : `only if ${describeCondition(step.when)}`,
    step.writes.length === 0 ? 'writes nothing' : `writes ${step.writes.join(', ')}`,
    step.retries === undefined || step.retries === 0 ? null : `retried up to ${step.retries} times`,
    failures[step.onFailure],
    step.output === undefined ? null : `answers with JSON`,
    step.effort === undefined ? null : `effort ${step.effort}`,
    step.model === undefined ? null : `model ${step.model}`,
    step.tools === undefined ? null : `may use ${step.tools.join(', ')}`,
  ].filter((fact) => fact !== null)
  const head = `${number}. ${step.id}: ${step.title}\n   (${facts.join('; ')})`
  if (step.instructions === step.title) return head
  return `${head}\n   ${step.instructions.replaceAll('\n', '\n   ')}`
}

function describeAgent({ isolation, hosts, approvals }: Step): string {
  if (isolation !== 'vm') return 'a sub-agent'
  const reach =
    hosts === undefined ? '' : `, may reach ${hosts.length === 0 ? 'nothing' : `only ${hosts.join(', ')}`}`
  return `a sub-agent in a VM of its own${reach}${approvals === 'deny' ? ', asks nobody' : ''}`
}

function describeCondition({ step, state, path, equals, contains }: Condition): string {
  const parts = [`${step} ${state ?? 'completed'}`]
  const value = path === undefined ? 'its answer' : path
  if (equals !== undefined) parts.push(`${value} is ${JSON.stringify(equals)}`)
  if (contains !== undefined) parts.push(`${value} has ${JSON.stringify(contains)}`)
  if (path !== undefined && equals === undefined && contains === undefined) parts.push(`it has ${path}`)
  return parts.join(' and ')
}
