/**
 * Merges the changes of several runs, which began with the same files, into one change set: what one of them changed, and
 * what several changed in different lines. What they did differently is a conflict that a person decides by path or hunk.
 */

import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import { closeSync } from 'node:fs'
import { CaissonError } from '#specs/errors.ts'
import { requireValue } from '../runs/prepare.ts'
import { isBinary, openContents, readVersions, readWhole, type StoredChange } from '../workspace/index.ts'
import { editsOf, hunksOf, type LineEdit, mergeEdits } from './merge-lines.ts'
import { changedPaths, type RunOutcomeFiles, signatureOf } from './results.ts'

/** A person's choice: the change that this run made to a path, or some hunks of it. */
export interface Take {
  readonly runId: string
  readonly path: string
  /** Numbers of hunks, from 1, as a diff of the run's change shows them. Absent: the whole change. */
  readonly hunks?: readonly number[]
}

export interface MergeConflict {
  readonly path: string
  readonly reason: string
}

/** One path of the merged change set: as a run has it, or a text that was merged. */
export type MergedChange =
  | { readonly change: StoredChange; readonly from: RunOutcomeFiles }
  | { readonly path: string; readonly mode: number; readonly content: Buffer }

export interface MergePlan {
  readonly changes: readonly MergedChange[]
  readonly conflicts: readonly MergeConflict[]
  /** Paths whose content comes from more than one run. */
  readonly merged: readonly string[]
}

/** Bytes of a file whose lines are merged. */
const textMaxBytes = 1024 * 1024

/** @throws {CaissonError} `invalid_options` when a choice names no change, or no hunk of it */
export function planMerge(results: readonly RunOutcomeFiles[], takes: readonly Take[]): MergePlan {
  for (const take of takes) requireChange(results, take)
  const changes: MergedChange[] = []
  const conflicts: MergeConflict[] = []
  const merged: string[] = []
  for (const path of changedPaths(results)) {
    const outcome = mergePath(
      path,
      results,
      takes.filter((take) => take.path === path),
    )
    if (outcome === null) continue
    if (typeof outcome === 'string') conflicts.push({ path, reason: outcome })
    else changes.push(outcome)
    if (typeof outcome !== 'string' && 'content' in outcome) merged.push(path)
  }
  conflicts.push(...nestingConflicts(changes))
  return { changes, conflicts, merged }
}

/** Null: the path stays as it was. A text: why a person must decide. */
function mergePath(
  path: string,
  results: readonly RunOutcomeFiles[],
  takes: readonly Take[],
): MergedChange | null | string {
  const sides = results.flatMap((from) => {
    const change = from.changes.entries.get(path)
    return change === undefined ? [] : [{ from, change }]
  })
  if (takes.length > 0) return mergeTaken(path, sides, takes)
  const different = new Map(sides.map((side) => [signatureOf(side.change), side]))
  const [first, ...others] = different.values()
  if (first === undefined) return null
  if (others.length === 0) return first
  const names = [...different.values()].map(({ from }) => from.runId).join(', ')
  const texts = textsOf(path, [first, ...others])
  if (typeof texts === 'string') return `${texts}; it differs in ${names}`
  const content = mergeEdits(texts.before, texts.sides)
  if (content === undefined) return `the same lines differ in ${names}`
  return { path, mode: texts.mode, content: Buffer.from(content) }
}

type Side = { readonly from: RunOutcomeFiles; readonly change: StoredChange }

function mergeTaken(path: string, sides: readonly Side[], takes: readonly Take[]): MergedChange | string {
  const sideOf = ({ runId }: Take) => sides.find(({ from }) => from.runId === runId)
  const [only, ...others] = takes
  const first = only === undefined ? undefined : sideOf(only)
  if (first !== undefined && others.length === 0 && only?.hunks === undefined) return first
  const chosen = takes.flatMap((take) => sideOf(take) ?? [])
  const texts = textsOf(path, chosen)
  if (typeof texts === 'string') return `${texts}; take the whole change of one run`
  const edits = takes.map((take, index) => hunksTaken(texts.sides[index] ?? [], take))
  const content = mergeEdits(texts.before, edits)
  if (content === undefined) return 'the hunks that were taken change the same lines'
  return { path, mode: texts.mode, content: Buffer.from(content) }
}

function hunksTaken(edits: readonly LineEdit[], { hunks, path, runId }: Take): LineEdit[] {
  if (hunks === undefined) return [...edits]
  const all = hunksOf(edits)
  return hunks.flatMap((number) => {
    const hunk = all[number - 1]
    if (hunk !== undefined) return hunk
    throw new CaissonError(
      'invalid_options',
      `the change of ${JSON.stringify(path)} in ${runId} has ${all.length} hunks, and no hunk ${number}`,
      { remedy: `see them: caisson workspace diff ${runId} PATH --patch` },
    )
  })
}

/** The text before, and the edits of each side; a text says why there are none. */
function textsOf(
  path: string,
  sides: readonly Side[],
): { readonly before: string; readonly sides: LineEdit[][]; readonly mode: number } | string {
  const [first] = sides
  if (first === undefined) return 'no run has it'
  const modes = new Set<number>()
  const all: LineEdit[][] = []
  let before: string | undefined
  for (const { from, change } of sides) {
    if (change.kind !== 'file') return 'it is not a file in each of them'
    modes.add(change.mode)
    const versions = requireValue(readVersions(from.manifest, from.changes, from.paths.directory, path))
    const base = 'content' in versions.base ? versions.base.content : undefined
    const run = 'content' in versions.run ? versions.run.content : undefined
    // Of a file that did not exist all lines are new, in each run from the first on.
    if (base === undefined)
      return from.manifest.entries.has(path) ? 'what it was before is not kept' : 'it is new'
    if (run === undefined || !isText(base) || !isText(run)) return 'it is not a text of at most 1 MiB'
    before ??= base.toString('utf8')
    const edits = editsOf(before, run.toString('utf8'))
    if (edits === undefined) return 'its lines differ too much'
    all.push(edits)
  }
  const base = first.from.manifest.entries.get(path)
  const own = base?.kind === 'file' ? base.mode & 0o777 : undefined
  const changed = [...modes].filter((mode) => mode !== own)
  if (changed.length > 1) return 'its mode differs'
  return { before: before ?? '', sides: all, mode: changed[0] ?? own ?? 0o644 }
}

function isText(content: Buffer): boolean {
  return content.length <= textMaxBytes && !isBinary(content) && isUtf8(content)
}

/** What lies below a path that another run removed or made a file of. */
function nestingConflicts(changes: readonly MergedChange[]): MergeConflict[] {
  const kinds = new Map(
    changes.map((one) => ('change' in one ? [one.change.path, one.change.kind] : [one.path, 'file'])),
  )
  return [...kinds].flatMap(([path, kind]) => {
    if (kind === 'deleted') return []
    const parts = path.split('/')
    const above = parts.slice(1).map((_, index) => parts.slice(0, index + 1).join('/'))
    const gone = above.find((one) => !['directory', 'mode', undefined].includes(kinds.get(one)))
    return gone === undefined ? [] : [{ path, reason: `another run removed or replaced ${gone}` }]
  })
}

function requireChange(results: readonly RunOutcomeFiles[], { runId, path }: Take): void {
  const result = results.find((one) => one.runId === runId)
  if (result?.changes.entries.has(path) === true) return
  throw new CaissonError(
    'invalid_options',
    result === undefined
      ? `${runId} is none of the runs to merge`
      : `no change of ${runId} has the path ${JSON.stringify(path)}`,
  )
}

/** The contents of a merged change, in pieces, with its digest; undefined for what has none. */
export function contentOf(
  one: MergedChange,
): { readonly bytes: Buffer; readonly sha256: string } | undefined {
  if ('content' in one) return { bytes: one.content, sha256: hash('sha256', one.content) }
  const { change, from } = one
  if (change.kind !== 'file') return undefined
  const contents = openContents(from.changes.paths.contents)
  try {
    return { bytes: readWhole(contents, change.offset, change.size), sha256: change.sha256 }
  } finally {
    closeSync(contents)
  }
}
