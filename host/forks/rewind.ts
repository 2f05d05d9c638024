/** Refuses a rewind that would leave effects outside the VM without a person's word; ends the run that is rewound. */
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { keepMoments } from '../journal/kept-moments.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunStore } from '../journal/run-store.ts'
import { findMoment } from './moment.ts'
import { behind, outsideEffects } from './outside-effects.ts'

export interface Rewound {
  /** The run that takes the place of the other; `host.resume` continues it. */
  readonly runId: string
  readonly step: string
  /** What the other run did outside its VM behind the moment; at most 20. */
  readonly effects: readonly string[]
}

/**
 * What the run did outside its VM behind the moment.
 * @throws {CaissonError} `not_possible_now` when it did something and nobody accepted that, or has no such moment
 */
export async function checkRewind(
  store: RunStore,
  runId: string,
  to: string,
  isAccepted: boolean,
): Promise<string[]> {
  const lines: JournalEvent[] = []
  let state = initialRunState
  await store.visit(runId, (line) => {
    lines.push(line)
    state = reduceRun(state, line)
  })
  const { moment, step } = findMoment(runId, state, to)
  const effects = outsideEffects(behind(lines, moment?.checkpointId ?? null))
  if (effects.length === 0 || isAccepted) return effects
  throw new CaissonError(
    'not_possible_now',
    `${runId} had effects outside its VM behind "${step}", which a rewind does not undo: ${effects.join('; ')}`,
    {
      remedy:
        'undo applied changes: caisson workspace undo RUN; for other effects, rewind with --despite-effects (library: despiteEffects)',
    },
  )
}

/** Ends an interrupted run, whose place another one takes. Nothing happens to one that has ended. */
export async function endInterrupted(store: RunStore, runId: string, message: string): Promise<void> {
  if ((await store.fold(runId)).state.end !== null) return
  const paths = store.paths(runId)
  await using record = await RunRecord.open(paths)
  const { end, usage, checkpoint } = record.state
  if (end !== null) return
  const ending = { outcome: 'cancelled', reason: 'cancelled', message, summary: '' } as const
  await record.host({ type: 'run-end', ...ending, usage, durationMs: checkpoint?.elapsedMs ?? 0 })
  await keepMoments(paths)
}
