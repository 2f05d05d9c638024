/**
 * Moves flagged commits to a name that git neither checks out nor pushes: `refs/caisson/RUN/heads/main` instead of
 * `refs/heads/main`. The objects are applied anyway; only the names change.
 */
import { createHash } from 'node:crypto'
import path from 'node:path'
import { comparePaths } from '#specs/node/path-text.ts'
import { type ChangeSet, readWhole, type StoredChange } from '../change-set.ts'
import type { ManifestIndex } from '../conflicts.ts'
import type { HistoryReport } from './examine.ts'
import { asideFolder, type MovedReference } from './references.ts'

/** Maximum branches of one repository that are set aside. */
const MAX_REFERENCES = 50

export interface SetAside {
  /** The agent's name, such as `refs/heads/main`. */
  readonly name: string
  /** The name on the host, such as `refs/caisson/run_x/heads/main`. */
  readonly aside: string
  /** Path of that reference's file below the workspace. */
  readonly path: string
}

/** A change set with added references for set-aside commits, and a list of them. */
export function withCommitsAside(
  changes: ChangeSet,
  index: ManifestIndex,
  contents: number,
  reports: readonly HistoryReport[],
): { readonly changes: ChangeSet; readonly aside: readonly SetAside[] } {
  const runId = path.basename(path.dirname(changes.paths.entries))
  const entries = new Map(changes.entries)
  const aside: SetAside[] = []
  for (const report of reports) {
    if (report.reason === undefined || !report.isExamined || !isName(runId)) continue
    const folder = `${report.directory}/${asideFolder}/${runId}`
    // Only if the host has a repository, and the changes add nothing else there.
    if (index.get(`${report.directory}/refs`)?.kind !== 'directory' || isTouched(entries, report.directory))
      continue
    for (const moved of report.moved.slice(0, MAX_REFERENCES)) {
      const file = fileFor(moved, contents, report.idLength)
      const name = moved.name.replace(/^refs\//, '')
      if (file === undefined || !isName(moved.name) || moved.name.startsWith('refs/replace/')) continue
      const at = `${folder}/${name}`
      if (!addFile(entries, index, at, file)) continue
      aside.push({ name: moved.name, aside: `${asideFolder}/${runId}/${name}`, path: at })
    }
  }
  if (aside.length === 0) return { changes, aside }
  const sorted = new Map([...entries].sort(([left], [right]) => comparePaths(left, right)))
  return { changes: { ...changes, entries: sorted }, aside }
}

function isTouched(entries: ReadonlyMap<string, StoredChange>, directory: string): boolean {
  const own = `${directory}/${asideFolder}`
  for (const at of entries.keys()) if (at === own || at.startsWith(`${own}/`)) return true
  return entries.get(`${directory}/refs`)?.kind === 'deleted'
}

/** The object's name in the change set's contents. */
function fileFor({ to, offset }: MovedReference, contents: number, idLength: number) {
  if (to === undefined || offset === undefined) return
  const bytes = readWhole(contents, offset, idLength)
  if (bytes.toString('latin1') !== to) return
  return { mode: 0o644, size: idLength, offset, sha256: createHash('sha256').update(bytes).digest('hex') }
}

/** Adds a file and its parent directories, unless another reference's file is in the way. */
function addFile(
  entries: Map<string, StoredChange>,
  index: ManifestIndex,
  at: string,
  file: { mode: number; size: number; offset: number; sha256: string },
): boolean {
  const missing: string[] = []
  for (
    let above = path.posix.dirname(at);
    index.get(above)?.kind !== 'directory';
    above = path.posix.dirname(above)
  ) {
    const there = entries.get(above)
    if (above === '.' || (there !== undefined && there.kind !== 'directory')) return false
    if (there === undefined) missing.push(above)
  }
  if (entries.has(at)) return false
  for (const above of missing) entries.set(above, { kind: 'directory', path: above, mode: 0o755 })
  entries.set(at, { kind: 'file', path: at, ...file })
  return true
}

/** Whether git accepts a reference name (git-check-ref-format(1)), limited to plain characters. */
function isName(name: string): boolean {
  const parts = name.split('/')
  return (
    name.length <= 200 &&
    !name.includes('..') &&
    parts.every((part) => /^[A-Za-z0-9_][A-Za-z0-9._+-]*$/.test(part) && !/(\.lock|\.)$/i.test(part))
  )
}
