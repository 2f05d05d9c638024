/**
 * Names the files that apply and undo stage beside their targets, and removes those of killed processes. Removes only
 * files named in the run's own log.
 */
import { Root } from '#specs/node/descriptor-walk.ts'
import { type LoggedOperation, readApplyLog, readLoggedOperations } from '../write-ahead.ts'

/** Name of a staged file. @param sha256 digest of the change set @param op number of the operation */
export function stagedName(sha256: string, op: number): string {
  return `.caisson-${sha256.slice(0, 12)}-${op}`
}

/** Whether a file name is one of a staged file, judged by the name only. */
export function isStagedName(name: string): boolean {
  return /^\.caisson-[0-9a-f]{12}-\d+$/.test(name)
}

/**
 * Removes files that the operations may have left staged; checks each directory once. Never throws for a single file.
 */
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

/** The same for a killed run, by its log. An unreadable log names no files. */
export function removeStagedOf(root: string, runDirectory: string): void {
  removeStagedIn(
    root,
    listed(() => readLoggedOperations(runDirectory)),
  )
}

/** The same for the directory named in the log. A completed apply or undo leaves nothing staged. */
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
