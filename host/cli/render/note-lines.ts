/** Notes as lines: what is kept, what a run proposes, and what became of it. All of it but ids is untrusted. */
import type { HostEvent } from '#specs/protocol/event.ts'
import { formatCount, formatDate, formatTime } from '../../files/format.ts'
import type { StoredNote, WorkspaceNote } from '../../memory/note-storage.ts'
import type { ProposedNote } from '../../runs/run-notes.ts'
import type { Colors } from './colors.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

const margin = '    │ '
const shownMaxLines = 40
const lineMaxChars = 100

/** A kept note in one line. */
export function noteLine(note: StoredNote, colors: Colors): string {
  const when = formatDate(note.at)
  const of = note.kind === 'memory' ? tagsOf(note.tags) : `[${sanitizeLine(note.author, 40)}] `
  return `${note.noteId}  ${colors.dim(when)}  ${of}${firstLine(note.text)}`
}

/** All of a kept note. */
export function wholeNoteLines(note: StoredNote, colors: Colors): string[] {
  const of =
    note.kind === 'memory'
      ? `of ${sanitizeLine(note.workspace)}${note.runId === undefined ? '' : `, from ${note.runId}`}`
      : `of ${note.proposalId}, by ${sanitizeLine(note.author, 60)}`
  const tags = note.kind === 'memory' ? tagsOf(note.tags) : ''
  return [
    `${colors.bold(note.noteId)}  ${tags}${of}, ${formatTime(note.at)}`,
    ...sanitizeBlock(note.text, margin, 1_000).split('\n'),
  ]
}

/**
 * A proposed note as it stands in a review: who says it, what it is for, and its text behind the margin.
 * @param replaced the kept note in whose place it is to stand
 */
export function proposedNoteLines(
  proposal: ProposedNote,
  colors: Colors,
  replaced?: WorkspaceNote,
): string[] {
  const { note, agentPath } = proposal
  const who = agentPath === 'root' ? '' : ` (${sanitizeLine(agentPath, 60)})`
  const what =
    proposal.kind === 'governance'
      ? `for ${proposal.note.proposalId}`
      : `${tagsOf(proposal.note.tags)}${proposal.replaces === undefined ? '' : `replaces ${proposal.replaces}`}`
  return [
    `  ${colors.cyan('+')} ${note.noteId}${who} ${what}`.trimEnd(),
    ...sanitizeBlock(note.text, margin, shownMaxLines).split('\n'),
    ...(replaced === undefined
      ? []
      : [
          `  ${colors.red('-')} ${replaced.noteId}, which it replaces`,
          ...sanitizeBlock(replaced.text, margin, shownMaxLines).split('\n'),
        ]),
  ]
}

type NoteEvent = Extract<HostEvent, { type: 'memory-propose' | 'note-propose' | 'notes-decide' }>

/** What the screen of a run says of it. */
export function noteEventLines(event: NoteEvent, colors: Colors): string[] {
  if (event.type === 'memory-propose')
    return [colors.dim(`    the agent proposes to remember: ${firstLine(event.note.text)}`)]
  if (event.type === 'note-propose')
    return [
      colors.dim(`    the agent proposes a note for ${event.note.proposalId}: ${firstLine(event.note.text)}`),
    ]
  const { kept, dropped, by } = event
  const dropping = dropped.length === 0 ? '' : `, ${dropped.length} dropped`
  return [`${formatCount(kept.length, 'note')} kept${dropping}, by ${sanitizeLine(by)}`]
}

function tagsOf(tags: readonly string[]): string {
  return tags.length === 0 ? '' : `[${sanitizeLine(tags.join(', '), 80)}] `
}

function firstLine(text: string): string {
  const [line = ''] = text.trim().split('\n', 1)
  return sanitizeLine(line, lineMaxChars)
}
