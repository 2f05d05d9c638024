/** Makes the attempts of an evaluation that are missing, several at once, until all are there or it has to stop. */
import type { AttemptEnd } from './attempt.ts'
import type { Attempt } from './attempts.ts'
import type { EvalTask } from './task.ts'

/** Runs lost one after another that stop it: the next ones would be lost, too. */
const lostMaxInRow = 3

export interface Work {
  readonly task: EvalTask
  /** From 1 on. */
  readonly attempt: number
}

export interface EvaluationParts {
  readonly tasks: readonly EvalTask[]
  readonly tries: number
  /** Attempts at once. */
  readonly parallel: number
  /** US dollars of the attempts made now; absent: no bound. */
  readonly maxCostUsd?: number
  /** What an earlier process made. */
  readonly done: readonly Attempt[]
  /** No attempt begins after it is aborted; those under way are expected to end. */
  readonly signal: AbortSignal
  /** @param maxCostUsd of this attempt */
  readonly attemptOne: (work: Work, maxCostUsd: number | undefined) => Promise<AttemptEnd>
  readonly onAttempt: (attempt: Attempt) => Promise<void>
  readonly onLost: (work: Work, why: string) => void
}

/** `lost`: runs could not start or were lost, again and again. */
export type Stop = 'complete' | 'interrupted' | 'cost' | 'lost'

export interface Evaluated {
  readonly stop: Stop
  /** Runs that were no attempts. */
  readonly lost: number
}

export async function evaluate(parts: EvaluationParts): Promise<Evaluated> {
  const { parallel, signal, maxCostUsd } = parts
  const open = missingWork(parts)
  const budget = new CostBudget(maxCostUsd, parallel)
  let [lost, lostInRow] = [0, 0]
  let stop: Stop = 'complete'

  const workOff = async (): Promise<void> => {
    while (stop === 'complete' && !signal.aborted) {
      const next = open.shift()
      if (next === undefined) return
      const share = budget.take()
      if (share === 0) {
        stop = 'cost'
        return
      }
      const end = await parts.attemptOne(next, share)
      const costUsd = end.kind === 'attempt' ? end.attempt.costUsd : end.costUsd
      budget.giveBack(share, costUsd)
      if (end.kind === 'attempt') {
        // It did not fail: the bound of this evaluation ended it.
        if (share !== undefined && end.attempt.end.endsWith('limit_cost')) stop = 'cost'
        else await parts.onAttempt(end.attempt)
        lostInRow = 0
      } else if (!signal.aborted) {
        parts.onLost(next, end.why)
        lost += 1
        lostInRow += 1
        if (lostInRow >= lostMaxInRow) stop = 'lost'
      }
    }
  }
  const workOrStop = async (): Promise<void> => {
    try {
      await workOff()
    } catch (error) {
      stop = 'lost'
      throw error
    }
  }
  await allSettledOrThrow(Array.from({ length: parallel }, workOrStop))
  return { stop: signal.aborted ? 'interrupted' : stop, lost }
}

/** First each task once, so that an evaluation that stops early has seen most of them. */
function missingWork({ tasks, tries, done }: EvaluationParts): Work[] {
  const made = new Set(done.map(({ task, attempt }) => `${task} ${attempt}`))
  return Array.from({ length: tries }, (_, index) => index + 1)
    .flatMap((attempt) => tasks.map((task) => ({ task, attempt })))
    .filter(({ task, attempt }) => !made.has(`${task.name} ${attempt}`))
}

/** Waits for all, so that no attempt is at work when the first error is thrown. */
async function allSettledOrThrow(work: readonly Promise<void>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason
}

/** Divides a bound on cost among the attempts at work, so that all together stay below it. */
class CostBudget {
  /** Not spent, and promised to no attempt. */
  #leftUsd: number | undefined
  #freeSlots: number

  constructor(maxUsd: number | undefined, slots: number) {
    this.#leftUsd = maxUsd
    this.#freeSlots = slots
  }

  /** What the next attempt may spend: 0 when nothing is left, undefined without a bound. */
  take(): number | undefined {
    if (this.#leftUsd === undefined) return undefined
    const share = Math.max(0, this.#leftUsd / this.#freeSlots)
    this.#leftUsd -= share
    this.#freeSlots -= 1
    return share
  }

  /** @param spentUsd null: unknown, so all of it may be spent */
  giveBack(share: number | undefined, spentUsd: number | null): void {
    if (this.#leftUsd === undefined || share === undefined) return
    this.#leftUsd += share - (spentUsd ?? share)
    this.#freeSlots += 1
  }
}
