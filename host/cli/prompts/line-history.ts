/** The lines that a person typed in conversations, kept in a private file of bounded size. */
import { mkdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { replaceFile } from '../../files/durable.ts'

const maxEntries = 500
/** Longer lines are not kept. */
const entryMaxChars = 2_000

export class LineHistory {
  readonly #file: string
  #entries: readonly string[]

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
    // Another conversation may have added lines meanwhile.
    const others = (await readEntries(this.#file)).filter((other) => other !== entry)
    this.#entries = [entry, ...others].slice(0, maxEntries)
    try {
      await mkdir(path.dirname(this.#file), { recursive: true, mode: 0o700 })
      await replaceFile(this.#file, `${this.#entries.toReversed().join('\n')}\n`)
    } catch {
      // Another conversation wrote at the same moment, or the disk is full: the line stays in this one.
    }
  }
}

function isKept(line: string): boolean {
  return line !== '' && !/^\s|\p{Cc}/u.test(line) && line.length <= entryMaxChars
}

async function readEntries(file: string): Promise<string[]> {
  const text = await readFile(file, 'utf8').catch(() => '')
  return text.split('\n').filter(isKept).toReversed().slice(0, maxEntries)
}
