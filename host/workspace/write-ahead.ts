/**
 * The log of what apply is about to do and did to the host, one single-path operation after the other, with the
 * contents needed to take each back. An operation is on disk here before it is done, so that after any crash the
 * state of each path tells whether it was. Undo needs nothing else. Each line's checksum is over all lines before it;
 * a log that is damaged anywhere but at its torn end is refused.
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
import { Count, Sha256, WorkspacePath } from '#specs/protocol/text.ts'
import { isSameState, PathState } from './path-state.ts'
import { WorkspaceFailure } from './workspace-error.ts'

const Intent = z.strictObject({
  op: Count,
  path: WorkspacePath,
  before: PathState,
  after: PathState,
  /** Who owned what was there. */
  owner: z.strictObject({ uid: Count, gid: Count }).optional(),
  /** Where in `undo.bin` the content of a file that was there begins. */
  offset: Count.optional(),
  /** For git's index: digest of what the new one says of the files, which a refresh of its times leaves as it is. */
  indexMeaning: Sha256.optional(),
  /** The name beside the path under which new content is staged. */
  temporary: z.string().regex(/^\.caisson-[0-9a-z-]{1,60}$/),
})
export type Intent = z.infer<typeof Intent>

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
  Intent,
  z.strictObject({ done: Count }),
  z.strictObject({ failed: Count, reason: z.string() }),
  /** Taken back by an undo. */
  z.strictObject({ restored: Count }),
  /** An apply or an undo came to its end: where it is the last line, none is missing behind it. */
  z.strictObject({ ended: z.literal(true) }),
  Header,
])
type LogLine = z.infer<typeof LogLine>

export interface LoggedOperation extends Intent {
  /** `unknown` after a crash: intended, perhaps done. */
  readonly outcome: 'done' | 'failed' | 'restored' | 'unknown'
}

export type Outcome =
  | { readonly done: number }
  | { readonly failed: number; readonly reason: string }
  | { readonly restored: number }

const logFile = (runDirectory: string) => path.join(runDirectory, 'apply.jsonl')
const undoFile = (runDirectory: string) => path.join(runDirectory, 'undo.bin')

/** A log as it lies on the disk. */
export interface ApplyLog {
  /** The real path of the workspace. */
  readonly root: string
  /** In order; a complete undo removes the log with them. */
  readonly operations: readonly LoggedOperation[]
  /** Whether the last apply or undo came to its end, so that no line is missing behind the last. */
  readonly isEnded: boolean
}

/** Reads the log without changing it; undefined where there is none. Throws like {@link WriteAheadLog}. */
export function readApplyLog(runDirectory: string): ApplyLog | undefined {
  const file = logFile(runDirectory)
  let bytes: Buffer
  try {
    bytes = readFileSync(file)
  } catch (thrown) {
    if (thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOENT') return undefined
    throw thrown
  }
  const { header, operations, isEnded } = parseLog(bytes, file)
  return header && { root: header.root, operations: [...operations.values()], isEnded }
}

/**
 * The states that apply itself left a path in, or may have: what is found so is no one else's work. Reads the log
 * without changing it; none yet gives nothing. Throws like {@link WriteAheadLog}.
 */
export function readOwnStates(runDirectory: string): ReadonlyMap<string, readonly LoggedOperation[]> {
  return Map.groupBy(readLoggedOperations(runDirectory), ({ path }) => path)
}

/** What was intended since the last complete undo, in order; none without a log. Throws like {@link WriteAheadLog}. */
export function readLoggedOperations(runDirectory: string): readonly LoggedOperation[] {
  return readApplyLog(runDirectory)?.operations ?? []
}

/** Changed paths that are applied, as far as the log tells: operations whose outcome a crash took are not counted. */
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
    // What was in a directory that went is no change of its own.
    if (after.kind === 'absent' && namesAbove(path).some(isReplacedDirectory)) continue
    count += 1
  }
  return count
}

/** The same of the log in a run's directory; null where it cannot be read. */
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

/** Whether a state is one that apply left, be it in the middle of an operation that a crash cut. */
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
  /** What was intended, in order, as of when this was opened. */
  readonly operations: readonly LoggedOperation[]

  /**
   * Opens or begins the log of a run. Throws the system's error or a {@link WorkspaceFailure} (`damaged`).
   * @param begin what the log is about; absent: one is there
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
    // Contents without a log were left by a complete undo that a crash cut short.
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

  /** Where content that is kept next will begin. */
  get undoOffset(): number {
    return this.#undoSize
  }

  /** For reading kept contents back. */
  get undoContents(): number {
    return this.#undo
  }

  /** Keeps a piece of content for undo. */
  keep(piece: Buffer): void {
    writeAll(this.#undo, piece)
    this.#undoSize += piece.length
  }

  /** Puts intents on disk, and before them the contents that they refer to. */
  intend(intents: readonly Intent[]): void {
    if (intents.length === 0) return
    if (intents.some(({ offset }) => offset !== undefined)) fdatasyncSync(this.#undo)
    const isNew = this.#isEmpty
    this.#append(intents)
    fdatasyncSync(this.#log)
    if (isNew) syncDirectory(this.#directory)
    for (const intent of intents) this.#known.set(intent.op, { ...intent, outcome: 'unknown' })
  }

  /** Records outcomes; losing them in a crash loses nothing, so they are not forced to disk. */
  record(outcomes: readonly Outcome[]): void {
    if (outcomes.length === 0) return
    for (const outcome of outcomes) setOutcome(this.#known, outcome)
    this.#append(outcomes)
  }

  /** Records that an apply, or an undo that left something, came to its end. */
  end(): void {
    if (this.#isEmpty) return
    this.#append([{ ended: true }])
    fdatasyncSync(this.#log)
  }

  /** Everything was taken back: nothing of the log and the contents is needed any more. Takes no room on the disk. */
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
      // Half a line in the middle would make a damaged log of it.
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
  /** Of whole lines. */
  readonly bytes: number
  /** Of the last whole line. */
  readonly sum: string
}

function parseLog(bytes: Buffer, file: string): ParsedLog {
  // A torn last line was never forced to disk, so nothing of it was done.
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

function setOutcome(operations: Map<number, LoggedOperation>, outcome: Outcome): void {
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

/** Over this line and the sum of the one before, and so over all lines to here. */
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
