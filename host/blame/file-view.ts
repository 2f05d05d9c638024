/**
 * A file as one agent sees it at one moment: each line with its source. Views never change, so that a checkpoint or a
 * sub-agent's copy costs nothing.
 */
import { diffArrays } from 'diff'
import type { CallDiff, CallHunk } from './call-diff.ts'

/** A tool call of the journal. */
export interface CallRef {
  readonly agentPath: string
  readonly callId: string
  readonly stepId: string
  readonly tool: string
  readonly startSeq: number
  /** Absent while it is at work. */
  endSeq?: number
  /** Whether the host carries it out: it does not reach the files of the VM. */
  isHost?: boolean
}

export type Source =
  | { readonly kind: 'workspace'; readonly path: string; readonly line: number; readonly moved?: CallRef }
  /** `isOnly`: no diff shows it, but no other call can have done it. */
  | { readonly kind: 'call'; readonly call: CallRef; readonly isOnly?: true }
  /** One of these calls; `more`: how many earlier ones are not named; `access`: or a person with access to the VM. */
  | {
      readonly kind: 'candidates'
      readonly calls: readonly CallRef[]
      readonly more: number
      readonly access: boolean
    }

export interface ViewLine {
  readonly text: string
  readonly source: Source
}

/** Who may have changed the file without saying how, newest first; null is a person with access to the VM. */
export interface Suspects {
  readonly who: CallRef | null
  readonly before: Suspects | null
}

interface Removal {
  readonly line: ViewLine
  readonly by: Source
  readonly before: Removal | null
}

export interface FileView {
  readonly lines: readonly ViewLine[]
  /** What removed the file; null while it is there, and for one that never was. */
  readonly gone: Source | null
  /** Lines that were removed, newest first. */
  readonly removals: Removal | null
  readonly suspects: Suspects | null
}

export const emptyView: FileView = { lines: [], gone: null, removals: null, suspects: null }

/** Calls that are named as candidates of one line. */
export const candidatesMaxCount = 20
/** Lines of a view; a diff that makes more is not followed. */
export const viewMaxLines = 100_000
/** Lines of context in the diffs of calls. */
const contextLines = 3
/** Lines around the place of a hunk that are searched when the file is not as the hunk says. */
const windowLines = 200
const diffMaxEdits = 20_000
const diffMaxMs = 2_000

const unknown: Source = { kind: 'candidates', calls: [], more: 0, access: false }
const known = new WeakMap<Suspects, Source>()

/** Who made what no diff explains: a single suspect is the one. */
export function suspectsOf({ suspects }: Pick<FileView, 'suspects'>): Source {
  if (suspects === null) return unknown
  const before = known.get(suspects)
  if (before !== undefined) return before
  const calls: CallRef[] = []
  let more = 0
  let access = false
  for (let at: Suspects | null = suspects; at !== null; at = at.before) {
    if (at.who === null) access = true
    else if (at.who.isHost === true || calls.includes(at.who)) continue
    else if (calls.length < candidatesMaxCount) calls.push(at.who)
    else more += 1
  }
  const [only, ...others] = calls
  const source: Source =
    only !== undefined && others.length === 0 && !access
      ? { kind: 'call', call: only, isOnly: true }
      : { kind: 'candidates', calls, more, access }
  known.set(suspects, source)
  return source
}

export function withSuspect(view: FileView, who: CallRef | null): FileView {
  return { ...view, suspects: { who, before: view.suspects } }
}

export function withoutFile(view: FileView, by: Source): FileView {
  return { ...view, lines: [], gone: by, removals: allRemoved(view, by) }
}

/** The file `from` in the place of another, as `move` left it. */
export function movedView(target: FileView, from: FileView, move: CallRef): FileView {
  const lines = from.lines.map(
    (line): ViewLine =>
      line.source.kind === 'workspace' ? { ...line, source: { ...line.source, moved: move } } : line,
  )
  const removals = allRemoved(target, { kind: 'call', call: move })
  return { lines, gone: null, removals, suspects: from.suspects }
}

/** The file after a call. Where it was not as the diff says, the suspects changed it before. */
export function withDiff(before: FileView, diff: CallDiff, call: CallRef): FileView {
  const view = diff.wasEmpty && before.lines.length > 0 ? withoutFile(before, suspectsOf(before)) : before
  const by: Source = { kind: 'call', call }
  const out: ViewLine[] = []
  let { removals } = view
  const remove = (line: ViewLine, remover: Source) => {
    removals = { line, by: remover, before: removals }
  }
  const elsewhere = finderOf(view)
  let cursor = 0
  let drift = 0
  let isAllShown = diff.isWhole && diff.hunks.length === 1
  for (const hunk of diff.hunks) {
    const old = hunk.lines.flatMap(({ mark, text }) => (mark === '+' ? [] : [text]))
    const place = placeOf(view.lines, old, hunk.at + drift, cursor)
    for (const line of view.lines.slice(cursor, place.from)) out.push(line)
    const present = place.isExact
      ? view.lines.slice(place.from, place.to)
      : elsewhere(aligned(view.lines.slice(place.from, place.to), old, suspectsOf(view), remove))
    const isAll = place.isExact && place.from === 0 && place.to === view.lines.length
    if (!isAll || hunk.at > 0 || !showsEnd(hunk)) isAllShown = false
    appendHunk(out, hunk, present, by, remove)
    cursor = place.to
    drift = place.to - (hunk.at + old.length)
  }
  for (const line of view.lines.slice(cursor)) out.push(line)
  if (out.length > viewMaxLines) return withSuspect(before, call)
  const after: FileView = { lines: out, gone: null, removals, suspects: view.suspects }
  if (!diff.isWhole) return withSuspect(after, call)
  // What was done before is known line by line now.
  return isAllShown ? { ...after, suspects: atWork(view.suspects) } : after
}

/** Whether there is nothing behind the lines of a hunk: with fewer lines of context than a diff gives. */
function showsEnd({ lines }: CallHunk): boolean {
  return lines.slice(-contextLines).some(({ mark }) => mark !== ' ') || lines.length < contextLines
}

function appendHunk(
  out: ViewLine[],
  { lines }: CallHunk,
  present: readonly ViewLine[],
  by: Source,
  remove: (line: ViewLine, by: Source) => void,
): void {
  let at = 0
  for (const { mark, text } of lines) {
    if (mark === '+') {
      out.push({ text, source: by })
      continue
    }
    const line = present[at]
    at += 1
    if (line === undefined) continue
    if (mark === ' ') out.push(line)
    else remove(line, by)
  }
}

interface Place {
  readonly from: number
  readonly to: number
  readonly isExact: boolean
}

/** Where the old lines of a hunk are, nearest to where they were expected. */
function placeOf(
  lines: readonly ViewLine[],
  old: readonly string[],
  expected: number,
  cursor: number,
): Place {
  const start = Math.min(Math.max(expected, cursor), lines.length)
  if (old.length === 0) return { from: start, to: start, isExact: true }
  const isAt = (at: number) =>
    at >= cursor &&
    at + old.length <= lines.length &&
    old.every((text, index) => lines[at + index]?.text === text)
  const farthest = Math.max(start - cursor, lines.length - start)
  for (let far = 0; far <= farthest; far += 1)
    for (const at of far === 0 ? [start] : [start - far, start + far])
      if (isAt(at)) return { from: at, to: at + old.length, isExact: true }
  return approximatePlace(lines, old, start, cursor)
}

/**
 * From the first to the last of the old lines that is there. Where none is, the old lines came between others: those that
 * they replaced in truth are missing in the file at the end.
 */
function approximatePlace(
  lines: readonly ViewLine[],
  old: readonly string[],
  start: number,
  cursor: number,
): Place {
  const low = Math.max(cursor, start - windowLines)
  const high = Math.min(lines.length, start + old.length + windowLines)
  const texts = lines.slice(low, high).map(({ text }) => text)
  let from: number | undefined
  let to = low
  let at = low
  for (const { added, removed, value } of differences(texts, old)) {
    if (!added && !removed) {
      from ??= at
      to = at + value.length
    }
    if (!added) at += value.length
  }
  if (from !== undefined) return { from, to, isExact: false }
  return { from: start, to: start, isExact: false }
}

/**
 * Lines with these texts: those that were there keep their source, the others are by `by`. A text that is missing once and
 * new once is a line at another place.
 */
export function aligned(
  lines: readonly ViewLine[],
  texts: readonly string[],
  by: Source,
  remove: (line: ViewLine, by: Source) => void,
): ViewLine[] {
  const out: (ViewLine | string)[] = []
  const missing: ViewLine[] = []
  let at = 0
  const had = lines.map(({ text }) => text)
  for (const { added, removed, value } of differences(had, texts)) {
    if (added) for (const text of value) out.push(text)
    else {
      for (const line of lines.slice(at, at + value.length)) (removed ? missing : out).push(line)
      at += value.length
    }
  }
  const fresh = uniqueOf(out.flatMap((line) => (typeof line === 'string' ? [{ text: line }] : [])))
  const lost = uniqueOf(missing)
  const moved = (text: string) => (fresh.has(text) ? lost.get(text) : undefined)
  for (const line of missing) if (moved(line.text) === undefined) remove(line, by)
  return out.map((line) => (typeof line === 'string' ? (moved(line) ?? { text: line, source: by }) : line))
}

/** For lines of unknown origin: those whose text the file has once, at another place, are those. */
function finderOf(view: FileView): (present: readonly ViewLine[]) => readonly ViewLine[] {
  const by = suspectsOf(view)
  let known: ReadonlyMap<string, ViewLine> | undefined
  return (present) => {
    known ??= uniqueOf(view.lines)
    const lines = known
    return present.map((line) => (line.source === by ? (lines.get(line.text) ?? line) : line))
  }
}

/** The lines whose text occurs once. */
function uniqueOf<T extends { readonly text: string }>(lines: readonly T[]): ReadonlyMap<string, T> {
  const found = new Map<string, T>()
  const twice = new Set<string>()
  for (const line of lines) {
    if (found.has(line.text)) twice.add(line.text)
    else found.set(line.text, line)
  }
  for (const text of twice) found.delete(text)
  return found
}

interface Difference {
  readonly added: boolean
  readonly removed: boolean
  readonly value: readonly string[]
}

/** Where two texts differ too much, only what they begin and end with alike counts as the same. */
export function differences(before: readonly string[], after: readonly string[]): readonly Difference[] {
  const options = { maxEditLength: diffMaxEdits, timeout: diffMaxMs }
  const found = diffArrays([...before], [...after], options)
  if (found !== undefined) return found
  const shorter = Math.min(before.length, after.length)
  let head = 0
  while (head < shorter && before[head] === after[head]) head += 1
  let tail = 0
  while (tail < shorter - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1
  const same = (value: readonly string[]) => ({ added: false, removed: false, value })
  return [
    same(before.slice(0, head)),
    { added: false, removed: true, value: before.slice(head, before.length - tail) },
    { added: true, removed: false, value: after.slice(head, after.length - tail) },
    same(before.slice(before.length - tail)),
  ]
}

/** The suspects that can still write. */
function atWork(suspects: Suspects | null): Suspects | null {
  const open: (CallRef | null)[] = []
  for (let at = suspects; at !== null; at = at.before)
    if (at.who !== null && at.who.endSeq === undefined) open.push(at.who)
  return open.reduceRight<Suspects | null>((before, who) => ({ who, before }), null)
}

function allRemoved({ lines, removals }: FileView, by: Source): Removal | null {
  return lines.reduce<Removal | null>((before, line) => ({ line, by, before }), removals)
}
