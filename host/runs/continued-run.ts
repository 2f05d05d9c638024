/** The run that another one continues: what it was about, and its VM if it was kept. */

import { stat } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import { RunFold } from '../journal/run-outline.ts'
import type { RunStore } from '../journal/run-store.ts'

/** Tasks that the agent is told of, the last ones. */
const maxTasks = 5
/** Of a task and of its result each. */
const maxChars = 4_000
/** Runs in a row that ended before they had a VM, behind which a kept one is still looked for. */
const maxWithoutVm = 20

export interface ContinuedRun {
  readonly runId: string
  /** Where its VM would be, or one before it that it did not come to use; it may not have been kept. */
  readonly kept: string
  /** The run that it is part of. */
  readonly keptBy: string
  /** Earlier tasks and their results, oldest first, as facts for the model. */
  readonly context: Readonly<Record<string, string>>
}

/**
 * @param name id of the run, a beginning of it, or `last`: the last one of this directory
 * @param directory real path of the workspace
 * @throws {CaissonError} `run_not_found` when there is none, or it worked elsewhere `run_busy` while it is at work
 */
export async function findContinued(store: RunStore, name: string, directory: string): Promise<ContinuedRun> {
  const runId = name === 'last' ? await findLast(store, directory) : (await store.find(name)).runId
  const { facts } = await store.fold(runId)
  const { workspace } = facts
  if (facts.startedAt === null) {
    throw new CaissonError('run_not_found', `${runId} has not begun`, {
      remedy: 'name another run to continue, or start a new one',
    })
  }
  if (path.resolve(workspace) !== directory) {
    throw new CaissonError('run_not_found', `${runId} worked on ${workspace}, not on ${directory}`, {
      remedy: `give the workspace ${workspace}, or start a new run`,
    })
  }
  if (await store.isLive(runId))
    throw new CaissonError('run_busy', `${runId} is at work; wait for its end, then continue it`)
  return { runId, ...(await findKept(store, runId)), context: await describeTasks(store, runId) }
}

/**
 * A run that was cancelled or killed before it had its VM has left the one of the run that it continued where it was: who
 * takes a VM removes it there.
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

async function findLast(store: RunStore, directory: string): Promise<string> {
  // One whose journal tells nothing worked nowhere.
  const last = (await store.list()).find(
    ({ workspace }) => workspace !== '' && path.resolve(workspace) === directory,
  )
  if (last === undefined) throw new CaissonError('run_not_found', `no run has worked on ${directory} yet`)
  return last.runId
}

async function describeTasks(store: RunStore, last: string): Promise<Record<string, string>> {
  const tasks: string[] = []
  for (let runId: string | undefined = last; runId !== undefined && tasks.length < maxTasks; ) {
    const told: Awaited<ReturnType<typeof describeTask>> = await describeTask(store, runId).catch(
      () => undefined,
    )
    if (told === undefined) break
    tasks.unshift(told.text)
    runId = told.continues
  }
  return Object.fromEntries(
    tasks.map((text, index) => [`earlier task ${index + 1} of ${tasks.length}`, text]),
  )
}

/** Undefined where the run has not begun. */
async function describeTask(
  store: RunStore,
  runId: string,
): Promise<{ readonly text: string; readonly continues: string | undefined } | undefined> {
  const fold = new RunFold()
  let prompt = ''
  await store.visit(runId, (line) => {
    if (line.event.type === 'run-start') prompt = line.event.prompt
    fold.next(line)
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

/** Of calls on the host whose end was never journaled: whoever goes on has to look before they repeat one. */
function unknownCalls(openHostCalls: RunState['openHostCalls']): string[] {
  const calls = Object.values(openHostCalls).map(({ tool, arguments: given }) => `${tool}(${given})`)
  if (calls.length === 0) return []
  const told = calls.join('; ').slice(0, maxChars)
  return [`It is not known whether these calls had an effect, for their end was never recorded: ${told}`]
}
