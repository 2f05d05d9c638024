/**
 * Converts a page in a separate process with limits on time and memory, so that a hostile page affects only that
 * process. It reads only its own modules, writes no file, starts no program, and has no network on Linux if the
 * kernel allows a namespace. At most two run at once.
 */
import { existsSync, realpathSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { execa } from 'execa'
import * as z from 'zod'
import type { Result } from '#specs/protocol/error.ts'
import type { ReadablePage } from './readable.ts'

export interface ReaderBounds {
  readonly timeoutMs: number
  readonly heapMiB: number
}
const defaultBounds: ReaderBounds = { timeoutMs: 20_000, heapMiB: 384 }
/** Limit for a reader that outlives this process, since nothing else would end it. */
const cpuSeconds = 30
const outputMaxChars = 16 * 1024 * 1024
const readersMaxCount = 2

const Answer = z.strictObject({ title: z.string(), markdown: z.string() })

const entry = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? './reader.ts' : './reader.js', import.meta.url),
)
/** The reader's imports. */
const packages = ['@mozilla/readability', 'linkedom', 'turndown']

/** Shell script that limits CPU time and removes network access as far as the system allows. */
const launch = [
  `ulimit -t ${cpuSeconds}`,
  'for how in "--user --net" "--net"; do if unshare $how true 2>/dev/null; then exec unshare $how -- "$@"; fi; done',
  'exec "$@"',
].join('; ')

/** The command of a confined process. Exported for tests. @param script arguments of Node */
export function readerCommand(heapMiB: number, script: readonly string[] = [entry]): readonly string[] {
  const readable = moduleFolders().map((folder) => `--allow-fs-read=${folder}/`)
  const node = ['--permission', ...readable, '--no-warnings', `--max-old-space-size=${heapMiB}`]
  return ['/bin/sh', '-c', launch, 'sh', process.execPath, ...node, ...script]
}

/** The reader's own folder, and every `node_modules` that may contain its packages. */
function moduleFolders(): string[] {
  const own = path.dirname(entry)
  const above = [own]
  while (path.dirname(above[0] ?? '/') !== above[0]) above.unshift(path.dirname(above[0] ?? '/'))
  const beside = above.map((folder) => path.join(folder, 'node_modules'))
  // Some package managers link packages from a store; they are read from there.
  const linked = packages.map((name) => {
    const place = realpathSync(fileURLToPath(import.meta.resolve(name)))
    return place.slice(0, place.indexOf('node_modules') + 'node_modules'.length)
  })
  return [...new Set([own, ...beside.filter((folder) => existsSync(folder)), ...linked])]
}

/**
 * @param html text of the page, at most some MiB
 * @param url of the page
 * @returns an error message when the page exceeds the limits
 */
export async function readPage(
  html: string,
  url: string,
  signal: AbortSignal,
  { timeoutMs, heapMiB }: ReaderBounds = defaultBounds,
): Promise<Result<ReadablePage, string>> {
  await using _place = await takePlace(signal)
  const [shell = '', ...args] = readerCommand(heapMiB)
  const { stdout, timedOut, isCanceled, failed } = await execa(shell, args, {
    input: JSON.stringify({ html, url }),
    cwd: '/',
    env: {},
    extendEnv: false,
    stderr: 'ignore',
    reject: false,
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
    cancelSignal: signal,
    maxBuffer: outputMaxChars,
    stripFinalNewline: false,
  })
  if (isCanceled) return { ok: false, error: 'reading was cancelled' }
  if (timedOut) return { ok: false, error: `reading it took more than ${timeoutMs / 1000} s` }
  const answer = Answer.safeParse(failed ? undefined : parseAnswer(stdout))
  if (answer.success) return { ok: true, value: answer.data }
  return { ok: false, error: 'it is too large or too deeply nested to be read as a page' }
}

function parseAnswer(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

let readers = 0
const waiting: (() => void)[] = []

/** Waits for its turn; continues at once when the signal aborts, since there is nothing to do. */
async function takePlace(signal: AbortSignal): Promise<AsyncDisposable> {
  while (readers >= readersMaxCount && !signal.aborted) {
    const turn = Promise.withResolvers<void>()
    const wake = (): void => turn.resolve()
    waiting.push(wake)
    signal.addEventListener('abort', wake, { once: true })
    await turn.promise
    signal.removeEventListener('abort', wake)
    // Remove it from the queue, or the next free reader would wake a waiter that has left.
    const at = waiting.indexOf(wake)
    if (at >= 0) waiting.splice(at, 1)
  }
  readers += 1
  return {
    [Symbol.asyncDispose]: () => {
      readers -= 1
      waiting.shift()?.()
      return Promise.resolve()
    },
  }
}
