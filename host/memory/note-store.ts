/**
 * Stores kept notes of each workspace, and of proposals: one JSON Lines file in the state folder, written atomically by
 * one process at a time. An unreadable line stays in the file unchanged and is reported.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { GovernanceNote, MemoryNote } from '#specs/protocol/extension.ts'
import { Milliseconds, RunId } from '#specs/protocol/text.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import { findDistrust } from '../files/path-trust.ts'
import { stateFileWaitMs, takeLock } from '../locks/file-lock.ts'
import type { Folders } from '../state/folders.ts'

/** Maximum characters of one note: a fact, not a document. */
export const noteMaxChars = 4_000
/** Maximum notes of one workspace, and of one proposal. */
export const notesMaxCount = 500
const fileMaxBytes = 16 * 1024 * 1024
/** Characters shown of an unreadable line. */
const shownMaxChars = 200

const NoteText = z.string().min(1).max(noteMaxChars)

const WorkspaceNote = z.strictObject({
  kind: z.literal('memory'),
  noteId: MemoryNote.shape.noteId,
  /** Real path of the workspace when the note was kept. */
  workspace: z.string().min(1).max(4_096),
  text: NoteText,
  tags: MemoryNote.shape.tags,
  /** Time of the last change. */
  at: Milliseconds,
  /** Run that proposed it. Absent: a person wrote it. */
  runId: RunId.optional(),
})
export type WorkspaceNote = Readonly<z.infer<typeof WorkspaceNote>>

const ProposalNote = z.strictObject({
  kind: z.literal('governance'),
  ...GovernanceNote.omit({ state: true }).shape,
  text: NoteText,
})
export type ProposalNote = Readonly<z.infer<typeof ProposalNote>>

export const StoredNote = z.discriminatedUnion('kind', [WorkspaceNote, ProposalNote])
export type StoredNote = WorkspaceNote | ProposalNote

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

export class NoteStore {
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

  /** Notes of a workspace, newest first. @throws {CaissonError} `state_unavailable` */
  ofWorkspace(workspace: string): WorkspaceNote[] {
    const own = this.list().filter(
      (note): note is WorkspaceNote => note.kind === 'memory' && note.workspace === workspace,
    )
    return own.toReversed()
  }

  /** Notes of a proposal, oldest first. @throws {CaissonError} `state_unavailable` */
  ofProposal(proposalId: string): ProposalNote[] {
    return this.list().filter(
      (note): note is ProposalNote => note.kind === 'governance' && note.proposalId === proposalId,
    )
  }

  /** Invalid lines; they stay until a person repairs or removes them. @throws {CaissonError} `state_unavailable` */
  damaged(): readonly DamagedLine[] {
    return this.#read().damaged
  }

  /**
   * Replaces all notes with the result of `make`. @throws {CaissonError} `state_unavailable`, and the errors of `make`
   */
  async change(make: (notes: readonly StoredNote[]) => readonly StoredNote[]): Promise<void> {
    if (typeof make !== 'function') throw new CaissonError('invalid_options', 'make: must be a function')
    await mkdir(path.dirname(this.file), { recursive: true, mode: 0o700 })
    await using _ = await takeLock(this.#lock, { waitMs: stateFileWaitMs }).catch((cause: unknown) => {
      throw new CaissonError('state_unavailable', `cannot change ${this.file}: ${errorMessage(cause)}`, {
        cause,
      })
    })
    const { notes, damaged } = this.#read()
    const made = make(notes)
    refuseTooMany(made)
    const lines = made.map((note) => Buffer.from(JSON.stringify(StoredNote.parse(note))))
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
      if (cause instanceof Error && 'code' in cause && cause.code === 'ENOENT') return nothing
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

/** Key of a note: its id within its workspace or proposal. */
export function keyOf(note: StoredNote): string {
  return `${note.kind} ${note.noteId} ${note.kind === 'memory' ? note.workspace : note.proposalId}`
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

/** @throws {CaissonError} `limit_reached` */
function refuseTooMany(notes: readonly StoredNote[]): void {
  const counts = new Map<string, number>()
  for (const note of notes) {
    const of = note.kind === 'memory' ? `the workspace ${note.workspace}` : note.proposalId
    const count = (counts.get(of) ?? 0) + 1
    counts.set(of, count)
    if (count > notesMaxCount)
      throw new CaissonError(
        'limit_reached',
        `${notesMaxCount} notes are stored for ${of} already, which is the limit`,
        {
          remedy: 'remove some first',
        },
      )
  }
}
