/** A run in a row of the list: its group, words and picture. Pure. */
import { ago, count, dateTime, dollars, tokens, visible } from '../../page/parts/text.ts'
import { plainLine } from '../session/text.ts'
import type { Run } from './overview.ts'

/** Groups of the list, in its order. */
export const groups = [
  'waits for an answer',
  'at work',
  'in the queue',
  'sleeping or interrupted',
  'ended',
] as const
export type Group = (typeof groups)[number]

export function groupOf({ status, pendingApprovals, isLive, end }: Run): Group {
  if (end !== null) return 'ended'
  if (pendingApprovals > 0) return 'waits for an answer'
  if (status === 'queued') return 'in the queue'
  if (status === 'sleeping' || status === 'interrupted') return 'sleeping or interrupted'
  return isLive || status === 'running' || status === 'waiting' ? 'at work' : 'ended'
}

/** What commands a row has. */
export function kindOf(run: Run): 'liveRun' | 'interruptedRun' | 'endedRun' {
  if (run.end !== null) return 'endedRun'
  return run.status === 'interrupted' || (run.status === 'sleeping' && run.isPaused === true)
    ? 'interruptedRun'
    : 'liveRun'
}

export function labelOf({ prompt, id }: Pick<Run, 'prompt' | 'id'>): string {
  return plainLine(prompt, 120) || id
}

export function descriptionOf(run: Run, now: number): string {
  const { queue, changes, applied, pendingApprovals, status, startedAt } = run
  const parts = [plainLine(status, 40)]
  if (queue !== undefined) parts.push(`place ${queue.place} of ${queue.waiting}`)
  if (pendingApprovals > 0) parts.push(count(pendingApprovals, 'question'))
  if (changes !== null && changes > 0)
    parts.push((applied ?? 0) > 0 ? `${applied} of ${changes} applied` : count(changes, 'change'))
  parts.push(ago(startedAt, now))
  return parts.join(' · ')
}

/** Plain text, also where VS Code could show Markdown. */
export function tooltipOf(run: Run): string {
  const { inputTokens, outputTokens } = run.usage
  return [
    visible(run.prompt),
    visible(run.workspace),
    `${dateTime(run.startedAt)} · ${visible(run.model)}`,
    `${count(run.toolCalls, 'tool call')} · ${tokens(inputTokens + outputTokens)} tokens${
      run.costUsd === null ? '' : ` · ${dollars(run.costUsd)}`
    }`,
    ...(run.problem === undefined ? [] : [visible(run.problem)]),
    run.id,
  ].join('\n')
}

/** Names of VS Code's pictures, and of its colors. */
export function iconOf(run: Run): readonly [icon: string, color?: string] {
  if (run.end !== null) {
    if (run.end.outcome === 'completed') return ['pass', 'testing.iconPassed']
    return run.end.outcome === 'cancelled' ? ['circle-slash'] : ['error', 'testing.iconFailed']
  }
  const icons = {
    'waits for an answer': ['question', 'charts.yellow'],
    'at work': ['loading~spin'],
    'in the queue': ['watch'],
    'sleeping or interrupted': ['debug-pause'],
    ended: ['warning', 'charts.orange'],
  } as const
  return icons[groupOf(run)]
}
