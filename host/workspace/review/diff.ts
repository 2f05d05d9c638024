/**
 * Creates the unified diff of one reviewed change with a library: runs no program and obeys no configuration. Content
 * that is too large, binary or too different gets a sentence instead. The text is untrusted; the caller must escape it.
 */
import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import { closeSync } from 'node:fs'
import { formatPatch, type StructuredPatch, structuredPatch } from 'diff'
import type { ChangedPath } from '#specs/protocol/change.ts'
import { limits } from '#specs/protocol/limits.ts'
import { formatCount } from '../../files/format.ts'
import { type ChangeSet, openContents, readWhole } from '../change-set.ts'
import type { Manifest } from '../manifest.ts'
import { WorkspaceFailure, type WorkspaceResult, workspaceSuccess } from '../workspace-error.ts'
import { Turns } from '../yield-turns.ts'
import { isBinary, type Review, type ReviewItem, reviewChanges } from './review.ts'

interface DiffBounds {
  /** Maximum bytes of the larger side. Absent: 512 KiB. */
  readonly maxBytes?: number
  /** Maximum differing lines. Absent: 5,000. */
  readonly maxEdits?: number
  /** Lines of context. Absent: 3. */
  readonly context?: number
}

type Diff =
  /** A unified diff; empty if only the mode differs. */
  | {
      readonly kind: 'text'
      readonly text: string
      readonly added: number
      readonly removed: number
      readonly patch: StructuredPatch
      /** Content of the host's file. */
      readonly before: string
    }
  /** Why there is no diff. */
  | { readonly kind: 'none'; readonly why: string }

/** The diff from the host's current file to the result of applying. */
export function diffItem(review: Review, item: ReviewItem, bounds: DiffBounds = {}): Diff {
  const maxBytes = bounds.maxBytes ?? 512 * 1024
  if (item.change === 'mode' || item.change === 'unsupported') return none('no content changed')
  if (item.after?.kind === 'directory' || (item.after === undefined && item.before?.kind === 'directory')) {
    return none('a directory')
  }
  const before = oldText(review, item, maxBytes)
  if (typeof before !== 'string') return before
  const after = newText(review, item, maxBytes)
  if (typeof after !== 'string') return after
  return compare(namesOf(item), before, after, bounds)
}

/** Maximum paths of an outline; their text is bounded like a document. */
const outlineMaxPaths = 1_000
/** When lines are no longer counted. */
const countMaxMs = 2_000

/** What the events say of a change set. */
interface ChangeOutline {
  /** The first thousand paths that must be named to be applied, in order. */
  readonly flagged: string[]
  /** The first changes, in order. */
  readonly paths: ChangedPath[]
}

/** Counts lines as far as time allows. Failures: like {@link reviewChanges}. */
export async function outlineChanges(
  manifest: Manifest,
  changes: ChangeSet,
): Promise<WorkspaceResult<ChangeOutline>> {
  const reviewed = await reviewChanges(manifest, changes)
  if (!reviewed.ok) return reviewed
  using review = reviewed.value
  const turns = new Turns()
  const deadline = performance.now() + countMaxMs
  const paths: ChangedPath[] = []
  let chars = 0
  for (const item of review.items.slice(0, outlineMaxPaths)) {
    if (turns.isDue) await turns.give()
    chars += item.path.length + (item.flagged?.length ?? 0)
    if (chars > limits.documentMaxChars) break
    paths.push(outlineItem(review, item, performance.now() < deadline))
  }
  const flagged = review.items.filter((item) => item.flagged !== undefined).map(({ path }) => path)
  return workspaceSuccess({ flagged: flagged.slice(0, outlineMaxPaths), paths })
}

function outlineItem(review: Review, item: ReviewItem, isCounted: boolean): ChangedPath {
  const { path, change, flagged } = item
  const kind = change === 'added' || change === 'deleted' ? change : 'modified'
  // In a conflict the host's file is not what went into the VM.
  const diff = isCounted && item.state.kind === 'clear' ? diffItem(review, item) : none('')
  return {
    path,
    kind,
    ...(diff.kind === 'text' ? { added: diff.added, removed: diff.removed } : {}),
    ...(flagged === undefined ? {} : { flags: [flagged.slice(0, limits.lineMaxChars)] }),
  }
}

/** As `git diff` writes them: without `/dev/null`, whoever applies the patch keeps an empty file in place of a deleted one. */
function namesOf({ path, change, state }: ReviewItem): { readonly old: string; readonly new: string } {
  const isNew = change === 'added' && state.kind === 'clear'
  return { old: isNew ? '/dev/null' : `a/${path}`, new: change === 'deleted' ? '/dev/null' : `b/${path}` }
}

function compare(names: ReturnType<typeof namesOf>, before: string, after: string, bounds: DiffBounds): Diff {
  const patch = structuredPatch(names.old, names.new, before, after, undefined, undefined, {
    context: bounds.context ?? 3,
    maxEditLength: bounds.maxEdits ?? 5_000,
    timeout: 2_000,
  })
  if (patch === undefined) return none('the two texts differ too much to compare line by line')
  // Removes the library's separator line.
  const text = formatPatch(patch).replace(/^=+\n/, '')
  let added = 0
  let removed = 0
  for (const line of text.split('\n').slice(2)) {
    if (line.startsWith('+')) added++
    else if (line.startsWith('-')) removed++
  }
  return { kind: 'text', text: added + removed === 0 ? '' : text, added, removed, patch, before }
}

function oldText(review: Review, item: ReviewItem, maxBytes: number): string | Diff {
  if (item.before === undefined && item.state.kind !== 'conflict') return ''
  const located = review.root.locate(item.path, { links: 'refuse' })
  if (!located.ok) return ''
  using place = located.value
  const link = place.readLink()
  if (link.ok) return `${link.value}\n`
  const opened = place.openFile()
  if (!opened.ok)
    return opened.error.code === 'permission_denied' ? none('the file on the host cannot be read') : ''
  using file = opened.value
  return textOf(file.fd, 0, file.stat.size, maxBytes)
}

function newText(review: Review, item: ReviewItem, maxBytes: number): string | Diff {
  const change = review.changes.entries.get(item.path)
  if (change?.kind === 'link') return `${change.target}\n`
  if (change?.kind !== 'file') return ''
  const contents = openContents(review.changes.paths.contents)
  try {
    return textOf(contents, change.offset, change.size, maxBytes, change.sha256)
  } catch (thrown) {
    if (thrown instanceof WorkspaceFailure) return damaged
    throw thrown
  } finally {
    closeSync(contents)
  }
}

const damaged = none('its stored content is damaged: it is not what the run made, and cannot be applied')

/** @param sha256 the expected digest. Absent: any content */
function textOf(fd: number, offset: number, size: number, maxBytes: number, sha256?: string): string | Diff {
  if (size > maxBytes) return none(`too large to show (${formatCount(size, 'byte')})`)
  const bytes = readWhole(fd, offset, size)
  if (sha256 !== undefined && hash('sha256', bytes) !== sha256) return damaged
  if (isBinary(bytes)) return none(`binary (${formatCount(size, 'byte')})`)
  if (!isUtf8(bytes)) return none(`not UTF-8 text (${formatCount(size, 'byte')})`)
  return bytes.toString('utf8')
}

function none(why: string): Diff {
  return { kind: 'none', why }
}
