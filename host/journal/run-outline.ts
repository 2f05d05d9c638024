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
import { Count, Line, Milliseconds, RunId } from '#specs/protocol/text.ts'

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

type Facts = Omit<RunOutline, 'state'>

const noFacts: Facts = { startedAt: null, prompt: '', workspace: '', model: '' }

/** Folds a journal's lines into the run's state, from the beginning or from an outline. */
export class RunFold {
  #facts: Facts = noFacts
  #state: RunState = initialRunState

  /** State fields outside the outline are as in {@link initialRunState}. */
  static from({ state, ...facts }: RunOutline): RunFold {
    const fold = new RunFold()
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

  next(line: JournalEvent): void {
    this.#state = reduceRun(this.#state, line)
    const { event } = line
    if (event.type !== 'run-start' || this.#facts.startedAt !== null) return
    const { prompt, directory, model, metadata, continues } = event
    this.#facts = {
      startedAt: line.at,
      prompt: cut(prompt),
      workspace: directory,
      model,
      ...(metadata === undefined ? {} : { metadata }),
      ...(continues === undefined ? {} : { continues }),
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
    return { ...this.#facts, state }
  }
}

function cut(text: string): string {
  return text.slice(0, limits.lineMaxChars).toWellFormed()
}
