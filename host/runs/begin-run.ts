/** The two points of a run at which its host asks hooks: before anything else, and after all else. */
import type * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import {
  outlineOf,
  type Workflow,
  type WorkflowOutline,
  type WorkflowSource,
} from '#specs/protocol/workflow.ts'
import type { RunHooks } from '../hooks/run-hooks.ts'
import type { RunRecord } from '../journal/run-record.ts'
import type { Ending } from './ending.ts'
import type { PlannedRun } from './resolved-run.ts'

interface PointParts {
  readonly record: RunRecord
  readonly hooks: RunHooks
  readonly signal: AbortSignal
}

/** Journals the start. */
export async function beginRun(
  plan: PlannedRun,
  approvesPlan: boolean,
  record: Pick<RunRecord, 'host'>,
): Promise<void> {
  const { prompt, images, notes, provider, effort, directory, metadata, continues, replays } = plan
  const { mode, given, workflow } = plan
  await record.host({
    type: 'run-start',
    prompt,
    ...(images === undefined ? {} : { images: [...images] }),
    model: provider.model,
    provider: provider.name,
    ...(effort === undefined ? {} : { effort }),
    directory,
    ...(metadata === undefined ? {} : { metadata }),
    ...(continues === undefined ? {} : { continues: continues.runId }),
    ...(replays === undefined ? {} : { replays: replays.runId }),
    ...(mode === 'work' ? {} : { mode }),
    ...(approvesPlan ? { approvePlan: true } : {}),
    ...(given === undefined ? {} : { planFrom: given.from.slice(0, 500) }),
    ...(workflow === undefined ? {} : { workflow: shownOf(workflow) }),
    limits: plan.limits,
    ...(notes === undefined ? {} : { notes: [...notes] }),
  })
}

function shownOf(
  workflow: Workflow,
): z.infer<typeof WorkflowSource> & { readonly outline?: WorkflowOutline } {
  const { name, version, sha256, uses } = workflow
  const outline = outlineOf(workflow)
  return {
    ...{ name, version, sha256 },
    ...(uses === undefined ? {} : { uses }),
    ...(outline === undefined ? {} : { outline }),
  }
}

/** Before the run uses anything. @throws {CaissonError} `denied` when a hook refuses the run */
export async function askBeforeRun(
  { prompt, directory, mode, provider }: PlannedRun,
  { hooks, signal }: Pick<PointParts, 'hooks' | 'signal'>,
): Promise<void> {
  const { model, name } = provider
  const about = { prompt, directory, mode, model, provider: name }
  const { decision, reason = '' } = await hooks.ask('before-run', about, signal)
  signal.throwIfAborted()
  if (decision === 'deny') throw new CaissonError('denied', `a hook refused the run: ${reason}`)
}

/** Calls the hooks after the run and journals their results. */
export async function askAfterRun(
  { prompt, directory }: PlannedRun,
  { outcome, reason, message, summary }: Ending,
  { record, hooks, signal }: PointParts,
): Promise<void> {
  const { changes } = record.state
  await hooks.ask('after-run', { prompt, directory, outcome, reason, message, summary, changes }, signal)
}
