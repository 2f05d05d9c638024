/**
 * Hunks: the parts of a file's diff that can be applied by themselves. The diff is that from the host's file now to the
 * run's file.
 */
import { hash } from 'node:crypto'
import { applyPatch, type StructuredPatch } from 'diff'
import { formatCount } from '../../files/format.ts'
import { diffItem } from './diff.ts'
import type { Review, ReviewItem } from './review.ts'

/** One hunk, in the order of the diff. */
export interface Hunk {
  /** Twelve hexadecimal digits. Stays the same while other hunks of the file are applied. */
  readonly id: string
  /** First line in the host's file, from 1, and the number of lines there. */
  readonly oldStart: number
  readonly oldLines: number
  /** The same in the run's file. */
  readonly newStart: number
  readonly newLines: number
}

/** Hunks by path: each by its number in the diff, from 1, or by its ID. */
export type HunkSelection = Readonly<Record<string, readonly (number | string)[]>>

/** A file with some of its hunks applied. */
export interface PartialChange {
  readonly content: Buffer
  /** SHA-256 of the host's file that they were applied to. */
  readonly beforeSha256: string
  /** Number of hunks that are applied. */
  readonly hunks: number
  /** Number of hunks in the diff. */
  readonly of: number
}

export interface ChosenHunks {
  /** By path. A file with every hunk chosen is not here: it is applied whole. */
  readonly parts: ReadonlyMap<string, PartialChange>
  /** Why hunks cannot be chosen, with what to do. */
  readonly problems: readonly string[]
}

/** The hunks of a diff. */
export function hunksOf(patch: StructuredPatch): Hunk[] {
  return patch.hunks.map(({ oldStart, oldLines, newStart, newLines, lines }) => ({
    // The side of the run never changes, whatever is applied before.
    id: hash('sha256', JSON.stringify([newStart, lines])).slice(0, 12),
    ...{ oldStart, oldLines, newStart, newLines },
  }))
}

/** Reads the chosen hunks' files and applies the hunks in memory. Items in another state than `clear` are skipped. */
export function chooseHunks(review: Review, selection: HunkSelection): ChosenHunks {
  const parts = new Map<string, PartialChange>()
  const problems: string[] = []
  for (const [path, names] of Object.entries(selection)) {
    const item = review.items.find((one) => one.path === path)
    // Both are reported with the other paths.
    if (item === undefined || item.state.kind !== 'clear') continue
    const part = chooseFrom(review, item, names)
    if (typeof part === 'string') problems.push(`${JSON.stringify(path)} ${part}`)
    else if (part !== undefined) parts.set(path, part)
  }
  return { parts, problems }
}

/** @returns undefined for every hunk of the file; a text says why they cannot be chosen */
function chooseFrom(
  review: Review,
  item: ReviewItem,
  names: readonly (number | string)[],
): PartialChange | string | undefined {
  const diff = diffItem(review, item)
  if (diff.kind === 'none') return `has no hunks: ${diff.why}`
  const { patch, before } = diff
  const hunks = hunksOf(patch)
  const chosen = new Set<number>()
  for (const name of names) {
    const at = typeof name === 'number' ? name - 1 : hunks.findIndex(({ id }) => id === name)
    if (hunks[at] === undefined)
      return `has no hunk ${JSON.stringify(name)} now; it has ${formatCount(hunks.length, 'hunk')}`
    chosen.add(at)
  }
  if (chosen.size === hunks.length) return undefined
  if (item.before?.kind !== 'file' || item.after?.kind !== 'file')
    return 'changes its kind, so its hunks can only be applied together'
  const text = applyPatch(
    before,
    { ...patch, hunks: patch.hunks.filter((_, at) => chosen.has(at)) },
    { fuzzFactor: 0, autoConvertLineEndings: false },
  )
  if (text === false) return 'does not accept these hunks without the others; apply the whole path'
  return {
    content: Buffer.from(text),
    beforeSha256: hash('sha256', before),
    hunks: chosen.size,
    of: hunks.length,
  }
}
