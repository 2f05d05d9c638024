/** How a workflow ended, and its result: JSON where it is structured. */
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { AgentRun, RunEnding } from '../run/run.ts'
import type { StepResult } from '../step/step.ts'
import { truncate } from '../text/truncate.ts'
import { conclude, resultOf } from '../workflow/conclusion.ts'
import { toText, type WorkflowValues } from '../workflow/values.ts'
import { interruption } from './ending.ts'

interface ExecutedWorkflow {
  readonly plan: Plan
  readonly values: WorkflowValues
  readonly results: ReadonlyMap<string, StepResult>
}

export function workflowEnding(executed: ExecutedWorkflow, run: AgentRun): RunEnding {
  const { tally, outputs, broken } = conclude(executed)
  if (run.signal.aborted) return { ...interruption(run, tally), summary: outputs }
  const fail = (reason: RunEnding['reason'], why: string): RunEnding => ({
    outcome: 'failed',
    reason,
    message: truncate(`${tally}; ${why}`, limits.textMaxChars),
    summary: outputs,
  })
  if (broken !== undefined) return fail(broken.reason, broken.why)
  const made = resultOf(executed.plan, executed.values)
  if (!made.ok) return fail('step_failed', made.error)
  return { outcome: 'completed', reason: 'completed', message: tally, summary: toText(made.value) }
}
