/**
 * The notes of a user as a host keeps them by default: one JSON Lines file in the state folder, written atomically by
 * one process at a time. An unreadable line stays in the file unchanged and is reported.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import { findDistrust } from '../files/path-trust.ts'
import { stateFileWaitMs, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'
import { keyOf, type NoteStorage, StoredNote } from './note-storage.ts'

const fileMaxBytes = 16 * 1024 * 1024
/** Characters shown of an unreadable line. */
const shownMaxChars = 200

/** A line of the file that is not a note. */
export interface DamagedLine {
  /** Line number, from 1. */
  readonly line: number
  /** Beginning of the line; untrusted text. */
  readonly text: string
}

interface Content {
  readonly notes: readonly StoredNote[]
  readonly damaged: readonly (DamagedLine & { readonly bytes: Buffer })[]
}

const nothing: Content = { notes: [], damaged: [] }

export class NoteFile implements NoteStorage {
  readonly file: string
  readonly #lock: string
  #known: { readonly version: string; readonly content: Content } | undefined

  constructor({ home, locks }: Pick<Folders, 'home' | 'locks'>) {
    this.file = path.join(home, 'memory', 'notes.jsonl')
    this.#lock = path.join(locks, 'notes.lock')
  }

  /** All notes, oldest first; reloaded when the file has changed. @throws {CaissonError} `state_unavailable` */
  list(): readonly StoredNote[] {
    return this.#read().notes
  }

  /** Invalid lines; they stay until a person repairs or removes them. @throws {CaissonError} `state_unavailable` */
  damaged(): readonly DamagedLine[] {
    return this.#read().damaged
  }

  /**
   * Replaces all notes with the result of `make`. @throws {CaissonError} `state_unavailable`, and the errors of `make`
   */
  async change(make: (notes: readonly StoredNote[]) => readonly StoredNote[]): Promise<void> {
    await mkdir(path.dirname(this.file), { recursive: true, mode: 0o700 })
    await using _ = await takeLock(this.#lock, { waitMs: stateFileWaitMs }).catch((cause: unknown) => {
      throw new CaissonError('state_unavailable', `cannot change ${this.file}: ${errorMessage(cause)}`, {
        cause,
      })
    })
    const { notes, damaged } = this.#read()
    const lines = make(notes).map((note) => Buffer.from(JSON.stringify(note)))
    await this.#write([...damaged.map(({ bytes }) => bytes), ...lines])
  }

  async #write(lines: readonly Buffer[]): Promise<void> {
    const end = Buffer.from('\n')
    const content = Buffer.concat(lines.flatMap((line) => [line, end]))
    if (content.length > fileMaxBytes)
      throw new CaissonError('limit_reached', `${this.file} would be larger than ${fileMaxBytes} bytes`, {
        remedy: 'remove notes that you no longer need',
      })
    try {
      await replaceFile(this.file, content)
    } catch (cause) {
      throw new CaissonError('state_unavailable', `cannot write ${this.file}: ${errorMessage(cause)}`, {
        cause,
      })
    }
  }

  #read(): Content {
    const remedy = 'correct the file, or move it away'
    try {
      const distrust = findDistrust(this.file)
      if (distrust !== undefined)
        throw new CaissonError(
          'state_unavailable',
          `cannot believe ${this.file}: ${distrust.at} ${distrust.why}; ${remedy}`,
        )
      // Never follows a link or blocks on a pipe.
      const fd = openSync(this.file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
      try {
        const stat = fstatSync(fd, { bigint: true })
        if (!stat.isFile())
          throw new CaissonError('state_unavailable', `${this.file} is no file; move it away`)
        if (stat.size > fileMaxBytes)
          throw new CaissonError('state_corrupted', `${this.file} is larger than ${fileMaxBytes} bytes`, {
            remedy,
          })
        const version = `${stat.ino} ${stat.mtimeNs} ${stat.size}`
        if (this.#known?.version !== version) this.#known = { version, content: parse(readFileSync(fd)) }
        return this.#known.content
      } finally {
        closeSync(fd)
      }
    } catch (cause) {
      if (cause instanceof CaissonError) throw cause
      if (errnoOf(cause) === 'ENOENT') return nothing
      throw new CaissonError(
        'state_unavailable',
        `cannot read the notes in ${this.file}: ${errorMessage(cause)}; ${remedy}`,
        {
          cause,
        },
      )
    }
  }
}

function parse(bytes: Buffer): Content {
  // The last line of a duplicate note wins.
  const notes = new Map<string, StoredNote>()
  const damaged: Content['damaged'][number][] = []
  let number = 0
  for (let at = 0; at < bytes.length; ) {
    const found = bytes.indexOf(0x0a, at)
    const end = found < 0 ? bytes.length : found
    const line = bytes.subarray(at, end)
    at = end + 1
    number += 1
    if (line.length === 0) continue
    const read = readLine(line)
    if (read === undefined) {
      const text = line.toString('utf8', 0, shownMaxChars)
      damaged.push({ line: number, text, bytes: Buffer.from(line) })
    } else {
      notes.delete(keyOf(read))
      notes.set(keyOf(read), read)
    }
  }
  return { notes: [...notes.values()], damaged }
}

function readLine(line: Buffer): StoredNote | undefined {
  try {
    return StoredNote.safeParse(parseJson(new TextDecoder('utf-8', { fatal: true }).decode(line))).data
  } catch {
    return undefined
  }
}
