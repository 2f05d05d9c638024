/** Kept notes of workspaces and proposals, and the interface of what stores them. */
import * as z from 'zod'
import { GovernanceNote, MemoryNote } from '#specs/protocol/extension.ts'
import { Milliseconds, RunId } from '#specs/protocol/text.ts'

/** Maximum characters of one note: a fact, not a document. */
export const noteMaxChars = 4_000
/** Maximum notes of one workspace, and of one proposal. */
export const notesMaxCount = 500

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

/** Key of a note: its id within its workspace or proposal. */
export function keyOf(note: StoredNote): string {
  return `${note.kind} ${note.noteId} ${note.kind === 'memory' ? note.workspace : note.proposalId}`
}

/**
 * Where kept notes are. `host.notes` checks what it returns and what it is given. A storage of an application may be
 * asynchronous, as databases on a network are.
 */
export interface NoteStorage {
  /** All notes, oldest first. Returns the same list as long as nothing changes, where that is easy to know. */
  list(): readonly StoredNote[] | Promise<readonly StoredNote[]>
  /**
   * Replaces all notes with the result of `make`, whole or not at all; no other change comes between. Rejects with the error
   * of `make`, and changes nothing then.
   */
  change(make: (notes: readonly StoredNote[]) => readonly StoredNote[]): void | Promise<void>
}
