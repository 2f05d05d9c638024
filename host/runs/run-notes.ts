/**
 * Reads the notes that a run proposed from its journal, after the run. A person keeps or drops each one; each decision
 * is journaled and made once. No note is kept without a decision.
 */
import * as z from 'zod'
import { CaissonError, requireText } from '#specs/errors.ts'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import type { GovernanceNote, MemoryNote } from '#specs/protocol/extension.ts'
import { Text } from '#specs/protocol/text.ts'
import { checkArguments } from '../files/check-arguments.ts'
import { readImported } from '../journal/imported.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunStore } from '../journal/run-store.ts'
import { isNoteIn } from '../memory/memory-service.ts'
import { keyOf, type StoredNote } from '../memory/note-storage.ts'
import type { NoteStore } from '../memory/note-store.ts'
import { requireValue } from './prepare.ts'

/** A proposed note without a decision. Its text is untrusted. */
export type ProposedNote =
  | {
      readonly kind: 'memory'
      readonly agentPath: string
      readonly note: MemoryNote
      /** The kept note that this one replaces. */
      readonly replaces?: string
    }
  | { readonly kind: 'governance'; readonly agentPath: string; readonly note: GovernanceNote }

/** Decision about a note; `text` replaces the agent's wording. */
export type NoteDecision = { readonly keep: true; readonly text?: string } | { readonly keep: false }

const Decisions = z.map(
  z.string(),
  z.discriminatedUnion('keep', [
    z.strictObject({ keep: z.literal(true), text: Text.min(1).optional() }),
    z.strictObject({ keep: z.literal(false) }),
  ]),
)

/** A note with a decision. */
export type SettledNote =
  | {
      readonly noteId: string
      readonly state: 'kept' | 'dropped'
      /** Who decided, as in the journal. */
      readonly by: string
      /** Milliseconds since 1970. */
      readonly at: number
    }
  | {
      readonly noteId: string
      readonly state: 'replaced'
      /** Id of the later proposal that replaces it. */
      readonly by: string
      readonly at: number
    }

export interface DecidedNotes {
  readonly kept: readonly string[]
  readonly dropped: readonly string[]
}

export class RunNotes {
  readonly runId: string
  /** The workspace of the run, by its real path. */
  readonly directory: string
  readonly #runs: RunStore
  readonly #store: NoteStore
  #pending: readonly ProposedNote[]
  #settled: readonly SettledNote[]

  private constructor(runs: RunStore, store: NoteStore, { runId, directory, pending, settled }: Proposals) {
    this.runId = runId
    this.directory = directory
    this.#runs = runs
    this.#store = store
    this.#pending = pending
    this.#settled = settled
  }

  static async open(runId: string, runs: RunStore, store: NoteStore): Promise<RunNotes> {
    const proposals = proposalsOf(runId, await runs.read(runId))
    const imported = await readImported(runs.paths(runId).directory)
    return new RunNotes(runs, store, {
      ...proposals,
      ...(imported === undefined ? {} : { directory: imported.workspace }),
    })
  }

  /** Notes without a decision, in the order they were written. */
  get pending(): readonly ProposedNote[] {
    return this.#pending
  }

  /** Notes that already had a decision when this object was opened. */
  get settled(): readonly SettledNote[] {
    return this.#settled
  }

  /**
   * Executes decisions and journals them; notes without a decision stay pending.
   * @param decisions by note id; ids that are no longer pending are ignored
   * @param by who decided, for the journal
   * @throws {CaissonError} `run_busy` while a process works on the run or in its workspace
   * @throws {CaissonError} `state_unavailable`
   */
  async decide(decisions: ReadonlyMap<string, NoteDecision>, by: string): Promise<DecidedNotes> {
    checkArguments('the decisions cannot be used', Decisions, decisions)
    requireText('by', by)
    const { runId, directory } = this
    await using record = await RunRecord.open(this.#runs.paths(runId))
    await using _ = requireValue(await record.holdDirectory(directory))
    const { pending } = proposalsOf(runId, await this.#runs.read(runId))
    const decided = pending.flatMap((proposal) => {
      const decision = decisions.get(proposal.note.noteId)
      return decision === undefined ? [] : [{ proposal, decision }]
    })
    const idsOf = (keep: boolean) =>
      decided.filter(({ decision }) => decision.keep === keep).map(({ proposal }) => proposal.note.noteId)
    const outcome = { kept: idsOf(true), dropped: idsOf(false) }
    if (decided.length === 0) return outcome
    const added = decided.flatMap(({ proposal, decision }) =>
      decision.keep
        ? [{ note: toStored(proposal, decision.text, this), isEdited: decision.text !== undefined }]
        : [],
    )
    const replaced = new Set(
      decided.flatMap(({ proposal, decision }) =>
        decision.keep && proposal.kind === 'memory' && proposal.replaces !== undefined
          ? [proposal.replaces]
          : [],
      ),
    )
    // Saves before journaling: a note saved twice becomes one, but a note journaled and not saved would be lost.
    if (added.length > 0) await this.#store.change((notes) => merge(notes, added, replaced, directory))
    const event: HostEvent = { type: 'notes-decide', ...outcome, by }
    await record.host(event)
    this.#pending = pending.filter(({ note }) => !decisions.has(note.noteId))
    return outcome
  }

  /**
   * Keeps the pending notes of proposals that stand in a text word for word, with the proposal; the others stay pending.
   * For a text whose author may decide, such as the goal that a caller wrote.
   * @param by who wrote the text, for the journal
   * @throws {CaissonError} as {@link decide}
   */
  async keepThoseIn(text: string, by: string): Promise<DecidedNotes> {
    requireText('text', text)
    requireText('by', by)
    const own = this.#pending.filter(
      (proposal) => proposal.kind === 'governance' && isNoteIn(text, proposal.note),
    )
    if (own.length === 0) return { kept: [], dropped: [] }
    return await this.decide(new Map(own.map(({ note }) => [note.noteId, { keep: true }])), by)
  }
}

interface Proposals {
  readonly runId: string
  readonly directory: string
  readonly pending: readonly ProposedNote[]
  readonly settled: readonly SettledNote[]
}

function proposalsOf(runId: string, events: readonly JournalEvent[]): Proposals {
  const pending = new Map<string, ProposedNote>()
  const settled: SettledNote[] = []
  let directory: string | undefined
  let isReplay = false
  for (const { event, at } of events) {
    if (event.type === 'run-start') {
      directory = event.directory
      isReplay = event.replays !== undefined
    } else if (event.type === 'memory-propose') {
      const { agentPath, note } = event
      const earlier = event.replaces === undefined ? undefined : pending.get(event.replaces)
      if (earlier !== undefined) {
        pending.delete(earlier.note.noteId)
        settled.push({ noteId: earlier.note.noteId, state: 'replaced', by: note.noteId, at })
      }
      // A proposal that replaces a proposal also inherits the note that the first one would replace.
      const replaces = earlier?.kind === 'memory' ? earlier.replaces : event.replaces
      const over = replaces === undefined ? {} : { replaces }
      pending.set(note.noteId, { kind: 'memory', agentPath, note, ...over })
    } else if (event.type === 'note-propose') {
      const { agentPath, note } = event
      pending.set(note.noteId, { kind: 'governance', agentPath, note })
    } else if (event.type === 'notes-decide') {
      for (const state of ['kept', 'dropped'] as const)
        for (const noteId of event[state]) {
          pending.delete(noteId)
          settled.push({ noteId, state, by: event.by, at })
        }
    }
  }
  if (directory === undefined)
    throw new CaissonError('not_possible_now', `${runId} has not begun: it proposed nothing`)
  // What a replay proposes, the run that it replays has proposed.
  return { runId, directory, pending: isReplay ? [] : [...pending.values()], settled }
}

function toStored(
  proposal: ProposedNote,
  edited: string | undefined,
  { runId, directory }: Pick<Proposals, 'runId' | 'directory'>,
): StoredNote {
  const at = Date.now()
  const text = edited ?? proposal.note.text
  if (proposal.kind === 'memory') {
    const { noteId, tags } = proposal.note
    return { kind: 'memory', noteId, workspace: directory, text, tags, at, runId }
  }
  const { noteId, proposalId, author } = proposal.note
  return { kind: 'governance', noteId, proposalId, text, author, at }
}

/** If a person has since edited a note with the same text, the edit is kept. */
function merge(
  notes: readonly StoredNote[],
  decided: readonly { readonly note: StoredNote; readonly isEdited: boolean }[],
  replaced: ReadonlySet<string>,
  workspace: string,
): StoredNote[] {
  const known = new Set(notes.map(keyOf))
  const added = decided.flatMap(({ note, isEdited }) => (isEdited || !known.has(keyOf(note)) ? [note] : []))
  const fresh = new Set(added.map(keyOf))
  const kept = notes.filter(
    (note) =>
      !fresh.has(keyOf(note)) &&
      !(note.kind === 'memory' && note.workspace === workspace && replaced.has(note.noteId)),
  )
  return [...kept, ...added]
}
