/** Finds the run that another run continues: its task, its result, and its VM if it was kept. */

import { stat } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { RunStore } from '../journal/run-store.ts'

/** Number of earlier tasks in the context; the most recent ones. */
const maxTasks = 5
/** Maximum characters of each task and of each result. */
const maxChars = 4_000
/** Number of consecutive runs without a VM that are searched for an earlier kept VM. */
const maxWithoutVm = 20

export interface ContinuedRun {
  readonly runId: string
  /** Folder of the kept VM of this run, or of an earlier run whose VM it never used. The VM may not exist. */
  readonly kept: string
  /** Id of the run that owns the folder. */
  readonly keptBy: string
  /** Earlier tasks and their results, oldest first, as facts for the model. */
  readonly context: Readonly<Record<string, string>>
}

/**
 * @param name as in {@link RunStore.find}
 * @param directory real path of the workspace
 * @throws {CaissonError} `run_not_found` when no run matches or it used another directory, `run_busy` while it is
 * running
 */
export async function findContinued(store: RunStore, name: string, directory: string): Promise<ContinuedRun> {
  const { runId } = await store.find(name, directory)
  const { facts } = await store.fold(runId)
  const { workspace } = facts
  if (facts.startedAt === null) {
    throw new CaissonError('run_not_found', `${runId} has not begun`, {
      remedy: 'name another run to continue, or start a new one',
    })
  }
  if (!(await store.workedOn(runId, workspace, directory))) {
    throw new CaissonError('run_not_found', `${runId} worked on ${workspace}, not on ${directory}`, {
      remedy: `give the workspace ${workspace}, or start a new run`,
    })
  }
  if (await store.isLive(runId))
    throw new CaissonError('run_busy', `${runId} is active; wait until it ends, then continue it`)
  return { runId, ...(await findKept(store, runId)), context: await describeTasks(store, runId) }
}

/**
 * A run that ended before it had a VM leaves the kept VM of the run it continued in place: the run that uses a VM
 * removes it.
 */
async function findKept(store: RunStore, last: string): Promise<Pick<ContinuedRun, 'kept' | 'keptBy'>> {
  let runId: string | undefined = last
  for (let count = 0; runId !== undefined && count < maxWithoutVm; count += 1) {
    const { kept } = store.paths(runId)
    const isThere = await stat(kept).then(
      () => true,
      () => false,
    )
    if (isThere) return { kept, keptBy: runId }
    runId = (await store.summary(runId)).continues
  }
  return { kept: store.paths(last).kept, keptBy: last }
}

async function describeTasks(store: RunStore, last: string): Promise<Record<string, string>> {
  const tasks: string[] = []
  for (let runId: string | undefined = last; runId !== undefined && tasks.length < maxTasks; ) {
    const described: Awaited<ReturnType<typeof describeTask>> = await describeTask(store, runId).catch(
      () => undefined,
    )
    if (described === undefined) break
    tasks.unshift(described.text)
    runId = described.continues
  }
  return Object.fromEntries(
    tasks.map((text, index) => [`earlier task ${index + 1} of ${tasks.length}`, text]),
  )
}

/** Undefined if the run never started. */
async function describeTask(
  store: RunStore,
  runId: string,
): Promise<{ readonly text: string; readonly continues: string | undefined } | undefined> {
  const fold = new RunFold()
  let prompt = ''
  await store.visit(runId, (line, end) => {
    if (line.event.type === 'run-start') prompt = line.event.prompt
    fold.next(line, end)
  })
  const { facts, state } = fold
  if (facts.startedAt === null) return undefined
  const { end } = state
  const result = end === null ? 'unknown' : `${end.outcome}: ${end.summary || end.message}`
  const parts = [
    prompt.slice(0, maxChars),
    `Result: ${result.slice(0, maxChars)}`,
    ...unknownCalls(state.openHostCalls),
  ]
  return { text: parts.join('\n\n'), continues: facts.continues }
}

/** Host calls whose result was never journaled. The agent must check their effect before it repeats one. */
function unknownCalls(openHostCalls: RunState['openHostCalls']): string[] {
  const calls = Object.values(openHostCalls).map(({ tool, arguments: given }) => `${tool}(${given})`)
  if (calls.length === 0) return []
  const list = calls.join('; ').slice(0, maxChars)
  return [`These calls may have had an effect, because their result was never recorded: ${list}`]
}
