/**
 * The memory of one run: what its agents may read, and what they propose. A proposal is journaled and visible only in
 * this run; a person decides whether to keep it (see run-notes.ts). Refuses likely secrets, and proposals beyond the
 * run's limit.
 */

import { createHash } from 'node:crypto'
import type * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type {
  GovernanceNote,
  MemoryNote,
  NoteAddAnswer,
  NoteAddRequest,
  NoteListAnswer,
  NoteListRequest,
  RecallAnswer,
  RecallRequest,
  RememberAnswer,
  RememberRequest,
} from '#specs/protocol/extension.ts'
import { type GatewayErrorCode, gatewayError, type WireError } from '../net/gateway-error.ts'
import { findLikelySecret } from '../secrets/likely-secret.ts'
import { noteMaxChars, type StoredNote } from './note-storage.ts'
import { type NoteStore, notesOfProposal, notesOfWorkspace } from './note-store.ts'
import { rankNotes } from './rank.ts'

/** Maximum proposals of one run, of both kinds. */
export const proposalsMaxCount = 64
/** Maximum notes sent with a task; `recall` finds the rest. */
const toldMaxCount = 32
const toldMaxChars = 12_000

interface MemoryServiceOptions {
  readonly store: NoteStore
  readonly runId: string
  /** Its real path. */
  readonly workspace: string
  /** Writes an event to the journal. */
  readonly note: (event: HostEvent) => void
  /** Removes known secrets from kept notes. */
  readonly redact: (text: string) => string
  /** Milliseconds since 1970. */
  readonly now?: () => number
}

export class MemoryService {
  readonly #options: MemoryServiceOptions
  /** As the guest wrote them, oldest first. */
  readonly #proposed = new Map<string, { readonly note: MemoryNote; readonly replaces: string | undefined }>()
  readonly #governance = new Map<string, GovernanceNote>()
  #count = 0
  #keptOf: { readonly list: readonly StoredNote[]; readonly notes: readonly MemoryNote[] } | undefined

  constructor(options: MemoryServiceOptions) {
    this.#options = options
  }

  async remember(
    request: z.output<typeof RememberRequest>,
  ): Promise<Result<z.input<typeof RememberAnswer>, WireError>> {
    return await this.#guarded((list) => {
      const kept = this.#kept(list)
      const { text, tags, replaces, agentPath } = request
      const noteId = memoryNoteId(text, tags)
      const same = this.#proposed.get(noteId)?.note ?? kept.find((note) => note.noteId === noteId)
      // A repeated or known note: proposes nothing new.
      if (same !== undefined) return ok({ note: same })
      const refusal = this.#refusal([text, ...tags])
      if (refusal !== undefined) return refusal
      if (replaces !== undefined && !this.#visible(kept).some((note) => note.noteId === replaces))
        return refused('not_found', `There is no note ${replaces} to replace; recall lists them.`)
      const note: MemoryNote = { noteId, text, tags: [...tags], state: 'proposed' }
      this.#count += 1
      const earlier = replaces === undefined ? undefined : this.#proposed.get(replaces)
      if (earlier !== undefined) this.#proposed.delete(earlier.note.noteId)
      this.#proposed.set(noteId, { note, replaces: earlier === undefined ? replaces : earlier.replaces })
      const { redact } = this.#options
      const journaled = { ...note, text: redact(text), tags: tags.map(redact) }
      this.#options.note({
        type: 'memory-propose',
        agentPath,
        note: journaled,
        ...(replaces === undefined ? {} : { replaces }),
      })
      return ok({ note })
    })
  }

  async recall({
    query,
    limit,
  }: z.output<typeof RecallRequest>): Promise<Result<z.input<typeof RecallAnswer>, WireError>> {
    return await this.#guarded((list) => {
      const found = rankNotes(query ?? '', this.#visible(this.#kept(list)))
      return ok({ notes: found.slice(0, limit), total: found.length })
    })
  }

  async addNote(
    request: z.output<typeof NoteAddRequest>,
  ): Promise<Result<z.input<typeof NoteAddAnswer>, WireError>> {
    return await this.#guarded((list) => {
      const { proposalId, text, agentPath } = request
      const noteId = governanceNoteId(proposalId, text)
      const same = this.#ofProposal(list, proposalId).find((note) => note.noteId === noteId)
      if (same !== undefined) return ok({ note: same })
      const refusal = this.#refusal([text])
      if (refusal !== undefined) return refusal
      const { runId, redact, now = Date.now } = this.#options
      const note = { noteId, proposalId, text, author: runId, at: now(), state: 'proposed' as const }
      this.#count += 1
      this.#governance.set(noteId, note)
      this.#options.note({ type: 'note-propose', agentPath, note: { ...note, text: redact(text) } })
      return ok({ note })
    })
  }

  async listNotes({
    proposalId,
  }: z.output<typeof NoteListRequest>): Promise<Result<z.input<typeof NoteListAnswer>, WireError>> {
    return await this.#guarded((list) => ok({ notes: this.#ofProposal(list, proposalId) }))
  }

  /** Notes visible to this run, newest first: its own proposals, and kept notes that none of them replaces. */
  #visible(kept: readonly MemoryNote[]): MemoryNote[] {
    const proposed = [...this.#proposed.values()]
    const replaced = new Set(proposed.map(({ replaces }) => replaces))
    const others = kept.filter(({ noteId }) => !replaced.has(noteId) && !this.#proposed.has(noteId))
    return [...proposed.map(({ note }) => note).toReversed(), ...others]
  }

  /** Returns the same objects while the store is unchanged, so that their search index stays valid. */
  #kept(list: readonly StoredNote[]): readonly MemoryNote[] {
    if (this.#keptOf?.list !== list) this.#keptOf = { list, notes: keptNotes(list, this.#options.workspace) }
    return this.#keptOf.notes
  }

  #ofProposal(list: readonly StoredNote[], proposalId: string): GovernanceNote[] {
    const kept = notesOfProposal(list, proposalId).map(({ kind: _, ...note }) => ({
      ...note,
      state: 'kept' as const,
    }))
    const own = [...this.#governance.values()].filter((note) => note.proposalId === proposalId)
    const known = new Set(kept.map(({ noteId }) => noteId))
    return [...kept, ...own.filter(({ noteId }) => !known.has(noteId))]
  }

  #refusal(texts: readonly string[]): { ok: false; error: WireError } | undefined {
    if (texts.some((text) => text.length > noteMaxChars))
      return refused('request_too_large', `A note has at most ${noteMaxChars} characters. Say it shorter.`)
    if (texts.every((text) => text.trim() === '')) return refused('invalid_request', 'The note is empty.')
    const secret = texts.map(findLikelySecret).find((found) => found !== undefined)
    if (secret !== undefined)
      return refused(
        'secret_refused',
        `The note seems to contain ${secret}, which is never stored. Say where to find it instead.`,
      )
    if (this.#count >= proposalsMaxCount)
      return refused('limit_notes', `Note limit reached (${proposalsMaxCount} per run).`)
    return undefined
  }

  /** Reads the kept notes first: what follows is not interrupted by another request. */
  async #guarded<T>(
    work: (list: readonly StoredNote[]) => Result<T, WireError>,
  ): Promise<Result<T, WireError>> {
    try {
      return work(await this.#options.store.list())
    } catch (error) {
      if (error instanceof CaissonError)
        return refused('not_configured', 'The notes on the host cannot be read; the user has to repair them.')
      throw error
    }
  }
}

/** Kept notes of a workspace for an agent, newest first. */
function keptNotes(list: readonly StoredNote[], workspace: string): MemoryNote[] {
  return notesOfWorkspace(list, workspace).map(({ noteId, text, tags }) => ({
    noteId,
    text,
    tags,
    state: 'kept' as const,
  }))
}

/** The newest kept notes, as many as a task is sent with. @throws {CaissonError} `state_unavailable` */
export async function notesForTask(store: NoteStore, workspace: string): Promise<MemoryNote[]> {
  const chosen: MemoryNote[] = []
  let chars = 0
  for (const note of keptNotes(await store.list(), workspace).slice(0, toldMaxCount)) {
    chars += note.text.length + note.tags.join('').length
    if (chars > toldMaxChars) break
    chosen.push(note)
  }
  return chosen
}

/** Same id for the same text, so that a repeated note is the same note. */
export function memoryNoteId(text: string, tags: readonly string[]): string {
  return `mem-${digest(['memory', text, ...tags.toSorted()])}`
}

export function governanceNoteId(proposalId: string, text: string): string {
  return `gov-${digest(['governance', proposalId, text])}`
}

/** Whether a text names a proposal and has the note word for word. */
export function isNoteIn(text: string, note: Pick<GovernanceNote, 'proposalId' | 'text'>): boolean {
  return text.includes(note.text) && text.toUpperCase().includes(note.proposalId.toUpperCase())
}

function digest(parts: readonly string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 12)
}

function ok<T>(value: T): Result<T, WireError> {
  return { ok: true, value }
}

function refused(code: GatewayErrorCode, message: string): { ok: false; error: WireError } {
  return { ok: false, error: gatewayError(code, message) }
}
