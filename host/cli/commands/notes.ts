/** `caisson notes`: the notes of proposals. */

import { CaissonError } from '#specs/errors.ts'
import { ProposalId } from '#specs/protocol/extension.ts'
import { governanceNoteId } from '../../memory/memory-service.ts'
import type { ProposalNote } from '../../memory/note-storage.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { colorsFor } from '../render/colors.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { wholeNoteLines } from '../render/note-lines.ts'
import { noteText, put, removeNotes } from './memory.ts'

export async function notesList(
  io: Io,
  proposal: string | undefined,
  flags: { json?: boolean },
): Promise<ExitCode> {
  const { notes } = hostOf(io)
  const found =
    proposal === undefined
      ? (await notes.list()).filter((note): note is ProposalNote => note.kind === 'governance')
      : await notes.ofProposal(proposalOf(proposal))
  for (const note of found) {
    if (flags.json === true) await writeJsonLine(io.stdout, note)
    else writeLines(io.stdout, wholeNoteLines(note, colorsFor(io.stdout)))
  }
  if (found.length === 0 && flags.json !== true) io.stdout.write('no notes\n')
  return exitCodes.completed
}

export async function notesAdd(io: Io, proposal: string, text: string): Promise<ExitCode> {
  const { folders, notes } = hostOf(io)
  const proposalId = proposalOf(proposal)
  const trimmed = noteText(text)
  await prepareFolders(folders)
  const noteId = governanceNoteId(proposalId, trimmed)
  await put(notes, {
    kind: 'governance',
    noteId,
    proposalId,
    text: trimmed,
    author: 'person',
    at: Date.now(),
  })
  io.stdout.write(`kept as ${noteId}\n`)
  return exitCodes.completed
}

export async function notesRemove(io: Io, proposal: string, names: string[]): Promise<ExitCode> {
  const { notes } = hostOf(io)
  await removeNotes(io, notes, await notes.ofProposal(proposalOf(proposal)), names)
  return exitCodes.completed
}

/** @throws {CaissonError} `invalid_options` */
function proposalOf(name: string): string {
  if (!ProposalId.safeParse(name).success)
    throw new CaissonError(
      'invalid_options',
      'invalid proposal; expected PROP- and 1 to 64 of A-Z a-z 0-9 . _ -',
    )
  return name
}
