/** The unified diff of one file as rows, hunk by hunk. Pure: rows are text. */

export interface DiffRow {
  readonly kind: 'context' | 'added' | 'removed' | 'note'
  readonly text: string
  /** Line numbers; absent where the side has no such line. */
  readonly old?: number
  readonly new?: number
}

export interface DiffHunk {
  readonly header: string
  readonly rows: readonly DiffRow[]
}

const hunkHead = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/

/** Lines before the first hunk (names of files) are left out. */
export function diffHunks(diff: string): DiffHunk[] {
  const hunks: { header: string; rows: DiffRow[] }[] = []
  let oldLine = 0
  let newLine = 0
  const lines = diff.split('\n')
  if (lines.at(-1) === '') lines.pop()
  for (const line of lines) {
    const head = hunkHead.exec(line)
    if (head !== null) {
      oldLine = Number(head[1])
      newLine = Number(head[2])
      hunks.push({ header: line, rows: [] })
      continue
    }
    const rows = hunks.at(-1)?.rows
    if (rows === undefined) continue
    const text = line.slice(1)
    if (line.startsWith('+')) rows.push({ kind: 'added', text, new: newLine++ })
    else if (line.startsWith('-')) rows.push({ kind: 'removed', text, old: oldLine++ })
    else if (line.startsWith('\\')) rows.push({ kind: 'note', text: line.slice(2) })
    else rows.push({ kind: 'context', text, old: oldLine++, new: newLine++ })
  }
  return hunks
}

/** Whether a preview has a diff in it. */
export function hasDiff(text: string): boolean {
  return /^@@ -\d/m.test(text)
}
