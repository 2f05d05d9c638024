/** A workflow in a task: each step has the plan's part and its own. */
import type * as z from 'zod'
import { Plan } from '#specs/protocol/plan.ts'
import { Workflow, type WorkflowStep } from '#specs/protocol/workflow.ts'

type Fields = Partial<z.input<typeof WorkflowStep>> & {
  readonly retries?: number
  readonly onFailure?: 'abort' | 'continue'
  readonly writes?: string[]
}

/** Ways that lead to a step: `a` for one that completed, `a failed`, or `a 1` for its second case. */
export function ways(...texts: string[]): WorkflowStep['after'] {
  return texts.map((text) => {
    const [step = '', how] = text.split(' ')
    if (how === 'failed') return { step, on: 'failed' as const }
    return { step, on: 'completed' as const, ...(how === undefined ? {} : { case: Number(how) }) }
  })
}

/** The fields of a task; a step without `after` begins. */
export function workflowTask(
  steps: Readonly<Record<string, Fields>>,
  more: Partial<z.input<typeof Workflow>> = {},
): { plan: Plan; workflow: Workflow } {
  const plan = Object.entries(steps).map(([id, { after = [], retries, onFailure, writes = [] }]) => ({
    id,
    title: id,
    instructions: `do ${id}`,
    writes,
    needs: [...new Set(after.map(({ step }) => step))],
    ...(retries === undefined ? {} : { retries }),
    ...(onFailure === undefined ? {} : { onFailure }),
  }))
  const own = Object.entries(steps).map(([id, { retries: _, onFailure: __, writes: ___, ...fields }]) => [
    id,
    { name: id, after: [], ...fields },
  ])
  return {
    plan: Plan.parse({ goal: 'g', steps: plan }),
    workflow: Workflow.parse({
      name: 'Test',
      version: '1',
      sha256: '0'.repeat(64),
      input: null,
      steps: Object.fromEntries(own),
      ...more,
    }),
  }
}

export const chat = (text: string): NonNullable<WorkflowStep['chat']> => [{ role: 'user', text }]
