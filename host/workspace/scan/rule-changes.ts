/**
 * Ignore rules changed by runs. Files that only the changed rules admit stay out of the next VM until a person accepts
 * the change. Files admitted by a person's own edit are not affected, if the run's rules exclude them.
 */
import path from 'node:path'
import { z } from 'zod'
import { RunId, WorkspacePath } from '#specs/protocol/text.ts'
import { readWhole, type StoredChange } from '../change-set.ts'
import type { Review } from '../review/review.ts'
import { WorkspaceFailure } from '../workspace-error.ts'
import { type RuleKind, ScanRules } from './scan-rules.ts'

/** Maximum bytes of an ignore file; a scan refuses larger ones. */
export const IGNORE_FILE_MAX_BYTES = 1024 * 1024

const Text = z.string().max(IGNORE_FILE_MAX_BYTES).nullable()
/** The ignore files changed by one run; null means that the file does not exist. */
export const RuleChange = z.strictObject({
  runId: RunId,
  files: z.array(z.strictObject({ path: WorkspacePath, before: Text, after: Text })),
})
export type RuleChange = z.infer<typeof RuleChange>

/** Whether a scan reads rules from a file. */
function isRuleFile(file: string): boolean {
  // That of a repository below counts once its directory is a workspace itself.
  return (
    /(^|\/)\.git\/info\/exclude$/.test(file) ||
    ['.gitignore', '.caissonignore'].includes(path.posix.basename(file))
  )
}

/** Changes of a change set to ignore files, compared with the host; undefined if there are none. */
export function ruleChangeOf(review: Review, contents: number, runId: string): RuleChange | undefined {
  const files: RuleChange['files'] = []
  for (const change of review.changes.entries.values()) {
    if (change.kind === 'mode' || change.kind === 'unsupported') continue
    if (isRuleFile(change.path))
      files.push({
        path: change.path,
        before: hostText(review, change.path),
        after: changedText(contents, change),
      })
    else if (change.kind !== 'directory')
      for (const below of review.index.below(change.path).filter(isRuleFile))
        files.push({ path: below, before: hostText(review, below), after: null })
  }
  const changed = files.filter(({ before, after }) => before !== after)
  return changed.length === 0 ? undefined : { runId, files: changed }
}

function hostText({ root }: Review, file: string): string | null {
  const located = root.locate(file, { links: 'refuse' })
  if (!located.ok) return null
  using place = located.value
  const opened = place.openFile()
  if (!opened.ok) return null
  using own = opened.value
  return textOf(own.fd, 0, own.stat.size)
}

function changedText(contents: number, change: StoredChange): string | null {
  return change.kind === 'file' ? textOf(contents, change.offset, change.size) : null
}

function textOf(fd: number, offset: number, size: number): string {
  // A scan refuses a larger file; until then it has no rules.
  if (size > IGNORE_FILE_MAX_BYTES) return ''
  return readWhole(fd, offset, size).toString('utf8')
}

/** Merges two consecutive changes. */
export function joinRuleChanges(first: RuleChange, second: RuleChange): RuleChange {
  const files = new Map(first.files.map((file) => [file.path, file]))
  for (const file of second.files)
    files.set(file.path, { ...file, before: (files.get(file.path) ?? file).before })
  return { runId: second.runId, files: [...files.values()] }
}

/** The rules before and after each change, collected during the same walk as the current rules. */
export class HeldRules {
  readonly #pairs: readonly {
    readonly files: ReadonlyMap<string, RuleChange['files'][number]>
    readonly before: ScanRules
    readonly after: ScanRules
  }[]

  constructor(changes: readonly RuleChange[]) {
    this.#pairs = changes.map(({ files }) => ({
      files: new Map(files.map((file) => [file.path, file])),
      before: new ScanRules([]),
      after: new ScanRules([]),
    }))
  }

  /** Adds an ignore file, which may not exist. @param now its current text */
  add(kind: RuleKind, directory: string, file: string, now: string | undefined): void {
    for (const { files, before, after } of this.#pairs) {
      const changed = files.get(file)
      const own = now ?? null
      addRules(before, kind, directory, file, changed === undefined ? own : changed.before)
      addRules(after, kind, directory, file, changed === undefined ? own : changed.after)
    }
  }

  leave(directory: string): void {
    for (const { before, after } of this.#pairs) {
      before.leave(directory)
      after.leave(directory)
    }
  }

  /** Whether a run admitted a path that was excluded before. */
  holds(file: string, isDirectory: boolean): boolean {
    return this.#pairs.some(
      ({ before, after }) =>
        before.decide(file, isDirectory) === 'ignored' && after.decide(file, isDirectory) === 'take',
    )
  }
}

function addRules(
  rules: ScanRules,
  kind: RuleKind,
  directory: string,
  file: string,
  text: string | null,
): void {
  if (text === null) return
  try {
    rules.add(kind, directory, text, file)
  } catch (thrown) {
    // Invalid rules of a run exclude nothing.
    if (!(thrown instanceof WorkspaceFailure)) throw thrown
  }
}
