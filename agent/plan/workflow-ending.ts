/** How a workflow ended, and its result: JSON where it is structured. */
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import type { AgentRun, RunEnding } from '../run/run.ts'
import type { StepResult } from '../step/step.ts'
import { truncate } from '../text/truncate.ts'
import type { WorkflowValues } from '../workflow/values.ts'
import { interruption } from './ending.ts'

interface ExecutedWorkflow {
  readonly plan: Plan
  readonly values: WorkflowValues
  readonly results: ReadonlyMap<string, StepResult>
}

export function workflowEnding({ plan, values, results }: ExecutedWorkflow, run: AgentRun): RunEnding {
  const stateOf = ({ id }: Step) => values.endOf(id)?.state ?? 'skipped'
  const completed = plan.steps.filter((step) => stateOf(step) === 'completed')
  const skipped = plan.steps.filter((step) => stateOf(step) === 'skipped')
  const rest = skipped.length === 0 ? '' : `, ${skipped.length} not taken`
  const total = plan.steps.length
  const tally =
    completed.length === total
      ? `all ${total} steps completed`
      : `${completed.length} of ${total} steps completed${rest}`
  const outputs = truncate(toText(outputsOf(completed, plan, values)), limits.documentMaxChars)
  if (run.signal.aborted) return { ...interruption(run, tally), summary: outputs }
  const broken = plan.steps.find(
    (step) => stateOf(step) === 'failed' && !isHandled(step, plan, values, results),
  )
  if (broken !== undefined) {
    const { reason = 'step_failed', ended, text = '' } = results.get(broken.id) ?? {}
    const why = `step "${values.stepOf(broken.id).name}" failed: ${ended ?? text}`
    return { outcome: 'failed', reason, message: bound(`${tally}; ${why}`), summary: outputs }
  }
  const { result } = values.workflow
  const made =
    result === undefined
      ? ({ ok: true, value: outputsOf(completed, plan, values) } as const)
      : values.evaluate(result, 'result')
  const fail = (why: string): RunEnding => ({
    outcome: 'failed',
    reason: 'step_failed',
    message: bound(`${tally}; ${why}`),
    summary: outputs,
  })
  if (!made.ok) return fail(made.error)
  const text = toText(made.value)
  // Half of a JSON text is of no use.
  if (text.length > limits.documentMaxChars)
    return fail(`the result has ${text.length} characters; at most ${limits.documentMaxChars} are possible`)
  return { outcome: 'completed', reason: 'completed', message: tally, summary: text }
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

function toText(value: unknown): string {
  return typeof value === 'string' ? value : toCanonicalJson(value)
}

function bound(text: string): string {
  return truncate(text, limits.textMaxChars)
}
