/**
 * Planner for runs that only plan: the model may first explore with read-only tools. The registry and a read-only
 * mount enforce this; the prompt does not.
 */
import { access, constants } from 'node:fs/promises'
import * as z from 'zod'
import { parseModelJson } from '#runtime/llm/repair.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { plannerOpening } from '../context/opening.ts'
import type { AgentRun } from '../run/run.ts'
import { modelNamesOf } from '../run/step-model.ts'
import { runStep, type StepResult } from '../step/step.ts'
import { planForm } from '../tool-calls/plan-form.ts'
import { defineTool, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { boundsOf, type PlannedWork, parsePlan } from './parse-plan.ts'
import { type PlanFailure, type Planner, planningStepId, submitPlanName } from './planner.ts'

const lookRules = `Plan only: nothing is executed, and nothing can be changed. First explore with your tools as far as the plan depends on what you find, and ask the user with ask_user, if you have it. Then call ${submitPlanName} with the whole plan.`

const planningStep: Step = {
  id: planningStepId,
  title: 'Plan the task',
  instructions: lookRules,
  needs: [],
  writes: [],
  onFailure: 'abort',
}

/** @param workspace path of the workspace */
export function createExplorer(workspace = '/mnt/workspace'): Planner {
  return async (run, signal) => {
    const accepted: { plan: PlannedWork | null } = { plan: null }
    const done = new AbortController()
    const submit = createSubmitTool(modelNamesOf(run), async (value) => {
      const read = await parsePlan(value, boundsOf(run))
      if (!read.ok) return read
      accepted.plan = read.value
      done.abort()
      return read
    })
    const registry = run.registry.forPlanning(await isMountedReadOnly(workspace)).with([submit])
    const [rules, ...rest] = plannerOpening(run)
    if (rules === undefined) throw new TypeError('a planning request has rules')
    const opening = [{ ...rules, content: `${rules.content}\n\n${lookRules}` }, ...rest]
    const result = await runStep(
      planningStep,
      opening,
      { ...run, registry },
      AbortSignal.any([signal, done.signal]),
    )
    if (accepted.plan !== null) return { ok: true, value: accepted.plan }
    return readAnswer(result, run)
  }
}

/** A plan that the model wrote as text instead of submitting it; else why there is none. */
async function readAnswer(result: StepResult, run: AgentRun): Promise<Result<PlannedWork, PlanFailure>> {
  const { state, reason, text } = result
  if (state !== 'completed') return { ok: false, error: { reason, message: `no plan: ${text}` } }
  const parsed = parseModelJson(text)
  const read = parsed.ok ? await parsePlan(parsed.value.value, boundsOf(run)) : parsed
  if (read.ok) return read
  return {
    ok: false,
    error: { reason: 'plan_invalid', message: `the model submitted no plan: ${read.error}` },
  }
}

function createSubmitTool(
  models: readonly string[],
  submit: (value: unknown) => Promise<Result<PlannedWork, string>>,
): Tool {
  return defineTool({
    name: submitPlanName,
    description: 'Submits the plan. Call it once, with the whole plan.',
    // Parsed where mistakes are repaired.
    inputSchema: z.unknown().meta(planForm(models)),
    outputSchema: z.strictObject({ steps: z.int() }),
    requiresApproval: false,
    readOnly: false,
    destructive: false,
    execute: async (value) => {
      const read = await submit(value)
      return read.ok
        ? toolSuccess({ steps: read.value.plan.steps.length })
        : toolFailure(
            'invalid_input',
            `the plan is not valid: ${read.error}. Submit the whole plan again, corrected.`,
          )
    },
    render: ({ steps }) => `the plan of ${steps} steps is accepted`,
  })
}

/** Whether `folder` is on a read-only file system; missing write permission is not enough. */
export async function isMountedReadOnly(folder: string): Promise<boolean> {
  try {
    await access(folder, constants.W_OK)
    return false
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    return code === 'EROFS'
  }
}
