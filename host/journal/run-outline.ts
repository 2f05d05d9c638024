/**
 * What lists show of a run: a limited part of the state from its journal, stored in `summary.json` so that lists need
 * not read journals. The journal is authoritative: a missing summary is created from it.
 */
import * as z from 'zod'
import { RunReason } from '#specs/protocol/error.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { NoteId } from '#specs/protocol/extension.ts'
import { RunMetadata } from '#specs/protocol/host-event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { RunOutcome, Usage } from '#specs/protocol/task.ts'
import { Count, Id, Line, Milliseconds, RunId, Sha256, Text } from '#specs/protocol/text.ts'
import type { JournalPoint } from './journal-lines.ts'

/** An undecided approval, and the position in the journal before the line of its request. */
export const OpenApproval = z.strictObject({
  approvalId: Id,
  seq: Count,
  bytes: Count,
  hash: Sha256,
  /** Time of the request, ms since 1970; absent in older summaries. */
  at: Milliseconds.optional(),
})
export type OpenApproval = z.infer<typeof OpenApproval>

export const RunOutline = z.strictObject({
  /** ms since 1970; null before `run-start`. */
  startedAt: Milliseconds.nullable(),
  /** The first 500 characters. */
  prompt: Line,
  workspace: z.string(),
  model: Line,
  metadata: RunMetadata.optional(),
  /** The continued run. */
  continues: RunId.optional(),
  /** The replayed run. */
  replays: RunId.optional(),
  /** Time of the last event, ms since 1970; absent in older summaries. */
  lastAt: Milliseconds.optional(),
  /** Since when the run sleeps, ms since 1970. Absent: it is not. */
  sleepingSince: Milliseconds.optional(),
  /** Whether a person had paused it before. */
  sleepsPaused: z.literal(true).optional(),
  /** Since when the run waits in the queue of its host, ms since 1970. Absent: it does not. */
  queuedSince: Milliseconds.optional(),
  /** Options that have no effect with its model. Absent: none, or it is in an older summary. */
  notes: z.array(Text).max(16).optional(),
  /** The run that it was forked from. */
  forkedFrom: RunId.optional(),
  /** When it was forked, ms since 1970. Absent: it is no fork, or an older one. */
  forkedAt: Milliseconds.optional(),
  /** Oldest first. */
  openApprovals: z.array(OpenApproval),
  state: z.strictObject({
    phase: z.enum(['preparing', 'planning', 'working', 'ended']),
    toolCalls: Count,
    usage: Usage,
    isUsageEstimated: z.boolean(),
    costUsd: z.number().nullable(),
    changes: z.strictObject({ entries: Count }).nullable(),
    /** Paths of the run that are applied, after the last completed apply or undo. */
    applied: Count.nullable(),
    /** An apply or undo that has not ended. */
    unfinished: z.enum(['apply', 'undo']).nullable(),
    proposedNotes: z.array(NoteId),
    /** The first 500 characters. */
    heldBack: Line.nullable(),
    /** `message`: the first 500 characters. */
    end: z.strictObject({ outcome: RunOutcome, reason: RunReason, message: Line }).nullable(),
  }),
})
export type RunOutline = z.infer<typeof RunOutline>

type Facts = Omit<RunOutline, 'state' | 'openApprovals'>

const noFacts: Facts = { startedAt: null, prompt: '', workspace: '', model: '' }

/** Folds a journal's lines into the run's state, from the beginning or from an outline. */
export class RunFold {
  #facts: Facts = noFacts
  #state: RunState = initialRunState
  readonly #openApprovals = new Map<string, OpenApproval>()
  /** Bytes of the lines so far. */
  #bytes = 0

  /** State fields outside the outline are as in {@link initialRunState}. */
  static from({ state, openApprovals, ...facts }: RunOutline, { bytes }: JournalPoint): RunFold {
    const fold = new RunFold()
    for (const open of openApprovals) fold.#openApprovals.set(open.approvalId, open)
    fold.#bytes = bytes
    const { changes, end } = state
    fold.#facts = facts
    fold.#state = {
      ...initialRunState,
      ...state,
      changes: changes === null ? null : { ...changes, flagged: [] },
      end: end === null ? null : { ...end, summary: '' },
    }
    return fold
  }

  get state(): RunState {
    return this.#state
  }

  /** Facts from the run's first event. */
  get facts(): Facts {
    return this.#facts
  }

  /** @param end the position after the line */
  next(line: JournalEvent, end: JournalPoint): void {
    this.#state = reduceRun(this.#state, line)
    this.#noteApproval(line, this.#bytes)
    this.#noteTime(line)
    this.#bytes = end.bytes
    const { event } = line
    if (event.type !== 'run-start' || this.#facts.startedAt !== null) return
    const { prompt, directory, model, metadata, notes, continues, replays, forkedFrom } = event
    this.#facts = {
      ...this.#facts,
      startedAt: line.at,
      prompt: cut(prompt),
      workspace: directory,
      model,
      ...(metadata === undefined ? {} : { metadata }),
      ...(notes === undefined ? {} : { notes }),
      ...(continues === undefined ? {} : { continues }),
      ...(replays === undefined ? {} : { replays }),
      ...(forkedFrom === undefined ? {} : { forkedFrom: forkedFrom.runId }),
      ...(forkedFrom?.at === undefined ? {} : { forkedAt: forkedFrom.at }),
    }
  }

  get outline(): RunOutline {
    const { phase, toolCalls, usage, isUsageEstimated, costUsd, applied, unfinished } = this.#state
    const { changes, proposedNotes, heldBack, end } = this.#state
    const state = {
      ...{ phase, toolCalls, usage, isUsageEstimated, costUsd, applied, unfinished },
      changes: changes === null ? null : { entries: changes.entries },
      proposedNotes: [...proposedNotes],
      heldBack: heldBack === null ? null : cut(heldBack),
      end: end === null ? null : { outcome: end.outcome, reason: end.reason, message: cut(end.message) },
    }
    return { ...this.#facts, openApprovals: [...this.#openApprovals.values()], state }
  }

  #noteTime({ at, event }: JournalEvent): void {
    const { sleepingSince, sleepsPaused, queuedSince, ...facts } = this.#facts
    const { type } = event
    const isAwake = type === 'run-resume' || type === 'queue-start' || type === 'run-end'
    const before = sleepingSince === undefined || isAwake ? {} : { sleepingSince, sleepsPaused }
    const slept = type === 'run-sleep' ? { sleepingSince: at, sleepsPaused: event.paused } : before
    const isLet = type === 'queue-end' || type === 'run-end'
    const queued = isLet ? undefined : (queuedSince ?? (type === 'queue-start' ? at : undefined))
    this.#facts = {
      ...facts,
      lastAt: at,
      ...slept,
      ...(queued === undefined ? {} : { queuedSince: queued }),
    }
  }

  /** As {@link reduceRun} does with `pendingApprovals`. */
  #noteApproval({ seq, prev, at, event }: JournalEvent, bytes: number): void {
    if (event.type === 'approval-request') {
      const { approvalId } = event.request
      this.#openApprovals.set(approvalId, { approvalId, seq: seq - 1, bytes, hash: prev, at })
    } else if (event.type === 'approval-decision') this.#openApprovals.delete(event.approvalId)
    else if (event.type === 'run-end' || event.type === 'run-resume') this.#openApprovals.clear()
  }
}

function cut(text: string): string {
  return text.slice(0, limits.lineMaxChars).toWellFormed()
}
