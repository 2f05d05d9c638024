/**
 * Says for each line of a file that a run changed where it is from: the workspace, or a call of the run and what led to
 * it. Computed from the journal and the kept versions; where the journal leaves it open, several calls are named.
 */
import { isUtf8 } from 'node:buffer'
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { RunStore } from '../journal/run-store.ts'
import type { RunChanges } from '../runs/changes.ts'
import { isBinary } from '../workspace/index.ts'
import { type BlamedCall, CallDetails } from './call-details.ts'
import { linesOfText } from './call-diff.ts'
import {
  aligned,
  type CallRef,
  differences,
  emptyView,
  type FileView,
  type Source,
  suspectsOf,
  type ViewLine,
} from './file-view.ts'
import { Moves } from './moves.ts'
import { FileTrace } from './trace-file.ts'

/** Where a line is from. Calls are positions in {@link Blame.calls}, from 0. */
export type LineOrigin =
  /** It was in the workspace, at this line of this path; `moved`: the call that renamed the file. */
  | { readonly kind: 'workspace'; readonly path: string; readonly line: number; readonly moved?: number }
  | { readonly kind: 'call'; readonly call: number }
  /**
   * One of these calls: those that name the file first, then newest first; none: the journal does not say. `more`: how many
   * earlier calls are not named; `access`: or a person with a terminal or port of the VM.
   */
  | {
      readonly kind: 'candidates'
      readonly calls: readonly number[]
      readonly more: number
      readonly access: boolean
    }

export interface BlamedLine {
  /** From 1; of a removed line, in the file as it went into the VM. */
  readonly line: number
  /** Without the end of the line. Untrusted text. */
  readonly text: string
  readonly origin: LineOrigin
}

export interface Blame {
  readonly runId: string
  readonly path: string
  readonly change: 'added' | 'modified' | 'deleted'
  /** The run's task; the beginning. */
  readonly prompt: string
  /** The file as the run made it; none of a deleted one. */
  readonly lines: readonly BlamedLine[]
  /** Lines that the run removed, and what removed them. */
  readonly removed: readonly BlamedLine[]
  /** What deleted the file; absent when it is there. */
  readonly deletion?: LineOrigin
  readonly calls: readonly BlamedCall[]
}

export interface BlameOptions {
  readonly signal?: AbortSignal
}

/** Bounds of a file whose lines are explained, and of the calls that are named. */
const textMaxBytes = 1024 * 1024
const linesMaxCount = 20_000
const callsMaxCount = 1_000

/** @throws {CaissonError} `invalid_options`, `not_possible_now` */
export async function blameFile(
  store: RunStore,
  changes: RunChanges,
  path: string,
  { signal }: BlameOptions = {},
): Promise<Blame> {
  const { runId } = changes
  const { base, run } = await changes.versions(path)
  const isDeleted = 'none' in run && run.none === 'the run deleted it'
  if ('none' in run && !isDeleted) throw cannot(path, run.none)
  const before = 'content' in base ? textOf(path, base.content) : undefined
  if (before === undefined && changes.wentIn(path) && !isDeleted && 'none' in base)
    throw cannot(path, base.none)
  const after = 'content' in run ? textOf(path, run.content) : []

  const moves = new Moves()
  await store.visit(runId, (line) => {
    signal?.throwIfAborted()
    if (line.event.type === 'run-start' && line.event.mergedFrom !== undefined)
      throw new CaissonError('not_possible_now', `${runId} merges other runs: no call of it changed a file`, {
        remedy: `ask the runs that it merges: ${line.event.mergedFrom.join(', ')}`,
      })
    moves.next(line)
  })
  const start = new Map<string, FileView>()
  for (const one of moves.pathsBehind(path))
    start.set(one, startView(one, one === path ? before : await sourceText(changes, one)))
  const trace = new FileTrace(start)
  await store.visit(runId, (line) => {
    signal?.throwIfAborted()
    trace.next(line)
  })
  const view = trace.at(path)
  const found = {
    lines: sourcesOf(view, path, before ?? [], after),
    removed: removedOf(view, path, before ?? [], after),
  }
  const deletion = isDeleted ? (view.gone ?? view.removals?.by ?? suspectsOf(view)) : undefined
  return await describe(
    store,
    { runId, path, change: changeOf(isDeleted, changes.wentIn(path)) },
    found,
    deletion,
  )
}

function changeOf(isDeleted: boolean, wentIn: boolean): Blame['change'] {
  if (isDeleted) return 'deleted'
  return wentIn ? 'modified' : 'added'
}

/** Of a path that the file may have had before; undefined when its content is not known. */
async function sourceText(changes: RunChanges, path: string): Promise<string[] | undefined> {
  try {
    const base = await changes.before(path)
    return 'content' in base ? textOf(path, base.content) : undefined
  } catch (error) {
    if (hasCode(error, 'invalid_options', 'not_possible_now')) return undefined
    throw error
  }
}

function startView(path: string, texts: readonly string[] = []): FileView {
  const lines = texts.map((text, index): ViewLine => {
    return { text, source: { kind: 'workspace', path, line: index + 1 } }
  })
  return { ...emptyView, lines }
}

/** The file as the run made it. What nobody reported and did not change is from the workspace. */
function sourcesOf(
  view: FileView,
  path: string,
  before: readonly string[],
  after: readonly string[],
): ViewLine[] {
  const lines = aligned(view.lines, after, suspectsOf(view), () => undefined)
  let old = 0
  let at = 0
  for (const { added, removed, value } of differences(before, after)) {
    if (!added && !removed)
      for (const index of value.keys()) {
        const line = lines[at + index]
        if (line === undefined || !isOpen(line.source)) continue
        lines[at + index] = { text: line.text, source: { kind: 'workspace', path, line: old + index + 1 } }
      }
    if (!added) old += value.length
    if (!removed) at += value.length
  }
  return lines
}

/** Whether no diff shows who made a line. */
function isOpen(source: Source): boolean {
  return source.kind === 'candidates' || (source.kind === 'call' && source.isOnly === true)
}

function removedOf(
  view: FileView,
  path: string,
  before: readonly string[],
  after: readonly string[],
): { readonly line: number; readonly text: string; readonly source: Source }[] {
  const known = new Map<number, Source>()
  for (let at = view.removals; at !== null; at = at.before) {
    const { source } = at.line
    if (source.kind === 'workspace' && source.path === path && !known.has(source.line))
      known.set(source.line, at.by)
  }
  const removed: { line: number; text: string; source: Source }[] = []
  let line = 0
  for (const part of differences(before, after)) {
    if (part.added) continue
    for (const text of part.value) {
      line += 1
      if (part.removed) removed.push({ line, text, source: known.get(line) ?? suspectsOf(view) })
    }
  }
  return removed
}

interface Found {
  readonly lines: readonly ViewLine[]
  readonly removed: readonly { readonly line: number; readonly text: string; readonly source: Source }[]
}

async function describe(
  store: RunStore,
  about: Pick<Blame, 'runId' | 'path' | 'change'>,
  { lines, removed }: Found,
  deletion: Source | undefined,
): Promise<Blame> {
  const sources = new Set([...lines, ...removed].map(({ source }) => source))
  if (deletion !== undefined) sources.add(deletion)
  const calls = new Set([...sources].flatMap(callsOf))
  if (calls.size > callsMaxCount)
    throw new CaissonError(
      'not_possible_now',
      `${calls.size} calls changed ${JSON.stringify(about.path)}; at most ${callsMaxCount} can be named`,
    )
  const details = new CallDetails(calls)
  await store.visit(about.runId, (line) => details.next(line))
  const positions = new Map<CallRef, number>()
  const named: BlamedCall[] = []
  for (const call of [...calls].toSorted((a, b) => a.startSeq - b.startSeq)) {
    const detail = details.of(call)
    if (detail === undefined) continue
    positions.set(call, named.length)
    named.push(detail)
  }
  const name = about.path.slice(about.path.lastIndexOf('/') + 1)
  const isNamed = (at: number) => named[at]?.arguments.includes(name) === true
  const origin = (source: Source) => originOf(source, positions, isNamed)
  return {
    ...about,
    prompt: details.prompt,
    lines: lines.map(({ text, source }, index) => ({ line: index + 1, text, origin: origin(source) })),
    removed: removed.map(({ line, text, source }) => ({ line, text, origin: origin(source) })),
    ...(deletion === undefined ? {} : { deletion: origin(deletion) }),
    calls: named,
  }
}

function callsOf(source: Source): readonly CallRef[] {
  if (source.kind === 'call') return [source.call]
  if (source.kind === 'candidates') return source.calls
  return source.moved === undefined ? [] : [source.moved]
}

function originOf(
  source: Source,
  positions: ReadonlyMap<CallRef, number>,
  isNamed: (call: number) => boolean,
): LineOrigin {
  const calls = callsOf(source).flatMap((call) => positions.get(call) ?? [])
  const [first] = calls
  if (source.kind === 'workspace') {
    const { path, line } = source
    return { kind: 'workspace', path, line, ...(first === undefined ? {} : { moved: first }) }
  }
  if (source.kind === 'call' && first !== undefined) return { kind: 'call', call: first }
  const { more, access } = source.kind === 'candidates' ? source : { more: 0, access: false }
  const ordered = calls.toSorted((a, b) => Number(isNamed(b)) - Number(isNamed(a)))
  return { kind: 'candidates', calls: ordered, more, access }
}

function textOf(path: string, content: Buffer): string[] {
  if (content.length > textMaxBytes) throw tooLong(path, `${content.length} bytes`, `${textMaxBytes} bytes`)
  if (isBinary(content) || !isUtf8(content)) throw cannot(path, 'it is no text in UTF-8')
  const lines = linesOfText(content.toString('utf8'))
  if (lines.length > linesMaxCount) throw tooLong(path, `${lines.length} lines`, `${linesMaxCount} lines`)
  return lines
}

function cannot(path: string, why: string): CaissonError {
  return new CaissonError(
    'not_possible_now',
    `the lines of ${JSON.stringify(path)} cannot be explained: ${why}`,
  )
}

function tooLong(path: string, seen: string, max: string): CaissonError {
  return new CaissonError(
    'not_possible_now',
    `${JSON.stringify(path)} has ${seen}; lines are explained of files with at most ${max}`,
  )
}
