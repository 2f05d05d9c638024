/**
 * The kept notes of a host, in its file or in a storage of the application. Checks what it writes, and refuses what a storage
 * returns that is no list of notes.
 */
import * as z from 'zod'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import type { Folders } from '../state/folders.ts'
import { type DamagedLine, NoteFile } from './note-file.ts'
import {
  type NoteStorage,
  notesMaxCount,
  type ProposalNote,
  StoredNote,
  type WorkspaceNote,
} from './note-storage.ts'

const StoredNotes = z.array(StoredNote)

export class NoteStore {
  /** The file of the state folder; unused with a storage of the application. */
  readonly file: string
  readonly #file: NoteFile | undefined
  readonly #storage: NoteStorage
  /** The last list that was checked, and what came of it. */
  #checked: { readonly from: unknown; readonly notes: readonly StoredNote[] } | undefined

  /** @param storage absent: the file */
  constructor(folders: Pick<Folders, 'home' | 'locks'>, storage?: NoteStorage) {
    const file = new NoteFile(folders)
    this.file = file.file
    this.#file = storage === undefined ? file : undefined
    this.#storage = storage ?? file
  }

  /** All notes, oldest first; the same list while nothing has changed. @throws {CaissonError} `state_unavailable` */
  async list(): Promise<readonly StoredNote[]> {
    try {
      return this.#read(await this.#storage.list())
    } catch (cause) {
      throw unavailable('read', cause)
    }
  }

  /** Notes of a workspace, newest first. @throws {CaissonError} `state_unavailable` */
  async ofWorkspace(workspace: string): Promise<WorkspaceNote[]> {
    return notesOfWorkspace(await this.list(), workspace)
  }

  /** Notes of a proposal, oldest first. @throws {CaissonError} `state_unavailable` */
  async ofProposal(proposalId: string): Promise<ProposalNote[]> {
    return notesOfProposal(await this.list(), proposalId)
  }

  /**
   * Invalid lines of the file; they stay until a person repairs or removes them. Of another storage none.
   * @throws {CaissonError} `state_unavailable`
   */
  async damaged(): Promise<readonly DamagedLine[]> {
    return this.#file?.damaged() ?? []
  }

  /**
   * Replaces all notes with the result of `make`. @throws {CaissonError} `state_unavailable`, and the errors of `make`
   */
  async change(make: (notes: readonly StoredNote[]) => readonly StoredNote[]): Promise<void> {
    if (typeof make !== 'function') throw new CaissonError('invalid_options', 'make: must be a function')
    let refusal: { readonly error: unknown } | undefined
    try {
      await this.#storage.change((notes) => {
        const known = this.#read(notes)
        try {
          const made = make(known)
          refuseTooMany(made)
          return made.map((note) => StoredNote.parse(note))
        } catch (error) {
          refusal = { error }
          throw error
        }
      })
    } catch (cause) {
      throw refusal === undefined ? unavailable('change', cause) : refusal.error
    }
  }

  /** @throws {CaissonError} `state_corrupted` */
  #read(list: unknown): readonly StoredNote[] {
    // The file has checked its own.
    if (this.#file !== undefined) return list as readonly StoredNote[]
    const checked = this.#checked
    if (checked !== undefined && checked.from === list) return checked.notes
    const parsed = StoredNotes.safeParse(list, plainMessagesWithoutValues)
    if (!parsed.success)
      throw new CaissonError(
        'state_corrupted',
        `the storage of the notes returned no notes: ${describeIssues(parsed.error, { root: 'the list' })}`,
      )
    // A list that its owner may change is read each time.
    if (Object.isFrozen(list)) this.#checked = { from: list, notes: parsed.data }
    return parsed.data
  }
}

/** Newest first. */
export function notesOfWorkspace(notes: readonly StoredNote[], workspace: string): WorkspaceNote[] {
  const own = notes.filter(
    (note): note is WorkspaceNote => note.kind === 'memory' && note.workspace === workspace,
  )
  return own.toReversed()
}

/** Oldest first. */
export function notesOfProposal(notes: readonly StoredNote[], proposalId: string): ProposalNote[] {
  return notes.filter(
    (note): note is ProposalNote => note.kind === 'governance' && note.proposalId === proposalId,
  )
}

function unavailable(what: 'read' | 'change', cause: unknown): CaissonError {
  if (cause instanceof CaissonError) return cause
  return new CaissonError('state_unavailable', `cannot ${what} the notes: ${errorMessage(cause)}`, { cause })
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
