/** What a command talks through; tests give their own. */
import { userInfo } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import { Host } from '../host.ts'
import { wordsOf } from '../runs/ending.ts'
import { withFlags } from './options.ts'
import { sanitizeBlock } from './render/sanitize.ts'

export interface Io {
  readonly stdin: Readable & { isTTY?: boolean; setRawMode?: (isRaw: boolean) => unknown }
  readonly stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number }
  readonly stderr: Writable & { isTTY?: boolean }
  readonly env: Readonly<Record<string, string | undefined>>
  readonly version: string
}

/** Name of the person at the terminal, for journals. */
export function userName(): string {
  try {
    return userInfo().username
  } catch {
    // A user without an entry in the system's list.
    return `user ${process.getuid?.() ?? ''}`.trimEnd()
  }
}

/** The host for this environment. */
export function hostOf(io: Io): Host {
  return new Host({ env: io.env })
}

/** Prints a failure: our words, with whatever is untrusted in them made harmless. */
export function printError(io: Io, error: unknown): void {
  const [first = '', ...rest] = withFlags(wordsOf(error)).split('\n')
  io.stderr.write(`caisson: ${sanitizeBlock(first, '')}\n`)
  if (rest.length > 0) io.stderr.write(`${sanitizeBlock(rest.join('\n'))}\n`)
}
