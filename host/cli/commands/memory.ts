/** `caisson memory`: what is remembered of a workspace, as the person lists, adds, changes and removes it. */

import { realpath } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { formatCount, formatTime } from '../../files/format.ts'
import { memoryNoteId } from '../../memory/memory-service.ts'
import { keyOf, noteMaxChars, type StoredNote, type WorkspaceNote } from '../../memory/note-storage.ts'
import type { NoteStore } from '../../memory/note-store.ts'
import type { NoteDecision, SettledNote } from '../../runs/run-notes.ts'
import { findLikelySecret } from '../../secrets/likely-secret.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { findRun, hostOf, type Io } from '../io.ts'
import { findEditor } from '../prompts/plan-editor.ts'
import { colorsFor } from '../render/colors.ts'
import { writeLines } from '../render/fit.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { noteLine, wholeNoteLines } from '../render/note-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { editNote } from './review-notes.ts'

interface Place {
  readonly workspace?: string
}

export async function memoryList(
  io: Io,
  flags: Place & { all?: boolean; json?: boolean },
): Promise<ExitCode> {
  const host = hostOf(io)
  const directory = await realDirectory(flags.workspace)
  const kept = (
    flags.all === true ? (await host.notes.list()).toReversed() : await host.notes.ofWorkspace(directory)
  ).filter((note): note is WorkspaceNote => note.kind === 'memory')
  const runs = (await host.runs.list()).filter(
    ({ state, workspace }) =>
      state.proposedNotes.length > 0 && (flags.all === true || workspace === directory),
  )
  const damaged = await host.notes.damaged()
  if (flags.json === true) {
    for (const note of kept) await writeJsonLine(io.stdout, { state: 'kept', ...note })
    for (const { id: runId, workspace, state } of runs)
      await writeJsonLine(io.stdout, { state: 'proposed', runId, workspace, notes: state.proposedNotes })
    for (const line of damaged)
      await writeJsonLine(io.stdout, { state: 'damaged', file: host.notes.file, ...line })
    return exitCodes.completed
  }
  const colors = colorsFor(io.stdout)
  writeLines(
    io.stdout,
    linesByWorkspace(kept, flags.all === true, (note) => noteLine(note, colors)),
  )
  for (const { id: runId, state } of runs)
    io.stdout.write(
      `${formatCount(state.proposedNotes.length, 'note')} of ${runId} to review: caisson memory keep ${runId}, or caisson memory drop ${runId}\n`,
    )
  if (kept.length === 0 && runs.length === 0)
    io.stdout.write(`no notes${flags.all === true ? '' : ` for ${sanitizeLine(directory)}`}\n`)
  writeLines(
    io.stdout,
    damaged.map(({ line, text }) =>
      colors.yellow(`line ${line} of ${host.notes.file} is not a valid note: ${sanitizeLine(text, 80)}`),
    ),
  )
  return exitCodes.completed
}

function linesByWorkspace(
  notes: readonly WorkspaceNote[],
  isApart: boolean,
  line: (note: WorkspaceNote) => string,
): string[] {
  if (!isApart) return notes.map(line)
  const places = [...new Set(notes.map(({ workspace }) => workspace))]
  return places.flatMap((place) => [
    sanitizeLine(place),
    ...notes.filter(({ workspace }) => workspace === place).map((note) => `  ${line(note)}`),
  ])
}

export async function memoryShow(io: Io, name: string, flags: Place): Promise<ExitCode> {
  const note = findNote(await hostOf(io).notes.ofWorkspace(await realDirectory(flags.workspace)), name)
  writeLines(io.stdout, wholeNoteLines(note, colorsFor(io.stdout)))
  return exitCodes.completed
}

export async function memoryAdd(io: Io, text: string, flags: Place & { tag?: string[] }): Promise<ExitCode> {
  const { folders, notes } = hostOf(io)
  const trimmed = noteText(text)
  const tags = flags.tag ?? []
  if (tags.length > 16 || tags.some((tag) => tag === '' || tag.length > 100))
    throw new CaissonError('invalid_options', 'a note has at most 16 tags of 1 to 100 characters')
  await prepareFolders(folders)
  const workspace = await realDirectory(flags.workspace)
  const noteId = memoryNoteId(trimmed, tags)
  const same = (await notes.ofWorkspace(workspace)).find((note) => note.noteId === noteId)
  // A note keeps its id when it is edited: what was added again would undo that unseen.
  if (same !== undefined && same.text !== trimmed)
    throw new CaissonError(
      'invalid_options',
      `${noteId} started with the same text and now reads: ${sanitizeLine(same.text, 200)}; to change it: caisson memory edit ${noteId}`,
    )
  await put(notes, { kind: 'memory', noteId, workspace, text: trimmed, tags, at: Date.now() })
  io.stdout.write(`kept as ${noteId}\n`)
  warnOfSecret(io, trimmed, noteId)
  return exitCodes.completed
}

export async function memoryEdit(io: Io, name: string, flags: Place): Promise<ExitCode> {
  const { folders, notes } = hostOf(io)
  const note = findNote(await notes.ofWorkspace(await realDirectory(flags.workspace)), name)
  const edit = await findEditor(io, path.dirname(notes.file))
  if (edit === undefined) throw new CaissonError('invalid_options', 'no editor is set; set EDITOR')
  const edited = await editNote(edit, note.text)
  if (!edited.ok) {
    io.stderr.write(`caisson: not changed: ${sanitizeLine(edited.error)}\n`)
    return exitCodes.failed
  }
  await prepareFolders(folders)
  await put(notes, { ...note, text: edited.value, at: Date.now() })
  io.stdout.write(`changed ${note.noteId}\n`)
  warnOfSecret(io, edited.value, note.noteId)
  return exitCodes.completed
}

/** An agent may not propose such a note; a person may keep one, and learns where it goes. */
function warnOfSecret(io: Io, text: string, noteId: string): void {
  const found = findLikelySecret(text)
  if (found !== undefined)
    io.stderr.write(
      `caisson: the note seems to contain ${found}, and later runs here send it to their model; to remove it: caisson memory rm ${noteId}\n`,
    )
}

export async function memoryRemove(io: Io, names: string[], flags: Place): Promise<ExitCode> {
  const { notes } = hostOf(io)
  const directory = await realDirectory(flags.workspace)
  await removeNotes(io, notes, await notes.ofWorkspace(directory), names)
  return exitCodes.completed
}

export async function memoryMove(io: Io, old: string, flags: Place): Promise<ExitCode> {
  const { notes } = hostOf(io)
  const from = await realDirectory(old)
  const to = await realDirectory(flags.workspace)
  if (from === to) throw new CaissonError('invalid_options', 'the old and the new directory are the same')
  const moved = await notes.ofWorkspace(from)
  if (moved.length === 0) throw new CaissonError('invalid_options', `no notes for ${sanitizeLine(from)}`)
  await notes.change((all) =>
    all.map((note) =>
      note.kind === 'memory' && note.workspace === from ? { ...note, workspace: to } : note,
    ),
  )
  io.stdout.write(
    `${formatCount(moved.length, 'note')} of ${sanitizeLine(from)} moved to ${sanitizeLine(to)}\n`,
  )
  return exitCodes.completed
}

export async function decide(
  io: Io,
  run: string,
  names: string[],
  decision: NoteDecision,
): Promise<ExitCode> {
  const host = hostOf(io)
  const runId = await findRun(io, run)
  await prepareFolders(host.folders)
  const notes = await host.runNotes(runId)
  const waiting = notes.pending.map(({ note }) => note)
  const chosen =
    names.length === 0
      ? waiting
      : names.map((name) => findNote(waiting, name, () => whatBecame(notes.settled, name)))
  const { kept, dropped } = await notes.decide(
    new Map(chosen.map(({ noteId }) => [noteId, decision])),
    decision.keep ? 'caisson memory keep' : 'caisson memory drop',
  )
  io.stdout.write(
    decision.keep
      ? `${formatCount(kept.length, 'note')} kept\n`
      : `${formatCount(dropped.length, 'note')} dropped\n`,
  )
  return exitCodes.completed
}

/** Removes notes by their names. Each must name one note. */
export async function removeNotes(
  io: Io,
  store: NoteStore,
  among: readonly StoredNote[],
  names: readonly string[],
): Promise<void> {
  const gone = new Set(names.map((name) => keyOf(findNote(among, name))))
  await store.change((all) => all.filter((note) => !gone.has(keyOf(note))))
  io.stdout.write(`${formatCount(gone.size, 'note')} removed\n`)
}

/** Keeps a note, in the place of the one of its id if there is one. */
export async function put(store: NoteStore, note: StoredNote): Promise<void> {
  await store.change((all) => [...all.filter((other) => keyOf(other) !== keyOf(note)), note])
}

/** @throws {CaissonError} `invalid_options` */
export function noteText(text: string): string {
  const trimmed = text.trim().toWellFormed()
  if (trimmed === '') throw new CaissonError('invalid_options', 'the note is empty')
  if (trimmed.length > noteMaxChars)
    throw new CaissonError(
      'invalid_options',
      `the note has ${trimmed.length} characters; the limit is ${noteMaxChars}`,
    )
  return trimmed
}

/** Of a note of the run that waits no more; undefined of one that it never proposed. */
function whatBecame(settled: readonly SettledNote[], name: string): string | undefined {
  const note = settled.findLast(({ noteId }) => isNamed(noteId, name))
  if (note === undefined) return undefined
  const { noteId, state, by, at } = note
  if (state === 'replaced') return `${noteId} is not pending: the agent replaced it by ${by}`
  const remedy =
    state === 'kept'
      ? `to remove it: caisson memory rm ${noteId}`
      : 'to add its text: caisson memory add TEXT'
  return `${noteId} was ${state} already, by ${sanitizeLine(by, 60)} at ${formatTime(at)}; ${remedy}`
}

function isNamed(noteId: string, name: string): boolean {
  return noteId.startsWith(name) || noteId.slice(4).startsWith(name)
}

/** @param whyNone what to say where there is none. @throws {CaissonError} `invalid_options` */
function findNote<T extends { readonly noteId: string }>(
  among: readonly T[],
  name: string,
  whyNone: () => string | undefined = () => undefined,
): T {
  const matches = among.filter(({ noteId }) => isNamed(noteId, name))
  const [match] = matches
  if (match !== undefined && matches.length === 1) return match
  const shown = sanitizeLine(name, 60)
  if (match === undefined)
    throw new CaissonError('invalid_options', whyNone() ?? `no note here has the ID "${shown}"`)
  throw new CaissonError('invalid_options', `"${shown}" matches ${matches.length} notes; use a longer ID`)
}

/** Its real path; of one that is not there any more the path itself. */
export async function realDirectory(directory = '.'): Promise<string> {
  const whole = path.resolve(directory)
  return await realpath(whole).catch(() => whole)
}
