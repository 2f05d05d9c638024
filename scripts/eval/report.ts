/** Figures of an evaluation, and the comparison of two. Small samples get intervals, not bare percentages. */
import type { Attempt } from './attempts.ts'
import { seededNumbers } from './task.ts'

export interface Share {
  readonly passed: number
  readonly of: number
  /** 95 % interval of Wilson, which also holds for few attempts and for none or all passed. */
  readonly from: number
  readonly to: number
}

/** A mean over tasks, of the means of their attempts. */
export interface Mean {
  readonly mean: number
  /** 95 % interval by resampling the tasks (percentile bootstrap). */
  readonly from: number
  readonly to: number
}

export interface Summary {
  readonly tasks: number
  readonly success: Share
  /** Of an attempt. */
  readonly turns: Mean
  readonly tokens: Mean
  readonly seconds: Mean
  /** Null when the cost of an attempt is unknown, as all below. */
  readonly costUsd: Mean | null
  readonly totalCostUsd: number | null
}

export interface Comparison {
  readonly a: Summary
  readonly b: Summary
  /** B minus A, task by task. */
  readonly difference: {
    /** Of the shares of passed attempts. */
    readonly success: Mean
    readonly turns: Mean
    readonly tokens: Mean
    readonly seconds: Mean
    readonly costUsd: Mean | null
  }
  /** Tasks with a higher share of passed attempts on one side. Tasks of one side alone do not count. */
  readonly betterInA: readonly string[]
  readonly betterInB: readonly string[]
  readonly equal: number
  /** Probability of a difference between both counts at least this large if neither were better (sign test). */
  readonly chance: number
}

/** The normal quantile of a 95 % interval. */
const z95 = 1.959964
const resamples = 2_000

export function shareOf(passed: number, of: number): Share {
  if (of === 0) return { passed, of, from: 0, to: 1 }
  const square = z95 ** 2
  const middle = (passed + square / 2) / (of + square)
  const half = (z95 / (of + square)) * Math.sqrt((passed * (of - passed)) / of + square / 4)
  return { passed, of, from: Math.max(0, middle - half), to: Math.min(1, middle + half) }
}

/** The same values give the same interval. */
export function meanOf(values: readonly number[]): Mean {
  const average = (numbers: readonly number[]): number =>
    numbers.reduce((sum, value) => sum + value, 0) / Math.max(1, numbers.length)
  const pick = seededNumbers(1)
  const means = Array.from({ length: resamples }, () =>
    average(values.map(() => values[pick(values.length)] ?? 0)),
  ).sort((a, b) => a - b)
  const at = (part: number): number => means[Math.round(part * (resamples - 1))] ?? 0
  return { mean: average(values), from: at(0.025), to: at(0.975) }
}

/** What is measured of an attempt; null: unknown. */
const measures = {
  success: ({ passed }) => (passed ? 1 : 0),
  turns: ({ turns }) => turns,
  tokens: ({ inputTokens, outputTokens }) => inputTokens + outputTokens,
  seconds: ({ durationMs }) => durationMs / 1_000,
  costUsd: ({ costUsd }) => costUsd,
} as const satisfies Readonly<Record<string, (attempt: Attempt) => number | null>>
type Measure = (attempt: Attempt) => number | null

/** The mean of each task. Null: one is unknown. */
function byTask(attempts: readonly Attempt[], measure: Measure): Map<string, number> | null {
  const means = new Map<string, number>()
  for (const [task, group] of Map.groupBy(attempts, ({ task }) => task)) {
    const values = group.map(measure)
    const known = values.filter((value) => value !== null)
    if (known.length < values.length) return null
    means.set(task, known.reduce((sum, value) => sum + value, 0) / known.length)
  }
  return means
}

function meanOfTasks(attempts: readonly Attempt[], measure: Measure): Mean | null {
  const means = byTask(attempts, measure)
  return means === null ? null : meanOf([...means.values()])
}

const none: Mean = { mean: 0, from: 0, to: 0 }

export function summarize(attempts: readonly Attempt[]): Summary {
  const known = (measure: Measure): Mean => meanOfTasks(attempts, measure) ?? none
  const costs = attempts.map(({ costUsd }) => costUsd)
  return {
    tasks: new Set(attempts.map(({ task }) => task)).size,
    success: shareOf(attempts.filter(({ passed }) => passed).length, attempts.length),
    turns: known(measures.turns),
    tokens: known(measures.tokens),
    seconds: known(measures.seconds),
    costUsd: meanOfTasks(attempts, measures.costUsd),
    totalCostUsd: costs.includes(null) ? null : costs.reduce<number>((sum, cost) => sum + (cost ?? 0), 0),
  }
}

export function compareAttempts(left: readonly Attempt[], right: readonly Attempt[]): Comparison {
  const names = (attempts: readonly Attempt[]) => new Set(attempts.map(({ task }) => task))
  const shared = names(left).intersection(names(right))
  const a = left.filter(({ task }) => shared.has(task))
  const b = right.filter(({ task }) => shared.has(task))
  const successes = differences(a, b, measures.success) ?? new Map<string, number>()
  const known = (measure: Measure): Mean => meanOf([...(differences(a, b, measure) ?? new Map()).values()])
  const costs = differences(a, b, measures.costUsd)
  const betterWhere = (isBetter: (difference: number) => boolean) =>
    [...successes].filter(([, difference]) => isBetter(difference)).map(([task]) => task)
  const betterInA = betterWhere((difference) => difference < 0)
  const betterInB = betterWhere((difference) => difference > 0)
  return {
    ...{ a: summarize(a), b: summarize(b) },
    difference: {
      success: meanOf([...successes.values()]),
      turns: known(measures.turns),
      tokens: known(measures.tokens),
      seconds: known(measures.seconds),
      costUsd: costs === null ? null : meanOf([...costs.values()]),
    },
    ...{ betterInA, betterInB },
    equal: shared.size - betterInA.length - betterInB.length,
    chance: signTest(betterInA.length, betterInB.length),
  }
}

/** B minus A of each task. Null: a value is unknown. */
function differences(
  a: readonly Attempt[],
  b: readonly Attempt[],
  measure: Measure,
): Map<string, number> | null {
  const [left, right] = [byTask(a, measure), byTask(b, measure)]
  if (left === null || right === null) return null
  return new Map([...left].map(([task, value]) => [task, (right.get(task) ?? 0) - value]))
}

/** Two-sided, exact. */
function signTest(a: number, b: number): number {
  const count = a + b
  let term = 0.5 ** count
  let tail = 0
  for (let k = 0; k <= Math.min(a, b); k += 1) {
    tail += term
    term = (term * (count - k)) / (k + 1)
  }
  return Math.min(1, 2 * tail)
}
