/** A review as lines: one per change, then diffs behind a margin. All paths and contents are untrusted. */
import { formatBytes, formatCount } from '../../files/format.ts'
import type { ReviewedChange } from '../../runs/changes.ts'
import type { HistoryReport, ReviewItem, ReviewSide, SetAside } from '../../workspace/index.ts'
import type { Colors } from './colors.ts'
import { sanitizeLine } from './sanitize.ts'

/** In the place of a reason that the history block gives. */
const seeHistory = 'see the git history above'

/**
 * `A path (1.2 kB)` and what a person must know of it.
 * @param history shown above; a reason that it gives is not repeated
 */
export function changeLine(item: ReviewItem, colors: Colors, history: readonly HistoryReport[] = []): string {
  const mark = {
    added: colors.green('A'),
    modified: colors.yellow('M'),
    deleted: colors.red('D'),
    mode: colors.yellow('P'),
    unsupported: colors.red('!'),
  }[item.change]
  const isReported = item.flagged !== undefined && history.some(({ reason }) => reason === item.flagged)
  const why = isReported ? seeHistory : sanitizeLine(item.flagged ?? '')
  const warnings = [
    item.flagged === undefined ? '' : colors.yellow(`flagged: ${why}`),
    item.state.kind === 'conflict' ? colors.red(`conflict: ${sanitizeLine(item.state.reason)}`) : '',
    item.state.kind === 'applied' ? colors.dim('already in place') : '',
    item.reason === undefined ? '' : colors.red(sanitizeLine(item.reason)),
  ].filter((part) => part !== '')
  return `  ${mark} ${sanitizeLine(item.path)}${detailOf(item)}${warnings.length === 0 ? '' : `  ${warnings.join(' · ')}`}`
}

function detailOf(item: ReviewItem): string {
  const { before, after } = item
  if (item.renamedFrom !== undefined) return ` (as ${sanitizeLine(item.renamedFrom)} was)`
  if (item.change === 'mode') return ` (${modeOf(before)} → ${modeOf(after)})`
  if (after?.kind === 'link') return ` → ${sanitizeLine(after.target ?? '')}`
  if (after?.kind === 'file') {
    const isExecutable = ((after.mode ?? 0) & 0o111) !== 0
    const facts = [item.binary === true ? 'binary' : '', isExecutable ? 'executable' : '']
    return ` (${[...facts.filter((fact) => fact !== ''), formatBytes(after.size ?? 0)].join(', ')})`
  }
  if (item.filesBelow !== undefined && item.filesBelow > 0)
    return ` (${formatCount(item.filesBelow, 'file')})`
  return after?.kind === 'directory' ? ' (folder)' : ''
}

function modeOf(side: ReviewSide | undefined): string {
  return (side?.mode ?? 0).toString(8).padStart(3, '0')
}

/** Git objects of one repository that are shown as one line. */
export interface FoldedObjects {
  readonly directory: string
  readonly change: 'added' | 'deleted'
  /** Never empty; the directories that hold the objects are among them. */
  readonly items: readonly ReviewItem[]
}

/** A loose object or a pack, and the directories that hold them, as git names them. */
const objectPath =
  /^objects(\/[0-9a-f]{2}(\/[0-9a-f]{38,62})?|\/pack(\/pack-[0-9a-f]{40,64}\.(pack|idx|rev))?)?$/

/**
 * Replaces the git objects of each repository by one entry where the first of them was. An object is listed by itself
 * where something must be said of it alone: a conflict, or a reason to name it that the history block does not give.
 */
export function foldObjects(
  items: readonly ReviewItem[],
  history: readonly HistoryReport[],
): (ReviewItem | FoldedObjects)[] {
  const folds = new Map<string, ReviewItem[]>()
  const entries: (ReviewItem | FoldedObjects)[] = []
  for (const item of items) {
    const directory = history.find((report) => isPlainObject(item, report))?.directory
    if (directory === undefined) {
      entries.push(item)
      continue
    }
    const change = item.change === 'added' ? 'added' : 'deleted'
    const key = `${change} ${directory}`
    const fold = folds.get(key)
    if (fold !== undefined) fold.push(item)
    else {
      const first = [item]
      folds.set(key, first)
      entries.push({ directory, change, items: first })
    }
  }
  // Directories alone are no objects.
  return entries.flatMap((entry): readonly (ReviewItem | FoldedObjects)[] =>
    'items' in entry && countObjects(entry) === 0 ? entry.items : [entry],
  )
}

function isPlainObject(item: ReviewItem, { directory, reason }: HistoryReport): boolean {
  const { change, before, after, flagged, state } = item
  const side = change === 'added' ? after : change === 'deleted' ? before : undefined
  return (
    (side?.kind === 'directory' || (side?.kind === 'file' && ((side.mode ?? 0) & 0o111) === 0)) &&
    state.kind !== 'conflict' &&
    item.path.startsWith(`${directory}/`) &&
    (flagged === undefined || flagged === reason) &&
    objectPath.test(item.path.slice(directory.length + 1))
  )
}

function countObjects({ items }: FoldedObjects): number {
  return items.reduce((sum, { before, after, filesBelow }) => {
    const isFile = (after ?? before)?.kind === 'file'
    return sum + (isFile ? 1 : (filesBelow ?? 0))
  }, 0)
}

/** `14 git objects in .git`. */
export function nameObjects(objects: FoldedObjects): string {
  return `${formatCount(countObjects(objects), 'git object')} in ${sanitizeLine(objects.directory)}`
}

/** `A 14 git objects in .git (3.2 kB)`. */
export function objectsLine(objects: FoldedObjects, colors: Colors): string {
  const { change, items } = objects
  const mark = change === 'added' ? colors.green('A') : colors.red('D')
  const bytes = items.reduce((sum, { before, after }) => sum + ((after ?? before)?.size ?? 0), 0)
  const warnings = [
    items.some(({ flagged }) => flagged !== undefined) ? colors.yellow(`flagged: ${seeHistory}`) : '',
    items.every(({ state }) => state.kind === 'applied') ? colors.dim('already in place') : '',
  ].filter((part) => part !== '')
  return `  ${mark} ${nameObjects(objects)} (${formatBytes(bytes)})${warnings.length === 0 ? '' : `  ${warnings.join(' · ')}`}`
}

/**
 * The diff of one change behind a margin; color by the first character, which the margin keeps apart from ours.
 * @param bounds lines of the diff that are shown, and characters of each; `rest` counts the lines that are not
 * @param history as for {@link changeLine}
 */
export function diffLines(
  item: ReviewedChange,
  colors: Colors,
  bounds: { readonly maxLines: number; readonly maxChars: number },
  history: readonly HistoryReport[] = [],
): { readonly lines: string[]; readonly rest: number } {
  const head = changeLine(item, colors, history)
  if (item.diff === null) return { lines: [head], rest: 0 }
  const whole = item.diff.split('\n')
  // The two lines that name the files say what the head says. All that follows is content, whatever it looks like.
  const lines = /^--- .*\n\+\+\+ /.test(item.diff) ? whole.slice(2) : whole
  if (lines.at(-1) === '') lines.pop()
  let hunk = 0
  const shown = lines.slice(0, bounds.maxLines).map((line) => {
    const safe = sanitizeLine(line.replaceAll('\t', '  '), bounds.maxChars)
    const isHunk = line.startsWith('@@')
    if (isHunk) hunk += 1
    const note = isHunk && item.hunks.length > 1 ? colors.dim(` hunk ${hunk}`) : ''
    const color = line.startsWith('+')
      ? colors.green
      : line.startsWith('-')
        ? colors.red
        : isHunk
          ? colors.cyan
          : (text: string) => text
    return `    │ ${color(safe)}${note}`
  })
  const rest = lines.length - shown.length
  if (rest > 0) shown.push(`    │ … (${formatCount(rest, 'more line')})`)
  return { lines: [head, ...shown], rest }
}

/** ` (2 of 4 hunks of a.txt)` for what was applied in part. */
export function describeParts(
  parts: readonly { readonly path: string; readonly hunks: number; readonly of: number }[],
): string {
  if (parts.length === 0) return ''
  const named = parts
    .slice(0, 5)
    .map(({ path, hunks, of }) => `${hunks} of ${formatCount(of, 'hunk')} of ${sanitizeLine(path)}`)
  return ` (${named.join(', ')}${parts.length > named.length ? ', …' : ''})`
}

/** References and flagged paths that are listed for a repository. */
const LISTED = 10

/** Nothing where no branch moves and nothing must be named. */
export function historyLines(
  reports: readonly HistoryReport[],
  aside: readonly SetAside[],
  colors: Colors,
): string[] {
  return reports.flatMap((report) => {
    const { directory, moved, flagged, flaggedCount, reason } = report
    if (moved.length === 0 && reason === undefined) return []
    const kept = aside.filter(({ path }) => path.startsWith(`${directory}/`))
    return [
      `git history in ${sanitizeLine(directory)}: ${formatCount(report.commits, 'new commit')}`,
      ...listed(
        moved.map(({ name, from, to }) => `  ${sanitizeLine(name)}: ${shortId(from)} → ${shortId(to)}`),
      ),
      ...(reason === undefined ? [] : [colors.yellow(`  flagged: ${sanitizeLine(reason)}`)]),
      ...listed(
        flagged.map(({ path, reason: why }) =>
          colors.yellow(`  in commits or the index: ${sanitizeLine(path)}: ${sanitizeLine(why)}`),
        ),
        flaggedCount,
      ),
      ...listed(
        kept.map(({ name, aside: under }) => `  ${sanitizeLine(name)} is kept as ${sanitizeLine(under)}`),
      ),
      ...(kept.length === 0
        ? []
        : [
            '  git does not check out or push this reference. To see its commits: git log REFERENCE; to merge them: git merge REFERENCE',
          ]),
    ]
  })
}

function shortId(id: string | undefined): string {
  return id === undefined ? 'none' : id.slice(0, 10)
}

function listed(lines: readonly string[], count = lines.length): string[] {
  const shown = lines.slice(0, LISTED)
  return count > shown.length ? [...shown, `  … ${count - shown.length} more`] : shown
}
