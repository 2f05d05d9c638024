/** After a run: shows what it proposes to remember, and lets the person keep, change or drop each note; or follows the flag. */
import type { RunState } from '#specs/protocol/run-state.ts'
import { formatCount } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import { noteMaxChars, type WorkspaceNote } from '../../memory/note-storage.ts'
import { wordsOf } from '../../runs/ending.ts'
import type { DecidedNotes, NoteDecision, ProposedNote, RunNotes } from '../../runs/run-notes.ts'
import type { Io } from '../io.ts'
import { choose, type PromptIo } from '../prompts/ask.ts'
import { type EditText, findEditor } from '../prompts/plan-editor.ts'
import { settleKeys } from '../prompts/terminal-input.ts'
import { colorsFor } from '../render/colors.ts'
import { writeLines } from '../render/fit.ts'
import { proposedNoteLines } from '../render/note-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

interface NoteReview {
  /** `ask` puts them before the person; `keep` keeps all; `wait` decides nothing. */
  readonly choice: 'ask' | 'keep' | 'wait'
  readonly state: Pick<RunState, 'end' | 'proposedNotes'>
}

/** The choice that flags and terminal come to: what did not complete is kept only by a person who saw it. */
export function noteChoice(
  acceptMemory: boolean | undefined,
  isInteractive: boolean,
  { end }: Pick<RunState, 'end'>,
): NoteReview['choice'] {
  if (acceptMemory === true && end?.outcome === 'completed') return 'keep'
  return isInteractive ? 'ask' : 'wait'
}

/** Shows and decides what waits; says how it can be done later. */
export async function reviewNotes(
  io: Io,
  host: Host,
  runId: string,
  { choice, state }: NoteReview,
): Promise<void> {
  if (state.proposedNotes.length === 0) return
  try {
    await reviewPending(io, host, runId, choice)
  } catch (error) {
    // The run is over and its changes are collected: what waits keeps waiting.
    io.stderr.write(
      `caisson: the notes could not be reviewed and stay pending: ${sanitizeLine(wordsOf(error), 2_000)}\n`,
    )
  }
}

async function reviewPending(io: Io, host: Host, runId: string, choice: NoteReview['choice']): Promise<void> {
  const notes = await host.runNotes(runId)
  const { pending } = notes
  if (pending.length === 0) return
  const colors = colorsFor(io.stdout)
  const known = await host.notes.ofWorkspace(notes.directory)
  const head = `${formatCount(pending.length, 'note')} proposed by the agent for ${sanitizeLine(notes.directory)}`
  writeLines(io.stdout, [
    '',
    colors.bold(head),
    ...pending.flatMap((proposal) => proposedNoteLines(proposal, colors, replacedBy(proposal, known))),
  ])
  const folder = host.runs.paths(runId).directory
  const decisions = choice === 'ask' ? await ask(io, pending, folder) : decideAll(pending, choice)
  if (decisions.size > 0) await carryOut(io, notes, decisions)
  if (notes.pending.length > 0)
    io.stdout.write(
      `${formatCount(notes.pending.length, 'note')} still to review: caisson memory keep ${runId}, or caisson memory drop ${runId}\n`,
    )
}

/** All of what waits is kept, as `--accept-memory` says; for `--json`. Null, with why on standard error, when it cannot be. */
export async function keepNotes(io: Io, host: Host, runId: string): Promise<DecidedNotes | null> {
  try {
    const notes = await host.runNotes(runId)
    return await notes.decide(decideAll(notes.pending, 'keep'), '--accept-memory')
  } catch (error) {
    io.stderr.write(`the notes wait: ${sanitizeLine(wordsOf(error), 2_000)}\n`)
    return null
  }
}

function replacedBy(proposal: ProposedNote, known: readonly WorkspaceNote[]): WorkspaceNote | undefined {
  if (proposal.kind !== 'memory' || proposal.replaces === undefined) return undefined
  return known.find(({ noteId }) => noteId === proposal.replaces)
}

function decideAll(pending: readonly ProposedNote[], choice: 'keep' | 'wait'): Map<string, NoteDecision> {
  if (choice === 'wait') return new Map()
  return new Map(pending.map(({ note }) => [note.noteId, { keep: true }]))
}

async function carryOut(io: Io, notes: RunNotes, decisions: Map<string, NoteDecision>): Promise<void> {
  const { kept, dropped } = await notes.decide(decisions, 'the person at the terminal')
  const dropping = dropped.length === 0 ? '' : `, ${dropped.length} dropped`
  io.stdout.write(`${formatCount(kept.length, 'note')} kept${dropping}: caisson memory list\n`)
}

async function ask(
  io: Io,
  pending: readonly ProposedNote[],
  folder: string,
): Promise<Map<string, NoteDecision>> {
  const prompt = promptOf(io)
  await settleKeys(prompt)
  const isOne = pending.length === 1
  const choice = await choose(prompt, 'Keep them for later runs?', [
    ...(isOne ? [] : [{ value: 'each' as const, label: 'one by one' }]),
    { value: 'keep', label: isOne ? 'keep it' : 'keep all' },
    ...(isOne ? [{ value: 'each' as const, label: 'change it' }] : []),
    { value: 'drop', label: isOne ? 'drop it' : 'drop all' },
    { value: 'later', label: 'decide later' },
  ])
  if (choice === null || choice === 'later') return new Map()
  if (choice !== 'each') return new Map(pending.map(({ note }) => [note.noteId, { keep: choice === 'keep' }]))
  const edit = await findEditor(io, folder)
  const decisions = new Map<string, NoteDecision>()
  for (const proposal of pending) {
    const decision = await askOne(io, proposal, edit)
    if (decision === 'stop') break
    if (decision !== null) decisions.set(proposal.note.noteId, decision)
  }
  return decisions
}

async function askOne(
  io: Io,
  proposal: ProposedNote,
  edit: EditText | undefined,
): Promise<NoteDecision | 'stop' | null> {
  writeLines(io.stdout, proposedNoteLines(proposal, colorsFor(io.stdout)))
  for (;;) {
    const choice = await choose(promptOf(io), proposal.note.noteId, [
      { value: 'keep', label: 'keep' },
      ...(edit === undefined
        ? []
        : [{ value: 'edit' as const, label: 'change it in your editor, then keep' }]),
      { value: 'drop', label: 'drop' },
      { value: 'later', label: 'decide later' },
    ])
    if (choice === null) return 'stop'
    if (choice === 'later') return null
    if (choice !== 'edit' || edit === undefined) return { keep: choice === 'keep' }
    const edited = await editNote(edit, proposal.note.text)
    if (edited.ok) return { keep: true, text: edited.value }
    io.stdout.write(`${sanitizeLine(edited.error)}\n`)
  }
}

function promptOf(io: Io): PromptIo {
  return { input: io.stdin, output: io.stdout, signal: new AbortController().signal }
}

/** The text as the person left it in their editor. */
export async function editNote(
  edit: EditText,
  text: string,
): Promise<{ ok: true; value: string } | { ok: false; error: string }> {
  const edited = await edit(text, 'note-to-edit.txt')
  if (!edited.ok) return edited
  const trimmed = edited.value.trim()
  if (trimmed === '') return { ok: false, error: 'the note is empty; to discard it, choose drop' }
  if (trimmed.length > noteMaxChars)
    return {
      ok: false,
      error: `the note has ${trimmed.length} characters; the limit is ${noteMaxChars}`,
    }
  return { ok: true, value: trimmed }
}
