/** Finds the moment of a run that a fork or a rewind begins at. */
import { CaissonError } from '#specs/errors.ts'
import type { CheckpointMoment, RunState } from '#specs/protocol/run-state.ts'

export interface ForkPoint {
  /**
   * A step of the plan, before it first started; `start`: before the run did anything; `now`: the moment of the call;
   * `end`: the last checkpoint.
   */
  readonly step: string
  /** Null: the beginning of the run. */
  readonly moment: CheckpointMoment | null
}

/** Names of moments that are no steps. */
const lastNames: ReadonlySet<string> = new Set(['end', 'now'])

/**
 * @param at a step of the plan, `start`, `end` for the last checkpoint, or `now`, which is that too: who wants a newer one
 * has it made first; a step that has such a name is meant
 * @throws {CaissonError} `not_possible_now` when the run has no such moment
 */
export function findMoment(
  runId: string,
  { plan, moments, checkpoint, steps }: RunState,
  at: string,
): ForkPoint {
  if (Object.hasOwn(moments, at)) return { step: at, moment: moments[at] ?? null }
  if (!Object.hasOwn(steps, at)) {
    if (at === 'start') return { step: 'start', moment: null }
    if (lastNames.has(at) && checkpoint !== null) return { step: 'end', moment: checkpoint }
  }
  throw new CaissonError('not_possible_now', `${runId} has no moment "${at}": ${reasonOf()}`, {
    remedy: `name one of these: ${namesOf({ moments, checkpoint }).join(', ')}`,
  })

  function reasonOf(): string {
    if (lastNames.has(at) && !Object.hasOwn(steps, at)) return 'it made no checkpoint'
    if (plan === null) return 'it has no plan yet'
    const known = Object.hasOwn(steps, at) ? steps[at] : undefined
    if (known === undefined) return 'its plan has no such step'
    if (known.state === 'pending' || known.state === 'skipped') return 'the step did not start'
    return 'the checkpoint before this step was given up for newer ones'
  }
}

/** Whether `at` is the moment of the call, for which a run at work makes a checkpoint. */
export function isNow({ steps, moments }: Pick<RunState, 'steps' | 'moments'>, at: string): boolean {
  return at === 'now' && !Object.hasOwn(steps, at) && !Object.hasOwn(moments, at)
}

/** The moments of a run, by the names that {@link findMoment} knows, oldest first. */
export function namesOf({ moments, checkpoint }: Pick<RunState, 'moments' | 'checkpoint'>): string[] {
  return ['start', ...Object.keys(moments), ...(checkpoint === null ? [] : ['end'])]
}
