/**
 * One small JSON file of the state folder: read by a schema, changed by one process at a time, written whole or not at all,
 * for its user alone. A file that cannot be read is never taken for an empty one, except one that only saves work.
 */

import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import type * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf, reasonOf } from '#specs/node/file-error.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import { stateFileWaitMs, takeLock } from '../locks/file-lock.ts'
import type { Folders } from './folders.ts'

/** A file of the state folder with its lock, the form of its content, and what no file means. */
class StateFile<T> {
  readonly file: string
  protected readonly lock: string
  protected readonly schema: z.ZodType<T>
  protected readonly empty: T

  /** @param name of the file in the state folder @param empty what no file means */
  constructor(
    { home, locks }: Pick<Folders, 'home' | 'locks'>,
    name: string,
    schema: z.ZodType<T>,
    empty: T,
  ) {
    this.file = path.join(home, name)
    this.lock = path.join(locks, `${name}.lock`)
    this.schema = schema
    this.empty = empty
  }
}

export class JsonFile<T> extends StateFile<T> {
  /** @throws {CaissonError} `state_unavailable`, `state_corrupted` */
  async read(): Promise<T> {
    let text: string
    try {
      text = await readFile(this.file, 'utf8')
    } catch (cause) {
      if (errnoOf(cause) === 'ENOENT') return this.empty
      throw this.#error(`cannot read ${this.file}: ${reasonOf(cause)}`, cause)
    }
    const parsed = this.schema.safeParse(parseJson(text), plainMessagesWithoutValues)
    if (parsed.success) return parsed.data
    const issues = describeIssues(parsed.error, { root: 'its content', max: 1 })
    throw new CaissonError('state_corrupted', `${this.file} cannot be read: ${issues}`, {
      remedy: 'correct the file or remove it',
      cause: parsed.error,
    })
  }

  /**
   * Writes what `make` makes of the content, unless that is the same object. @throws {CaissonError}
   * `state_unavailable`, `state_corrupted`
   */
  async change(make: (content: T) => T): Promise<void> {
    await using _ = await takeLock(this.lock, { waitMs: stateFileWaitMs }).catch((cause: unknown) => {
      throw this.#error(`cannot change ${this.file}: ${reasonOf(cause)}`, cause)
    })
    const before = await this.read()
    const content = make(before)
    if (content === before) return
    try {
      await replaceFile(this.file, `${JSON.stringify(content, null, 2)}\n`)
    } catch (cause) {
      throw this.#error(`cannot write ${this.file}: ${reasonOf(cause)}`, cause)
    }
  }

  #error(message: string, cause: unknown): CaissonError {
    return new CaissonError('state_unavailable', message, { cause })
  }
}

/** A larger one is none of ours. */
const savedMaxBytes = 1024 * 1024
/** What one process learned is not worth a longer wait for another that writes. */
const savedWaitMs = 5_000

/**
 * A file that only saves work, such as requests: an unreadable one counts as empty and is written anew, and a change that
 * cannot be written is lost.
 */
export class SavedWork<T> extends StateFile<T> {
  /** Another text for each content of the file; empty without a file. */
  async stamp(): Promise<string> {
    const found = await stat(this.file, { bigint: true }).catch(() => undefined)
    return found === undefined ? '' : `${found.ino} ${found.size} ${found.mtimeNs}`
  }

  /** Never rejects. */
  async read(): Promise<T> {
    try {
      const found = await stat(this.file)
      if (!found.isFile() || found.size > savedMaxBytes) return this.empty
      const parsed = this.schema.safeParse(parseJson(await readFile(this.file, 'utf8')))
      return parsed.success ? parsed.data : this.empty
    } catch {
      return this.empty
    }
  }

  /** Writes what `make` makes of the content. Never rejects. */
  async change(make: (content: T) => T): Promise<void> {
    try {
      await using _ = await takeLock(this.lock, { waitMs: savedWaitMs })
      await replaceFile(this.file, `${JSON.stringify(make(await this.read()))}\n`)
    } catch {
      // Only saved work is lost.
    }
  }
}
