/** Reads the diffs that the agent reports of its calls. They are claims of the guest: what is no diff is left out. */

/** A part of a diff, with the lines as the call found and left them. */
export interface CallHunk {
  /** Position of its first old line, from 0. */
  readonly at: number
  readonly lines: readonly { readonly mark: ' ' | '+' | '-'; readonly text: string }[]
}

export interface CallDiff {
  readonly hunks: readonly CallHunk[]
  /** Whether it has every line that the call added and removed. */
  readonly isWhole: boolean
  /** Whether the file had no line before the call. */
  readonly wasEmpty: boolean
}

const header = /^@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,\d{1,9})? @@/

export function readCallDiff({
  diff = '',
  added,
  removed,
}: {
  readonly diff?: string | undefined
  readonly added: number
  readonly removed: number
}): CallDiff {
  const hunks: { at: number; lines: { mark: ' ' | '+' | '-'; text: string }[] }[] = []
  let isEmpty = false
  let seenAdded = 0
  let seenRemoved = 0
  for (const line of diff.split('\n')) {
    const found = header.exec(line)
    if (found !== null) {
      const start = Number(found[1])
      const isWithoutOld = found[2] === '0'
      if (start === 0 && isWithoutOld) isEmpty = true
      // Without old lines, the number is that of the line before.
      hunks.push({ at: isWithoutOld ? start : Math.max(0, start - 1), lines: [] })
      continue
    }
    const mark = line[0]
    if (mark !== ' ' && mark !== '+' && mark !== '-') continue
    if (mark === '+') seenAdded += 1
    if (mark === '-') seenRemoved += 1
    hunks.at(-1)?.lines.push({ mark, text: line.slice(1) })
  }
  const isWhole = hunks.length > 0 && seenAdded === added && seenRemoved === removed
  return { hunks, isWhole, wasEmpty: isEmpty && hunks.length === 1 }
}

/** The lines of a text, without their ends. */
export function linesOfText(text: string): string[] {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}
