/** A review as lines: one per change, then diffs behind a margin. All paths and contents are foreign. */
import type { ReviewedChange } from '../runs/changes.ts'
import type { ReviewItem, ReviewSide } from '../workspace/index.ts'
import type { Colours } from './colours.ts'
import { foreignLine } from './foreign.ts'
import { formatBytes, formatCount } from './format.ts'

/** `A path (1.2 kB)` and what a person must know of it. */
export function changeLine(item: ReviewItem, colours: Colours): string {
  const mark = {
    added: colours.green('A'),
    modified: colours.yellow('M'),
    deleted: colours.red('D'),
    mode: colours.yellow('P'),
    unsupported: colours.red('!'),
  }[item.change]
  const warnings = [
    item.flagged === undefined ? '' : colours.yellow(`flagged: ${foreignLine(item.flagged)}`),
    item.standing.kind === 'conflict' ? colours.red(`conflict: ${foreignLine(item.standing.reason)}`) : '',
    item.standing.kind === 'applied' ? colours.dim('already in place') : '',
    item.reason === undefined ? '' : colours.red(foreignLine(item.reason)),
  ].filter((part) => part !== '')
  return `  ${mark} ${foreignLine(item.path)}${detailOf(item)}${warnings.length === 0 ? '' : `  ${warnings.join(' · ')}`}`
}

function detailOf(item: ReviewItem): string {
  const { before, after } = item
  if (item.renamedFrom !== undefined) return ` (as ${foreignLine(item.renamedFrom)} was)`
  if (item.change === 'mode') return ` (${modeOf(before)} → ${modeOf(after)})`
  if (after?.kind === 'link') return ` → ${foreignLine(after.target ?? '')}`
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

/**
 * The diff of one change behind a margin; colour by the first character, which the margin keeps apart from ours.
 * @param bounds lines of the diff that are shown, and characters of each; `rest` counts the lines that are not
 */
export function diffLines(
  item: ReviewedChange,
  colours: Colours,
  bounds: { readonly maxLines: number; readonly maxChars: number },
): { readonly lines: string[]; readonly rest: number } {
  const head = changeLine(item, colours)
  if (item.diff === null) return { lines: [head], rest: 0 }
  const whole = item.diff.split('\n')
  // The two lines that name the files say what the head says. All that follows is content, whatever it looks like.
  const lines = /^--- .*\n\+\+\+ /.test(item.diff) ? whole.slice(2) : whole
  if (lines.at(-1) === '') lines.pop()
  const shown = lines.slice(0, bounds.maxLines).map((line) => {
    const safe = foreignLine(line.replaceAll('\t', '  '), bounds.maxChars)
    const colour = line.startsWith('+')
      ? colours.green
      : line.startsWith('-')
        ? colours.red
        : line.startsWith('@@')
          ? colours.cyan
          : (text: string) => text
    return `    │ ${colour(safe)}`
  })
  const rest = lines.length - shown.length
  if (rest > 0) shown.push(`    │ … (${formatCount(rest, 'more line')})`)
  return { lines: [head, ...shown], rest }
}
