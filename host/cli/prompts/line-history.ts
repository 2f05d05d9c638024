/** The lines that a person typed in conversations, kept in a private file of bounded size. */
import { mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { replaceFile } from '../../files/durable.ts'
import { takeLock } from '../../locks/file-lock.ts'

const maxEntries = 500
/** Longer lines are not kept. */
const entryMaxChars = 2_000
/** A person waits for it, though only a stopped or starved process holds it for longer than a moment. */
const lockWaitMs = 5_000

export class LineHistory {
  readonly #file: string
  #entries: readonly string[]
  /** Lines that could not be written yet, oldest first. */
  #unsaved: readonly string[] = []

  private constructor(file: string, entries: readonly string[]) {
    this.#file = file
    this.#entries = entries
  }

  static async open(file: string): Promise<LineHistory> {
    return new LineHistory(file, await readEntries(file))
  }

  /** Newest first. */
  get entries(): readonly string[] {
    return this.#entries
  }

  /** Keeps the line, unless it begins with a blank: so nobody need leave a secret here. */
  async add(line: string): Promise<void> {
    const entry = line.replaceAll(/\s*\n\s*/g, ' ')
    if (!isKept(entry)) return
    this.#entries = withNewest([entry], this.#entries)
    this.#unsaved = [...this.#unsaved, entry]
    try {
      await mkdir(path.dirname(this.#file), { recursive: true, mode: 0o700 })
      await using _ = await takeLock(`${this.#file}.lock`, { waitMs: lockWaitMs })
      // Another conversation may have added lines meanwhile.
      this.#entries = withNewest(this.#unsaved, await readEntries(this.#file))
      await replaceFile(this.#file, `${this.#entries.toReversed().join('\n')}\n`)
      this.#unsaved = []
    } catch {
      // The disk is full, or another process holds the lock: the next line takes this one with it.
    }
  }
}

/** @param lines - Oldest first. */
function withNewest(lines: readonly string[], entries: readonly string[]): string[] {
  return [...new Set([...lines.toReversed(), ...entries])].slice(0, maxEntries)
}

function isKept(line: string): boolean {
  return line !== '' && !/^\s|\p{Cc}/u.test(line) && line.length <= entryMaxChars
}

async function readEntries(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return text.split('\n').filter(isKept).toReversed().slice(0, maxEntries)
}
