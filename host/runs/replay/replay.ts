/**
 * A run that is replayed: the same task on the same files, with every answer from what was recorded. It is a run of its
 * own. Nothing of it is applied, and its result says where it first was another than the run.
 */

import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { RunStore } from '../../journal/run-store.ts'
import type { Recording } from '../../recording/replay.ts'
import type { Run } from '../run.ts'
import type { PastAnswers } from './answers.ts'
import { type Comparison, compareJournals, type ReplayDifference } from './compare.ts'
import { compareChanges } from './compare-changes.ts'

export type { ReplayDifference } from './compare.ts'

export interface ReplayResult {
  /** Id of the replay, a run of its own. */
  readonly runId: string
  /** Id of the run that was replayed. */
  readonly replays: string
  readonly isSame: boolean
  /** The first difference; null: there is none. */
  readonly difference: ReplayDifference | null
  /** Events of the run that were compared. */
  readonly events: number
  /**
   * Whether the run was compared only up to where something outside of it ended it: a cancellation, its time limit, a lost
   * VM. Its changes are not compared then.
   */
  readonly isCutOff: boolean
}

export interface ReplayParts {
  readonly run: Run
  readonly store: RunStore
  readonly replays: string
  readonly journal: readonly JournalEvent[]
  readonly answers: PastAnswers
  readonly recording: Recording
}

export interface Replay {
  /** To watch it. Answers and messages come from the recording. */
  readonly run: Run
  /** Resolves when the replay has ended. @throws {CaissonError} `state_corrupted` */
  result(): Promise<ReplayResult>
}

/** Answers the run's questions and compares it at its end. */
export class ActiveReplay implements Replay {
  readonly run: Run
  readonly #parts: ReplayParts
  readonly #result: Promise<ReplayResult>

  constructor(parts: ReplayParts) {
    this.run = parts.run
    this.#parts = parts
    this.#result = this.#compare()
    this.#result.catch(() => undefined)
    void this.#answer()
    sendMessages(parts)
  }

  async result(): Promise<ReplayResult> {
    return await this.#result
  }

  /** Answers each question as the run's was; where that had no answer, the replay ends. */
  async #answer(): Promise<void> {
    const { run, answers } = this.#parts
    for await (const item of run.watch()) {
      if (item.source !== 'host' || item.event.type !== 'approval-request') continue
      const { approvalId } = item.event.request
      const question = reduceRun(initialRunState, item).pendingApprovals[approvalId]
      if (question === undefined) continue
      const said = answers.answerTo(question)
      if (!run.hasPendingApproval(approvalId)) continue
      if (said.kind === 'none') await run.cancel({ by: 'the end of the recording', now: true })
      else {
        const given = await run.answer(approvalId, said.answer, { by: said.by })
        if (!given.taken) await run.answer(approvalId, { decision: 'deny', scope: 'once' }, { by: said.by })
      }
    }
  }

  async #compare(): Promise<ReplayResult> {
    const { run, store, replays, journal } = this.#parts
    const state = await run.ended
    const replay = await store.read(run.id)
    const comparison = compareJournals(journal, replay)
    const difference =
      comparison.difference ?? (await this.#compareChanges(comparison, state.changes !== null))
    const { events, isCutOff } = comparison
    return { runId: run.id, replays, isSame: difference === null, difference, events, isCutOff }
  }

  async #compareChanges({ isCutOff }: Comparison, hasChanges: boolean): Promise<ReplayDifference | null> {
    const { run, store, replays } = this.#parts
    // Without a change set of the run the journals would have differed.
    if (isCutOff || !hasChanges) return null
    return await compareChanges(store.paths(replays).directory, store.paths(run.id).directory)
  }
}

/**
 * Sends the messages of people. Each reaches the agent before the answer that came before the request with the message,
 * so that the same request has it.
 */
function sendMessages({ run, journal, recording }: ReplayParts): void {
  const messages = journal.flatMap(({ event }) => (event.type === 'steer-request' ? [event] : []))
  const byKey = new Map<string, typeof messages>()
  for (const message of messages) {
    const key = recording.answeredBefore(message.text)
    if (key !== undefined) byKey.set(key, [...(byKey.get(key) ?? []), message])
  }
  if (byKey.size === 0) return
  recording.beforeAnswer(async (key) => {
    const due = byKey.get(key) ?? []
    byKey.delete(key)
    for (const { text, by, agentPath } of due)
      await run
        .steer(text, { by, ...(agentPath === undefined ? {} : { to: agentPath }) })
        .catch(() => undefined)
  })
}
