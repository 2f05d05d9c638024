/** Formats a plan as lines for people: in approval requests and as the result of a run that only plans. */
import type { Condition, Plan, Step } from '#specs/protocol/plan.ts'

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
    step.kind === 'agent' ? 'a sub-agent' : null,
    step.needs.length > 0 ? `after ${step.needs.join(', ')}` : null,
    step.when === undefined ? null : `only if ${describeCondition(step.when)}`,
    step.writes.length === 0 ? 'writes nothing' : `writes ${step.writes.join(', ')}`,
    step.retries === undefined || step.retries === 0 ? null : `retried up to ${step.retries} times`,
    failures[step.onFailure],
    step.output === undefined ? null : `answers with JSON`,
    step.tools === undefined ? null : `may use ${step.tools.join(', ')}`,
  ].filter((fact) => fact !== null)
  const head = `${number}. ${step.id}: ${step.title}\n   (${facts.join('; ')})`
  if (step.instructions === step.title) return head
  return `${head}\n   ${step.instructions.replaceAll('\n', '\n   ')}`
}

function describeCondition({ step, state, path, equals, contains }: Condition): string {
  const parts = [`${step} ${state ?? 'completed'}`]
  const value = path === undefined ? 'its answer' : path
  if (equals !== undefined) parts.push(`${value} is ${JSON.stringify(equals)}`)
  if (contains !== undefined) parts.push(`${value} has ${JSON.stringify(contains)}`)
  if (path !== undefined && equals === undefined && contains === undefined) parts.push(`it has ${path}`)
  return parts.join(' and ')
}
