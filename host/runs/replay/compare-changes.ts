/** Compares two change sets path by path: kind, mode, content, target. */
import { type ChangeSet, readChangeSet } from '../../workspace/index.ts'
import { requireValue } from '../prepare.ts'
import type { ReplayDifference } from './compare.ts'

/** @throws {CaissonError} `state_corrupted` when a change set is damaged */
export async function compareChanges(
  runDirectory: string,
  replayDirectory: string,
): Promise<ReplayDifference | null> {
  const run = requireValue(await readChangeSet(runDirectory))
  const replay = requireValue(await readChangeSet(replayDirectory))
  for (const path of new Set([...run.entries.keys(), ...replay.entries.keys()])) {
    const [expected, seen] = [describe(run, path), describe(replay, path)]
    if (expected !== seen)
      return { line: null, replayLine: null, type: 'changes', field: path, expected, seen }
  }
  return null
}

/** Empty where there is no change of the path. */
function describe({ entries }: ChangeSet, path: string): string {
  const entry = entries.get(path)
  if (entry === undefined) return ''
  return JSON.stringify(
    Object.fromEntries(
      Object.entries(entry)
        .filter(([key]) => !volatile.has(key))
        .sort(([one], [other]) => (one < other ? -1 : 1)),
    ),
  )
}

/** `offset`: where the content lies. */
const volatile: ReadonlySet<string> = new Set(['path', 'offset'])
