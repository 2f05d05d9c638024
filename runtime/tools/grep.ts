/**
 * `grep` of the library: lines of files that contain a text or match a regular expression. A pathological expression
 * costs a bounded time; binary and huge files are skipped.
 */

import { isUtf8 } from 'node:buffer'
import { readFileSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import * as z from 'zod'
import { isOutOfTime, withinTime } from '#specs/node/bounded-time.ts'
import type { Directory } from '#specs/node/directory.ts'
import { attempt, failure } from '#specs/node/file-error.ts'
import { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { type BuiltIn, defineBuiltIn, pathParameter, toOutcome, withinDirectory } from './built-in.ts'
import { matchesGlob } from './glob.ts'
import { closedDirectories, Walk } from './walk.ts'

const maxResults = 500
const maxContext = 10
const fileMaxBytes = 4 * 1024 * 1024
const totalMaxBytes = 256 * 1024 * 1024
const timeMaxMs = 20_000
/** Time limit per file with a regular expression; it blocks the process. */
const expressionMaxMs = 500
/** Maximum files over the limit; after that the expression is refused. */
const slowMaxCount = 3
const turnMs = 30
const lineMaxChars = 500
const totalMaxChars = 32 * 1024
const depthMax = 30

interface Match {
  readonly path: string
  /** From 1. */
  readonly line: number
  readonly text: string
  readonly before?: readonly string[]
  readonly after?: readonly string[]
}

const parameters = z.strictObject({
  query: z.string().min(1).max(1_000).describe('Text to find, or a regular expression if isRegexp is true'),
  isRegexp: z
    .boolean()
    .default(false)
    .describe('Take query as a regular expression of JavaScript, line by line'),
  directoryPath: pathParameter
    .default('.')
    .describe('Folder or file to search, relative to the working directory'),
  includePattern: z
    .string()
    .min(1)
    .max(1_024)
    .optional()
    .describe('Only files that fit, such as *.ts or src/**/*.ts (with *, ? and **)'),
  maxResults: z.int().min(1).max(maxResults).default(100).describe('Matching lines to return at most'),
  contextLines: z
    .int()
    .min(0)
    .max(maxContext)
    .default(0)
    .describe('Lines to show before and after each match'),
})
type Input = z.output<typeof parameters>

export const grepTool: BuiltIn = defineBuiltIn({
  name: 'grep',
  description: `Searches the files of the working directory, hidden ones too but nothing in ${[...closedDirectories].join(', ')}, and gives path, line number and line of each match. Binary files and files over ${fileMaxBytes / 1024 / 1024} MiB are passed over. truncated says that there may be more.`,
  parameters,
  readOnly: true,
  evidence: 'read',
  run: async (input, context) =>
    toOutcome(
      await withinDirectory(context, input.directoryPath, {}, async (place) => {
        const find = finderOf(input)
        if (!find.ok) return find
        const search = new Search(input, find.value)
        const stat = place.stat()
        if (!stat.ok) return stat
        if (!stat.value.isDirectory()) return search.file(place) ?? search.result(false, [])
        const opened = place.openDirectory()
        if (!opened.ok) return opened
        using directory = opened.value
        return await searchBelow(directory, place.path, search, input.includePattern, context.signal)
      }),
    ),
})

async function searchBelow(
  directory: Directory,
  path: string,
  search: Search,
  includePattern: string | undefined,
  signal: AbortSignal,
): Promise<Result<unknown>> {
  const walk = new Walk({ maxDepth: depthMax, includeHidden: true, signal })
  let turnAt = performance.now()
  for await (const entry of walk.entries(directory, path)) {
    if (signal.aborted) break
    if (entry.kind !== 'file') continue
    if (includePattern !== undefined && !matchesGlob(entry.path, includePattern)) continue
    const parent = entry.path.slice(0, Math.max(0, entry.path.lastIndexOf('/')))
    // Not disposed: the walk owns the directory.
    const failed = search.file(new Place(entry.directory, entry.name, parent))
    if (failed !== undefined) return failed
    if (search.isFull) break
    if (performance.now() - turnAt < turnMs) continue
    // Yields to other work, however many files a folder has.
    await nextTurn()
    turnAt = performance.now()
  }
  if (signal.aborted) return failure('cancelled', 'The search was cancelled.')
  return search.result(walk.truncated || walk.hasDeeper, walk.notes)
}

/** Indexes of matching lines, up to a maximum; throws when matching takes too long. */
type FindLines = (lines: readonly string[], maxCount: number) => number[]

function finderOf({ query, isRegexp }: Input): Result<FindLines> {
  if (!isRegexp)
    return { ok: true, value: (lines, maxCount) => pick(lines, maxCount, (line) => line.includes(query)) }
  try {
    const expression = withinTime(() => new RegExp(query), expressionMaxMs)
    const find: FindLines = (lines, maxCount) =>
      withinTime(() => pick(lines, maxCount, (line) => expression.test(line)), expressionMaxMs)
    // Some errors of an expression appear only on first use.
    find([''], 1)
    return { ok: true, value: find }
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.slice(0, 300) : 'it cannot be used'
    return failure('invalid_input', `query is no regular expression: ${why}`)
  }
}

function pick(lines: readonly string[], maxCount: number, fits: (line: string) => boolean): number[] {
  const found: number[] = []
  for (const [index, line] of lines.entries()) {
    if (!fits(line)) continue
    found.push(index)
    if (found.length === maxCount) break
  }
  return found
}

class Search {
  readonly #input: Input
  readonly #find: FindLines
  readonly #matches: Match[] = []
  readonly #endsAt = performance.now() + timeMaxMs
  readonly #notes: string[] = []
  #files = 0
  #bytes = 0
  #chars = 0
  #slow = 0
  isFull = false

  constructor(input: Input, find: FindLines) {
    this.#input = input
    this.#find = find
  }

  /** Searches one file; returns a failure that ends the search, or nothing. */
  file(place: Place): Result<never> | undefined {
    const lines = this.#lines(place)
    if (lines === undefined) return undefined
    this.#files++
    try {
      // One extra match shows that there are more.
      const wanted = this.#input.maxResults - this.#matches.length + 1
      for (const index of this.#find(lines, wanted)) this.#take(place.path, lines, index)
    } catch (cause) {
      if (!isOutOfTime(cause)) throw cause
      this.#note(`${place} was passed over: the expression took more than ${expressionMaxMs} ms`)
      if (++this.#slow > slowMaxCount)
        return failure('timed_out', 'The regular expression takes too long; make it simpler.')
    }
    if (performance.now() > this.#endsAt || this.#bytes > totalMaxBytes) {
      this.#note('the search ended at its bound of time or size; search in a folder, or with includePattern')
      this.isFull = true
    }
    return undefined
  }

  result(truncated: boolean, notes: readonly string[]): Result<unknown> {
    const all = [...this.#notes, ...notes]
    const value = {
      matches: this.#matches,
      filesSearched: this.#files,
      truncated: truncated || this.isFull,
      ...(all.length === 0 ? {} : { notes: all }),
    }
    return { ok: true, value }
  }

  /** Nothing for files that are not text, too large, or unreadable. */
  #lines(place: Place): string[] | undefined {
    const opened = place.openFile('read')
    if (!opened.ok) return undefined
    using file = opened.value
    if (file.stat.size > fileMaxBytes) {
      this.#note(`${place} was passed over: it is larger than ${fileMaxBytes} bytes`)
      return undefined
    }
    const read = attempt('', () => readFileSync(file.fd))
    if (!read.ok) return undefined
    this.#bytes += read.value.length
    if (read.value.subarray(0, 8_192).includes(0)) return undefined
    const text = isUtf8(read.value) ? read.value.toString('utf8') : read.value.toString('latin1')
    const lines = text.split(/\r?\n/)
    if (lines.at(-1) === '') lines.pop()
    return lines
  }

  #take(path: string, lines: readonly string[], index: number): void {
    const { contextLines, maxResults: wanted } = this.#input
    if (this.#matches.length === wanted || this.#chars > totalMaxChars) {
      this.isFull = true
      return
    }
    const text = cut(lines[index] ?? '')
    const context =
      contextLines === 0
        ? {}
        : {
            before: lines.slice(Math.max(0, index - contextLines), index).map(cut),
            after: lines.slice(index + 1, index + 1 + contextLines).map(cut),
          }
    const match = { path, line: index + 1, text, ...context }
    this.#matches.push(match)
    this.#chars += JSON.stringify(match).length
  }

  #note(text: string): void {
    if (this.#notes.length < 20) this.#notes.push(text)
  }
}

function cut(line: string): string {
  return line.length <= lineMaxChars ? line : `${line.slice(0, lineMaxChars)}…`.toWellFormed()
}
