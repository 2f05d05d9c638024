/** Reasons why a workflow cannot run here, found before its first step: what it calls is not there, or its plan is another. */
import type { Plan } from '#specs/protocol/plan.ts'
import { askTool } from '#specs/protocol/question.ts'
import type { Workflow } from '#specs/protocol/workflow.ts'
import type { AgentRun } from '../run/run.ts'
import { runOfStep } from './chat-step.ts'

export function findWorkflowProblems({ steps }: Plan, run: AgentRun): string[] {
  const { workflow } = run.task
  if (workflow === undefined) return []
  const ids = new Set(steps.map(({ id }) => id))
  const others = Object.keys(workflow.steps).filter((id) => !ids.has(id))
  if (others.length > 0 || Object.keys(workflow.steps).length !== ids.size)
    return ['the workflow has other steps than its plan']
  const parts = Object.values(workflow.parts ?? {})
  return [
    ...findStepProblems(steps, workflow.steps, run),
    ...parts.flatMap((part) =>
      findStepProblems(part.plan.steps, part.steps, run).map(
        (problem) => `${part.name}@${part.version}: ${problem}`,
      ),
    ),
  ]
}

function findStepProblems(steps: Plan['steps'], own: Workflow['steps'], run: AgentRun): string[] {
  return steps.flatMap(({ id, needs }) => {
    const step = own[id]
    if (step === undefined) return [`the workflow has no step ${id}`]
    const problems = [...step.after.map((way) => way.step), ...(step.continues ?? [])]
      .filter((from) => !needs.includes(from))
      .map((from) => `continues step ${from}, which its plan does not need`)
    const narrowed = runOfStep(step, run)
    if (!narrowed.ok) problems.push(narrowed.error)
    const called = step.ask === undefined ? step.call?.function : askTool
    if (called !== undefined && !run.registry.names.includes(called))
      problems.push(`call: there is no function ${called}; the run has ${run.registry.names.join(', ')}`)
    return problems.map((problem) => `step "${step.name}": ${problem}`)
  })
}
