/** What came of the steps of a workflow, once all have ended: its result, or the step that failed. */
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import type { StepResult } from '../step/step.ts'
import { truncate } from '../text/truncate.ts'
import { toText, type WorkflowValues } from './values.ts'

interface EndedSteps {
  readonly plan: Plan
  readonly values: WorkflowValues
  readonly results: ReadonlyMap<string, StepResult>
}

interface Conclusion {
  /** For people: how many steps did what. */
  readonly tally: string
  /** What the last completed steps gave, as text; cut where it is too long. */
  readonly outputs: string
  /** The failure that ends the workflow. Absent: none. */
  readonly broken?: Pick<StepResult, 'reason'> & { readonly why: string }
}

export function conclude({ plan, values, results }: EndedSteps): Conclusion {
  const stateOf = ({ id }: Step) => values.endOf(id)?.state ?? 'skipped'
  const completed = completedOf(plan, values)
  const skipped = plan.steps.filter((step) => stateOf(step) === 'skipped')
  const rest = skipped.length === 0 ? '' : `, ${skipped.length} not taken`
  const total = plan.steps.length
  const tally =
    completed.length === total
      ? `all ${total} steps completed`
      : `${completed.length} of ${total} steps completed${rest}`
  const outputs = truncate(toText(outputsOf(completed, plan, values)), limits.documentMaxChars)
  const broken = plan.steps.find(
    (step) => stateOf(step) === 'failed' && !isHandled(step, plan, values, results),
  )
  if (broken === undefined) return { tally, outputs }
  const { reason = 'step_failed', ended, text = '' } = results.get(broken.id) ?? {}
  const why = `step "${values.stepOf(broken.id).name}" failed: ${ended ?? text}`
  return { tally, outputs, broken: { reason, why } }
}

/** What the workflow gives, where nothing is broken. */
export function resultOf(plan: Plan, values: WorkflowValues): Result<unknown, string> {
  const { result } = values.workflow
  const made: Result<unknown, string> =
    result === undefined
      ? { ok: true, value: outputsOf(completedOf(plan, values), plan, values) }
      : values.evaluate(result, 'result')
  if (!made.ok) return made
  const { length } = toText(made.value)
  // Half of a JSON text is of no use.
  if (length <= limits.documentMaxChars) return made
  const error = `the result has ${length} characters; at most ${limits.documentMaxChars} are possible`
  return { ok: false, error }
}

function completedOf({ steps }: Plan, values: WorkflowValues): Step[] {
  return steps.filter(({ id }) => values.endOf(id)?.state === 'completed')
}

/** Whether the workflow continues as its file says for this failure. A denial is none that it may pass over unseen. */
function isHandled(
  { id, onFailure }: Step,
  { steps }: Plan,
  { workflow }: WorkflowValues,
  results: ReadonlyMap<string, StepResult>,
): boolean {
  if (onFailure === 'abort') return false
  const leads = steps.some((step) =>
    workflow.steps[step.id]?.after.some(({ step: from, on }) => from === id && on === 'failed'),
  )
  return leads || results.get(id)?.reason !== 'denied'
}

/** The output of the last step; of several an object by their names. */
function outputsOf(completed: readonly Step[], { steps }: Plan, values: WorkflowValues): unknown {
  const followed = ancestorsOf(completed, steps)
  const last = completed.filter(({ id }) => !followed.has(id))
  const [only] = last
  if (only === undefined) return ''
  if (last.length === 1) return values.endOf(only.id)?.output ?? ''
  return Object.fromEntries(last.map(({ id }) => [values.stepOf(id).name, values.endOf(id)?.output ?? null]))
}

/** Also behind steps that were skipped. */
function ancestorsOf(completed: readonly Step[], steps: readonly Step[]): ReadonlySet<string> {
  const found = new Set(completed.flatMap(({ needs }) => needs))
  for (const id of found)
    for (const need of steps.find((step) => step.id === id)?.needs ?? []) found.add(need)
  return found
}
