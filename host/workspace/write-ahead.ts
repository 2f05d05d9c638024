/**
 * The log of what apply is about to do and did to the host, one single-path operation after the other, with the
 * contents needed to take each back. An operation is on disk here before it is done, so that after any crash the
 * state of each path tells whether it was. Refuses a log that is damaged anywhere but at its torn end.
 */
import {
  closeSync,
  fdatasyncSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
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

const LogLine = z.union([
  Intent,
  z.strictObject({ done: Count }),
  z.strictObject({ failed: Count, reason: z.string() }),
  /** All before this line was taken back. */
  z.strictObject({ undone: z.literal(true) }),
])
type LogLine = z.infer<typeof LogLine>

export interface LoggedOperation extends Intent {
  /** `unknown` after a crash: intended, perhaps done. */
  readonly outcome: 'done' | 'failed' | 'unknown'
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
  const file = logFile(runDirectory)
  let bytes: Buffer
  try {
    bytes = readFileSync(file)
  } catch (thrown) {
    if (thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOENT') return []
    throw thrown
  }
  return parseLog(bytes, file).operations
}

/** Whether a state is one that apply left, be it in the middle of an operation that a crash cut. */
export function isOwnState(operations: readonly LoggedOperation[] | undefined, now: PathState): boolean {
  return (operations ?? []).some(
    ({ after, outcome }) =>
      isSameState(after, now) ||
      (outcome === 'unknown' && after.kind === 'directory' && now.kind === 'directory'),
  )
}

const logFile = (runDirectory: string) => path.join(runDirectory, 'apply.jsonl')

export class WriteAheadLog implements Disposable {
  readonly #log: number
  readonly #undo: number
  #undoSize: number
  /** What was intended since the last complete undo, in order. */
  readonly operations: readonly LoggedOperation[]

  /** Opens or begins the log of a run. Throws the system's error or a {@link WorkspaceFailure} (`damaged`). */
  constructor(runDirectory: string) {
    const file = logFile(runDirectory)
    this.#log = openSync(file, 'a+', 0o600)
    const read = parseLog(readFileSync(this.#log), file)
    ftruncateSync(this.#log, read.bytes)
    this.operations = read.operations
    this.#undo = openSync(path.join(runDirectory, 'undo.bin'), 'a+', 0o600)
    this.#undoSize = fstatSync(this.#undo).size
  }

  /** The number of the next operation. */
  get nextOperation(): number {
    return (this.operations.at(-1)?.op ?? -1) + 1
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
    if (intents.some(({ offset }) => offset !== undefined)) fdatasyncSync(this.#undo)
    this.#append(intents)
    fdatasyncSync(this.#log)
  }

  /** Records outcomes; losing them in a crash loses nothing, so they are not forced to disk. */
  record(outcomes: readonly ({ done: number } | { failed: number; reason: string })[]): void {
    this.#append(outcomes)
  }

  /** Records that everything so far was taken back. */
  recordUndone(): void {
    this.#append([{ undone: true }])
    fdatasyncSync(this.#log)
  }

  [Symbol.dispose](): void {
    closeSync(this.#log)
    closeSync(this.#undo)
  }

  #append(lines: readonly LogLine[]): void {
    writeAll(this.#log, Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join('')))
  }
}

function parseLog(bytes: Buffer, file: string): { operations: LoggedOperation[]; bytes: number } {
  // A torn last line was never forced to disk, so nothing of it was done.
  const whole = bytes.lastIndexOf(0x0a) + 1
  const lines = bytes.subarray(0, whole).toString('utf8').split('\n').slice(0, -1)
  let operations = new Map<number, LoggedOperation>()
  for (const [at, line] of lines.entries()) {
    const parsed = parseLine(line)
    if (parsed === undefined) {
      throw new WorkspaceFailure(
        'damaged',
        `the apply log ${file} is damaged at line ${at + 1}; nothing was changed`,
      )
    }
    if ('undone' in parsed) operations = new Map()
    else if ('op' in parsed) operations.set(parsed.op, { ...parsed, outcome: 'unknown' })
    else {
      const number = 'done' in parsed ? parsed.done : parsed.failed
      const known = operations.get(number)
      if (known !== undefined)
        operations.set(number, { ...known, outcome: 'done' in parsed ? 'done' : 'failed' })
    }
  }
  return { operations: [...operations.values()], bytes: whole }
}

function parseLine(line: string): LogLine | undefined {
  try {
    return LogLine.parse(JSON.parse(line))
  } catch {
    return undefined
  }
}

function writeAll(fd: number, bytes: Buffer): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(fd, bytes, done, bytes.length - done)
}
