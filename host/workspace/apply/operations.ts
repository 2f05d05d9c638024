/**
 * Splits a change into operations on single paths, and says which state each expects and leaves.
 */
import { hash } from 'node:crypto'
import { ancestorsOf, stateAfter } from '../conflicts.ts'
import { absent, isSameState, manifestState, type PathState } from '../path-state.ts'
import type { PartialChange } from '../review/hunks.ts'
import type { Review, ReviewItem } from '../review/review.ts'

/** One operation of a change, not yet compared with the host. */
export interface Operation {
  readonly item: ReviewItem
  readonly path: string
  /** State recorded in the manifest. */
  readonly expected: PathState
  readonly after: PathState
  /** Given when only some hunks are applied. */
  readonly part?: PartialChange
}

/** The operations of a change, in order. */
export function operationsOf(
  item: ReviewItem,
  { index, changes }: Review,
  part?: PartialChange,
): Operation[] {
  const change = changes.entries.get(item.path)
  if (change === undefined) return []
  const entry = index.get(item.path)
  const expected = manifestState(entry)
  if (part !== undefined)
    return [{ item, path: item.path, expected, after: stateOfPart(part, expected), part }]
  const after = change.kind === 'mode' ? withMode(expected, change.mode) : stateAfter(change)
  if (after === undefined) return []
  const operations: Operation[] = []
  if (expected.kind === 'directory' && after.kind !== 'directory') {
    for (const path of index.below(item.path).reverse()) {
      operations.push({ item, path, expected: manifestState(index.get(path)), after: absent })
    }
  }
  const isSwap =
    expected.kind !== 'absent' && (expected.kind === 'directory') !== (after.kind === 'directory')
  if (isSwap && after.kind !== 'absent') {
    operations.push({ item, path: item.path, expected, after: absent })
    operations.push({ item, path: item.path, expected: absent, after })
  } else operations.push({ item, path: item.path, expected, after })
  return operations
}

/** The mode is that of the host's file: it belongs to the whole change. */
function stateOfPart({ content }: PartialChange, before: PathState): PathState {
  const mode = before.kind === 'file' ? before.mode : 0o644
  return { kind: 'file', mode, size: content.length, sha256: hash('sha256', content) }
}

/** The expected states of paths after the pending operations of a batch. */
export class Ahead {
  readonly #states = new Map<string, PathState>()
  readonly #made = new Set<string>()

  add(path: string, from: PathState, to: PathState): void {
    this.#states.set(path, to)
    if (to.kind === 'directory' && from.kind !== 'directory') this.#made.add(path)
  }

  get(path: string): PathState | undefined {
    // A directory that does not exist yet is empty.
    return (
      this.#states.get(path) ??
      (ancestorsOf(path).some((above) => this.#made.has(above)) ? absent : undefined)
    )
  }
}

export function isExpected(state: PathState, { expected }: Operation, isModeOnly: boolean): boolean {
  if (!isModeOnly) return isSameState(state, expected)
  // A new mode applies to any current content.
  return state.kind === expected.kind && 'mode' in state && 'mode' in expected && state.mode === expected.mode
}

/** New permission bits; a directory keeps set-gid and sticky, which affect its files. */
export function withMode(state: PathState, mode: number): PathState {
  if (state.kind === 'directory') return { ...state, mode: (state.mode & 0o7000) | mode }
  return state.kind === 'file' ? { ...state, mode } : state
}

export function keepSpecialBits(state: PathState, after: PathState): PathState {
  return state.kind === 'directory' && after.kind === 'directory' ? withMode(state, after.mode) : after
}
