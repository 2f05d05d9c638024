/** Figures of an evaluation, and the comparison of two. Small samples get intervals, not bare percentages. */
import type { Attempt } from './attempts.ts'

export interface Share {
  readonly passed: number
  readonly of: number
  /** 95 % interval of Wilson, which also holds for few attempts and for none or all passed. */
  readonly from: number
  readonly to: number
}

export interface Summary {
  readonly tasks: number
  readonly success: Share
  /** Means of an attempt. */
  readonly turns: number
  readonly tokens: number
  readonly seconds: number
  /** Sum; null when the cost of an attempt is unknown. */
  readonly costUsd: number | null
}

export interface Comparison {
  readonly a: Summary
  readonly b: Summary
  /** Tasks with a higher share of passed attempts on one side. Tasks of one side alone do not count. */
  readonly betterInA: readonly string[]
  readonly betterInB: readonly string[]
  readonly equal: number
  /** Probability of a difference between both counts at least this large if neither were better (sign test). */
  readonly chance: number
}

/** The normal quantile of a 95 % interval. */
const z95 = 1.959964

export function shareOf(passed: number, of: number): Share {
  if (of === 0) return { passed, of, from: 0, to: 1 }
  const square = z95 ** 2
  const middle = (passed + square / 2) / (of + square)
  const half = (z95 / (of + square)) * Math.sqrt((passed * (of - passed)) / of + square / 4)
  return { passed, of, from: Math.max(0, middle - half), to: Math.min(1, middle + half) }
}

export function summarize(attempts: readonly Attempt[]): Summary {
  const meanOf = (value: (attempt: Attempt) => number): number =>
    attempts.reduce((sum, attempt) => sum + value(attempt), 0) / Math.max(1, attempts.length)
  const costs = attempts.map(({ costUsd }) => costUsd)
  return {
    tasks: new Set(attempts.map(({ task }) => task)).size,
    success: shareOf(attempts.filter(({ passed }) => passed).length, attempts.length),
    turns: meanOf(({ turns }) => turns),
    tokens: meanOf(({ inputTokens, outputTokens }) => inputTokens + outputTokens),
    seconds: meanOf(({ durationMs }) => durationMs / 1_000),
    costUsd: costs.includes(null) ? null : costs.reduce<number>((sum, cost) => sum + (cost ?? 0), 0),
  }
}

export function compareAttempts(a: readonly Attempt[], b: readonly Attempt[]): Comparison {
  const [left, right] = [passedShares(a), passedShares(b)]
  const shared = [...left].flatMap(([task, share]) => {
    const other = right.get(task)
    return other === undefined ? [] : [{ task, difference: other - share }]
  })
  const betterInA = shared.filter(({ difference }) => difference < 0).map(({ task }) => task)
  const betterInB = shared.filter(({ difference }) => difference > 0).map(({ task }) => task)
  return {
    a: summarize(a.filter(({ task }) => right.has(task))),
    b: summarize(b.filter(({ task }) => left.has(task))),
    betterInA,
    betterInB,
    equal: shared.length - betterInA.length - betterInB.length,
    chance: signTest(betterInA.length, betterInB.length),
  }
}

/** Markdown. Names of tasks and numbers alone: nothing of it is text of a model. */
export function renderComparison(names: readonly [string, string], comparison: Comparison): string {
  const { a, b, betterInA, betterInB, equal, chance } = comparison
  const row = (what: string, show: (summary: Summary) => string): string =>
    `| ${what} | ${show(a)} | ${show(b)} |`
  const list = (tasks: readonly string[]): string => (tasks.length === 0 ? 'none' : tasks.join(', '))
  return [
    `| | ${names[0]} | ${names[1]} |`,
    '|---|---|---|',
    ...summaryRows.map(([what, show]) => row(what, show)),
    '',
    `Better in ${names[0]} (${betterInA.length}): ${list(betterInA)}.`,
    `Better in ${names[1]} (${betterInB.length}): ${list(betterInB)}.`,
    `Equal: ${equal}. Sign test: p = ${chance.toFixed(3)}.`,
    '',
  ].join('\n')
}

export function renderSummary(name: string, summary: Summary): string {
  const rows = summaryRows.map(([what, show]) => `| ${what} | ${show(summary)} |`)
  return [`| | ${name} |`, '|---|---|', ...rows, ''].join('\n')
}

const percent = (share: number): string => `${Math.round(share * 100)} %`
const summaryRows: readonly (readonly [string, (summary: Summary) => string])[] = [
  ['tasks', ({ tasks }) => String(tasks)],
  [
    'passed (95 % interval)',
    ({ success: { passed, of, from, to } }) => `${passed} of ${of} (${percent(from)} to ${percent(to)})`,
  ],
  ['turns, mean', ({ turns }) => turns.toFixed(1)],
  ['tokens, mean', ({ tokens }) => tokens.toFixed(0)],
  ['seconds, mean', ({ seconds }) => seconds.toFixed(1)],
  ['cost, sum', ({ costUsd }) => (costUsd === null ? 'unknown' : `$${costUsd.toFixed(4)}`)],
]

function passedShares(attempts: readonly Attempt[]): Map<string, number> {
  const groups = Map.groupBy(attempts, ({ task }) => task)
  return new Map(
    [...groups].map(([task, group]) => [task, group.filter(({ passed }) => passed).length / group.length]),
  )
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
