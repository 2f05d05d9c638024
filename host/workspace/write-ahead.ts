/**
 * Write-ahead log of apply: each single-path operation with the content needed to undo it. Operations are logged on
 * disk before they are executed, so that after any crash the state of each path shows whether they were. Undo needs
 * nothing else. Each line's checksum covers all lines before it; a log with damage anywhere but at a torn end is
 * refused.
 */
import { hash } from 'node:crypto'
import {
  closeSync,
  fdatasyncSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs'
import path from 'node:path'
import { z } from 'zod'
import { errnoOf } from '#specs/node/file-error.ts'
import { Count, Sha256, WorkspacePath } from '#specs/protocol/text.ts'
import { readRegularSync } from '../files/regular-file.ts'
import { isSameState, PathState } from './path-state.ts'
import { WorkspaceFailure } from './workspace-error.ts'

const OperationIntent = z.strictObject({
  op: Count,
  path: WorkspacePath,
  before: PathState,
  after: PathState,
  /** When, in ms since 1970. Absent: written by an earlier version. */
  at: Count.optional(),
  /** Owner of the previous file. */
  owner: z.strictObject({ uid: Count, gid: Count }).optional(),
  /** Offset of the previous content in `undo.bin`. */
  offset: Count.optional(),
  /** For git's index: digest of the new content without its times, so that a refresh does not change it. */
  indexMeaning: Sha256.optional(),
  /** Name of the staged file beside the path. */
  temporary: z.string().regex(/^\.caisson-[0-9a-z-]{1,60}$/),
})
export type OperationIntent = z.infer<typeof OperationIntent>

/** The first line. */
const Header = z.strictObject({
  version: z.literal(2),
  /** The real path of the workspace. */
  root: z.string().min(1),
  /** Digest of the change set. */
  changes: Sha256,
})
type Header = z.infer<typeof Header>

const LogLine = z.union([
  OperationIntent,
  z.strictObject({ done: Count }),
  z.strictObject({ failed: Count, reason: z.string() }),
  /** Reverted by an undo. */
  z.strictObject({ restored: Count }),
  /** An apply or an undo has ended: if this is the last line, no line is missing after it. */
  z.strictObject({ ended: z.literal(true) }),
  Header,
])
type LogLine = z.infer<typeof LogLine>

export interface LoggedOperation extends OperationIntent {
  /** `unknown` after a crash: planned, perhaps executed. */
  readonly outcome: 'done' | 'failed' | 'restored' | 'unknown'
}

export type OperationOutcome =
  | { readonly done: number }
  | { readonly failed: number; readonly reason: string }
  | { readonly restored: number }

const logFile = (runDirectory: string) => path.join(runDirectory, 'apply.jsonl')
const undoFile = (runDirectory: string) => path.join(runDirectory, 'undo.bin')

/** A log as stored on disk. */
export interface ApplyLog {
  /** The real path of the workspace. */
  readonly root: string
  /** In order; a complete undo removes the log with them. */
  readonly operations: readonly LoggedOperation[]
  /** Whether the last apply or undo has ended, so that no line is missing at the end. */
  readonly isEnded: boolean
}

/** Reads the log without changing it; undefined if there is none. Throws like {@link WriteAheadLog}. */
export function readApplyLog(runDirectory: string): ApplyLog | undefined {
  const file = logFile(runDirectory)
  let bytes: Buffer
  try {
    bytes = readRegularSync(file)
  } catch (thrown) {
    if (errnoOf(thrown) === 'ENOENT') return undefined
    throw thrown
  }
  const { header, operations, isEnded } = parseLog(bytes, file)
  return header && { root: header.root, operations: [...operations.values()], isEnded }
}

/**
 * States that apply itself left at a path, or may have left. Reads the log without changing it; empty without a log.
 * Throws like {@link WriteAheadLog}.
 */
export function readOwnStates(runDirectory: string): ReadonlyMap<string, readonly LoggedOperation[]> {
  return Map.groupBy(readLoggedOperations(runDirectory), ({ path }) => path)
}

/**
 * Planned operations since the last complete undo, in order; empty without a log. Throws like {@link WriteAheadLog}.
 */
export function readLoggedOperations(runDirectory: string): readonly LoggedOperation[] {
  return readApplyLog(runDirectory)?.operations ?? []
}

/** Number of applied paths according to the log; excludes operations with an unknown outcome. */
export function countApplied(operations: Iterable<LoggedOperation>): number {
  const applied = new Map<string, { readonly before: PathState; readonly after: PathState }>()
  for (const { path, before, after, outcome } of operations) {
    if (outcome === 'done') applied.set(path, { before: applied.get(path)?.before ?? before, after })
  }
  const isReplacedDirectory = (path: string) => {
    const change = applied.get(path)
    return change?.before.kind === 'directory' && change.after.kind !== 'directory'
  }
  let count = 0
  for (const [path, { after }] of applied) {
    // The contents of a removed directory do not count separately.
    if (after.kind === 'absent' && namesAbove(path).some(isReplacedDirectory)) continue
    count += 1
  }
  return count
}

/** The same for the log in a run's directory; null if unreadable. */
export function readAppliedCount(runDirectory: string): number | null {
  try {
    return countApplied(readApplyLog(runDirectory)?.operations ?? [])
  } catch {
    return null
  }
}

function namesAbove(path: string): string[] {
  const names = path.split('/').slice(0, -1)
  return names.map((_, at) => names.slice(0, at + 1).join('/'))
}

/** Whether apply left this state, even during an operation interrupted by a crash. */
export function isOwnState(operations: readonly LoggedOperation[] | undefined, now: PathState): boolean {
  return (operations ?? []).some(
    ({ after, outcome }) =>
      isSameState(after, now) ||
      (outcome === 'unknown' && after.kind === 'directory' && now.kind === 'directory'),
  )
}

export class WriteAheadLog implements Disposable {
  readonly #directory: string
  readonly #log: number
  readonly #undo: number
  readonly #header: Header
  readonly #known: Map<number, LoggedOperation>
  #undoSize: number
  #sum: string
  #isEmpty: boolean
  /** Planned operations in order, at the time of opening. */
  readonly operations: readonly LoggedOperation[]

  /**
   * Opens or creates the log of a run. Throws the system's error or a {@link WorkspaceFailure} (`damaged`).
   * @param begin header of a new log. Absent: the log exists
   */
  constructor(runDirectory: string, begin?: { readonly root: string; readonly changes: string }) {
    const file = logFile(runDirectory)
    this.#directory = runDirectory
    this.#log = openSync(file, 'a+', 0o600)
    const read = parseLog(readFileSync(this.#log), file)
    const header = read.header ?? (begin && { version: 2, ...begin })
    if (header === undefined || (begin !== undefined && header.root !== begin.root))
      throw damaged(file, `it is not about ${begin?.root ?? 'a workspace'}`)
    this.#header = header
    this.#known = read.operations
    this.operations = [...read.operations.values()]
    this.#undo = openSync(undoFile(runDirectory), 'a+', 0o600)
    // Contents without a log are left by a complete undo that was interrupted.
    const isEmpty = this.operations.length === 0
    ftruncateSync(this.#log, isEmpty ? 0 : read.bytes)
    if (isEmpty && fstatSync(this.#undo).size > 0) ftruncateSync(this.#undo, 0)
    this.#isEmpty = isEmpty
    this.#sum = isEmpty ? '' : read.sum
    this.#undoSize = fstatSync(this.#undo).size
  }

  /** The real path of the workspace. */
  get root(): string {
    return this.#header.root
  }

  /** The number of the next operation. */
  get nextOperation(): number {
    return (this.operations.at(-1)?.op ?? -1) + 1
  }

  /** Paths that are applied now; see {@link countApplied}. */
  get applied(): number {
    return countApplied(this.#known.values())
  }

  /** Offset of the next stored content. */
  get undoOffset(): number {
    return this.#undoSize
  }

  /** Descriptor for reading stored contents. */
  get undoContents(): number {
    return this.#undo
  }

  /** Stores a piece of content for undo. */
  keep(piece: Buffer): void {
    writeAll(this.#undo, piece)
    this.#undoSize += piece.length
  }

  /** Writes intents to disk, after the contents that they refer to. */
  intend(intents: readonly OperationIntent[]): void {
    if (intents.length === 0) return
    if (intents.some(({ offset }) => offset !== undefined)) fdatasyncSync(this.#undo)
    const isNew = this.#isEmpty
    this.#append(intents)
    fdatasyncSync(this.#log)
    if (isNew) syncDirectory(this.#directory)
    for (const intent of intents) this.#known.set(intent.op, { ...intent, outcome: 'unknown' })
  }

  /** Records outcomes without a sync: losing them in a crash is harmless. */
  record(outcomes: readonly OperationOutcome[]): void {
    if (outcomes.length === 0) return
    for (const outcome of outcomes) setOutcome(this.#known, outcome)
    this.#append(outcomes)
  }

  /** Records the end of an apply, or of an incomplete undo. */
  end(): void {
    if (this.#isEmpty) return
    this.#append([{ ended: true }])
    fdatasyncSync(this.#log)
  }

  /** Everything was undone: removes the log and its contents. Needs no disk space. */
  removeUndone(): void {
    this.#known.clear()
    rmSync(logFile(this.#directory), { force: true })
    rmSync(undoFile(this.#directory), { force: true })
    syncDirectory(this.#directory)
  }

  [Symbol.dispose](): void {
    closeSync(this.#log)
    closeSync(this.#undo)
  }

  #append(lines: readonly LogLine[]): void {
    const all = this.#isEmpty ? [this.#header, ...lines] : lines
    let text = ''
    let sum = this.#sum
    for (const line of all) {
      const body = JSON.stringify(line)
      sum = sumOf(sum, body)
      text += `${sum} ${body}\n`
    }
    const { size } = fstatSync(this.#log)
    try {
      writeAll(this.#log, Buffer.from(text))
    } catch (thrown) {
      // Half a line in the middle would damage the log.
      ftruncateSync(this.#log, size)
      throw thrown
    }
    this.#sum = sum
    this.#isEmpty = false
  }
}

interface ParsedLog {
  readonly header: Header | undefined
  readonly operations: Map<number, LoggedOperation>
  readonly isEnded: boolean
  /** Bytes of whole lines. */
  readonly bytes: number
  /** Checksum of the last whole line. */
  readonly sum: string
}

function parseLog(bytes: Buffer, file: string): ParsedLog {
  // A torn last line was never synced, so its operation was not executed.
  const whole = bytes.lastIndexOf(0x0a) + 1
  const lines = bytes.subarray(0, whole).toString('utf8').split('\n').slice(0, -1)
  const operations = new Map<number, LoggedOperation>()
  let header: Header | undefined
  let isEnded = false
  let sum = ''
  for (const [at, line] of lines.entries()) {
    const body = line.slice(sumChars + 1)
    sum = sumOf(sum, body)
    const parsed = line.startsWith(`${sum} `) ? parseLine(body) : undefined
    if (parsed === undefined || (at === 0) !== 'root' in parsed) throw damaged(file, `line ${at + 1}`)
    isEnded = 'ended' in parsed
    if ('root' in parsed) header = parsed
    else if ('op' in parsed) operations.set(parsed.op, { ...parsed, outcome: 'unknown' })
    else if (!('ended' in parsed)) setOutcome(operations, parsed)
  }
  return { header, operations, isEnded: isEnded && whole === bytes.length, bytes: whole, sum }
}

function setOutcome(operations: Map<number, LoggedOperation>, outcome: OperationOutcome): void {
  const [number, word] =
    'done' in outcome
      ? ([outcome.done, 'done'] as const)
      : 'failed' in outcome
        ? ([outcome.failed, 'failed'] as const)
        : ([outcome.restored, 'restored'] as const)
  const known = operations.get(number)
  if (known !== undefined) operations.set(number, { ...known, outcome: word })
}

const sumChars = 16

/** Covers this line and the previous checksum, and so all lines before. */
function sumOf(before: string, body: string): string {
  return hash('sha256', `${before} ${body}`).slice(0, sumChars)
}

function damaged(file: string, where: string): WorkspaceFailure {
  return new WorkspaceFailure('damaged', `the apply log ${file} is damaged (${where}); nothing was changed`)
}

function parseLine(line: string): LogLine | undefined {
  try {
    return LogLine.parse(JSON.parse(line))
  } catch {
    return undefined
  }
}

function syncDirectory(directory: string): void {
  const fd = openSync(directory, 'r')
  try {
    fsyncSync(fd)
  } finally {
    closeSync(fd)
  }
}

function writeAll(fd: number, bytes: Buffer): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done, bytes.length - done)
}
