/** Reports in Markdown. Names of tasks, run IDs and numbers alone: nothing of it is text of a model. */
import type { Attempt } from './attempts.ts'
import { type Comparison, type Mean, type Summary, summarize } from './report.ts'

const percent = (share: number): string => `${Math.round(share * 100)} %`
const dollars = (value: number): string => `${value < 0 ? '-' : ''}$${Math.abs(value).toFixed(4)}`
const oneDigit = (value: number): string => value.toFixed(1)
const whole = (value: number): string => value.toFixed(0)

function showMean(found: Mean | null, show: (value: number) => string): string {
  return found === null ? 'unknown' : `${show(found.mean)} (${show(found.from)} to ${show(found.to)})`
}

interface Row {
  readonly name: string
  readonly show: (summary: Summary) => string
  /** Absent: no column. */
  readonly difference?: (difference: Comparison['difference']) => string
}

const rows: readonly Row[] = [
  { name: 'tasks', show: ({ tasks }) => String(tasks) },
  {
    name: 'passed',
    show: ({ success: { passed, of, from, to } }) =>
      `${passed} of ${of} (${percent(from)} to ${percent(to)})`,
    difference: ({ success }) => showMean(success, percent),
  },
  {
    name: 'turns',
    show: ({ turns }) => showMean(turns, oneDigit),
    difference: ({ turns }) => showMean(turns, oneDigit),
  },
  {
    name: 'tokens',
    show: ({ tokens }) => showMean(tokens, whole),
    difference: ({ tokens }) => showMean(tokens, whole),
  },
  {
    name: 'seconds',
    show: ({ seconds }) => showMean(seconds, oneDigit),
    difference: ({ seconds }) => showMean(seconds, oneDigit),
  },
  {
    name: 'cost',
    show: ({ costUsd }) => showMean(costUsd, dollars),
    difference: ({ costUsd }) => showMean(costUsd, dollars),
  },
  {
    name: 'cost of all attempts',
    show: ({ totalCostUsd }) => (totalCostUsd === null ? 'unknown' : dollars(totalCostUsd)),
  },
]
const meaning =
  'Turns, tokens, seconds and cost are means of an attempt. In parentheses: 95 % intervals, by Wilson for passed attempts, by resampling the tasks for means.'

export function renderSummary(attempts: readonly Attempt[]): string {
  const summary = summarize(attempts)
  return [
    '| | |',
    '|---|---|',
    ...rows.map(({ name, show }) => `| ${name} | ${show(summary)} |`),
    ...['', meaning, ''],
  ].join('\n')
}

/** One row for each task, in the order of the attempts; then the attempts that did not pass. */
export function renderTasks(attempts: readonly Attempt[]): string {
  const groups = Map.groupBy(attempts, ({ task }) => task)
  const lines = [...groups].map(([task, group]) => {
    const { success, turns, tokens, seconds, costUsd } = summarize(group)
    const cost = costUsd === null ? 'unknown' : dollars(costUsd.mean)
    const figures = [oneDigit(turns.mean), whole(tokens.mean), oneDigit(seconds.mean), cost]
    return `| ${task} | ${success.passed} of ${success.of} | ${figures.join(' | ')} |`
  })
  const failed = attempts.filter(({ passed }) => !passed)
  return [
    '| task | passed | turns | tokens | seconds | cost |',
    '|---|---|---|---|---|---|',
    ...lines,
    '',
    ...(failed.length === 0 ? [] : ['Not passed; `caisson runs show RUN` shows a run:', '']),
    ...failed.map(({ task, attempt, end, runId }) => `- ${task}, attempt ${attempt}: ${end}, ${runId}`),
    ...(failed.length === 0 ? [] : ['']),
  ].join('\n')
}

export function renderComparison(comparison: Comparison): string {
  const { a, b, difference, betterInA, betterInB, equal, chance } = comparison
  const list = (tasks: readonly string[]): string => (tasks.length === 0 ? 'none' : tasks.join(', '))
  return [
    '| | A | B | B minus A |',
    '|---|---|---|---|',
    ...rows.map(
      (row) => `| ${row.name} | ${row.show(a)} | ${row.show(b)} | ${row.difference?.(difference) ?? ''} |`,
    ),
    ...['', meaning, ''],
    `- Better in A (${betterInA.length}): ${list(betterInA)}.`,
    `- Better in B (${betterInB.length}): ${list(betterInB)}.`,
    `- Equal: ${equal}. Sign test: p = ${chance.toFixed(3)}.`,
    '',
  ].join('\n')
}
