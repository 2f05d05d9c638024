/**
 * Files that apply and undo stage beside their targets: how they are called, and the removal of those that a killed
 * process left. Removes nothing that the run's own log does not name.
 */
import { Root } from '#specs/node/descriptor-walk.ts'
import { type LoggedOperation, readApplyLog, readLoggedOperations } from '../write-ahead.ts'

/** The name of a staged file. @param sha256 of the change set @param op number of the operation */
export function stagedName(sha256: string, op: number): string {
  return `.caisson-${sha256.slice(0, 12)}-${op}`
}

/** Whether a file of this name is none of the user's, as far as a name tells. */
export function isStagedName(name: string): boolean {
  return /^\.caisson-[0-9a-f]{12}-\d+$/.test(name)
}

/** Removes what the operations may have left staged; one look at each directory. Never throws for one of them. */
export function removeStaged(root: Root, operations: readonly LoggedOperation[]): void {
  const byDirectory = Map.groupBy(operations, ({ path }) => path.slice(0, Math.max(0, path.lastIndexOf('/'))))
  for (const ours of byDirectory.values()) {
    const located = root.locate(ours[0]?.path ?? '', { links: 'refuse' })
    if (!located.ok) continue
    using place = located.value
    const names = new Set(ours.map(({ temporary }) => temporary))
    for (const { name } of listed(() => place.directory.list()))
      if (names.has(name)) place.sibling(name).unlink()
  }
}

/** The same for a run whose process was killed, by its log. A log that cannot be read names nothing. */
export function removeStagedOf(root: string, runDirectory: string): void {
  removeStagedIn(
    root,
    listed(() => readLoggedOperations(runDirectory)),
  )
}

/** The same in the directory that the log names. Nothing is staged where the last apply or undo came to its end. */
export function removeLeftStaged(runDirectory: string): void {
  const [log] = listed(() => [readApplyLog(runDirectory)])
  if (log !== undefined && !log.isEnded) removeStagedIn(log.root, log.operations)
}

function removeStagedIn(root: string, operations: readonly LoggedOperation[]): void {
  if (operations.length === 0) return
  const opened = Root.open(root)
  if (!opened.ok) return
  using directory = opened.value
  removeStaged(directory, operations)
}

function listed<T>(list: () => readonly T[]): readonly T[] {
  try {
    return list()
  } catch {
    return []
  }
}
