/** Merges changes of one text, by the lines that each replaces. */
import { diffArrays } from 'diff'

/** Lines of the text before, from `at` on, and what is there instead. Lines have their ends. */
export interface LineEdit {
  readonly at: number
  readonly removed: number
  readonly added: readonly string[]
}

/** Lines between two edits that belong to one hunk: twice the context of a diff. */
const hunkGap = 6
const diffMaxEdits = 20_000

/** Undefined when the two differ too much. */
export function editsOf(before: string, after: string): LineEdit[] | undefined {
  const parts = diffArrays(linesOf(before), linesOf(after), { maxEditLength: diffMaxEdits, timeout: 2_000 })
  if (parts === undefined) return undefined
  const edits: LineEdit[] = []
  let at = 0
  let open: { at: number; removed: number; added: string[] } | undefined
  for (const { added, removed, value } of parts) {
    if (!added && !removed) {
      at += value.length
      open = undefined
      continue
    }
    if (open === undefined) {
      open = { at, removed: 0, added: [] }
      edits.push(open)
    }
    if (removed) {
      open.removed += value.length
      at += value.length
    } else open.added.push(...value)
  }
  return edits
}

/** The edits as the hunks of a diff show them. */
export function hunksOf(edits: readonly LineEdit[]): LineEdit[][] {
  const hunks: LineEdit[][] = []
  let end = Number.NEGATIVE_INFINITY
  for (const edit of edits) {
    const last = hunks.at(-1)
    if (last !== undefined && edit.at - end <= hunkGap) last.push(edit)
    else hunks.push([edit])
    end = edit.at + edit.removed
  }
  return hunks
}

/** The text with the edits of several; undefined when two of them, which are not the same, touch each other. */
export function mergeEdits(before: string, sides: readonly (readonly LineEdit[])[]): string | undefined {
  const all = sides.flat().toSorted((a, b) => a.at - b.at || a.removed - b.removed)
  const merged: LineEdit[] = []
  for (const edit of all) {
    const last = merged.at(-1)
    if (last !== undefined && isSameEdit(last, edit)) continue
    // Of two that only meet, nobody knows the order.
    if (last !== undefined && edit.at <= last.at + last.removed) return undefined
    merged.push(edit)
  }
  const lines = linesOf(before)
  const text: string[] = []
  let from = 0
  for (const { at, removed, added } of merged) {
    text.push(...lines.slice(from, at), ...added)
    from = at + removed
  }
  return [...text, ...lines.slice(from)].join('')
}

function isSameEdit(one: LineEdit, other: LineEdit): boolean {
  return one.at === other.at && one.removed === other.removed && one.added.join('') === other.added.join('')
}

function linesOf(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? []
}
