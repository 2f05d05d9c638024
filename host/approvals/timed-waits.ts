/**
 * Waits of a workflow for a time. Each is a question that the clock answers; a person may answer it earlier. So a wait has
 * the life of a question: it needs no VM, and another process continues it.
 */
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { WaitArguments } from '#specs/protocol/workflow.ts'
import { parseJson } from '../files/json.ts'
import type { DecisionRecord } from './decisions.ts'

/** Whether the run may wait: `passed`: each time has come already, as in a replay. Absent: no. */
export type MayWait = 'kept' | 'passed'

type Asked = Pick<ApprovalRequest, 'tool' | 'arguments'>

export function isTimedWait({ tool }: Pick<ApprovalRequest, 'tool'>): boolean {
  return tool === waitTool
}

/** The decision at once; undefined: the time is to come. */
export function ruleWait(
  request: Asked,
  mayWait: MayWait | undefined,
  now: number,
): DecisionRecord | undefined {
  const until = untilOf(request)
  if (mayWait === undefined || until === null) return refused
  return mayWait === 'passed' || until <= now ? timeHasCome : undefined
}

export const timeHasCome: DecisionRecord = {
  decision: 'allow',
  scope: 'once',
  by: 'rule',
  rule: 'the time has come',
}
const refused: DecisionRecord = {
  decision: 'deny',
  scope: 'once',
  by: 'rule',
  rule: 'only a step of a workflow waits for a time',
}

/** ms since 1970; null for what is no wait. */
function untilOf(request: Asked): number | null {
  if (!isTimedWait(request)) return null
  const read = WaitArguments.safeParse(parseJson(request.arguments))
  return read.success ? read.data.until : null
}

/** Node fires longer timers immediately. */
const timerMaxMs = 2 ** 31 - 1

/** Calls back once the time of a wait has come, unless that was aborted. Does nothing for other questions. */
export function whenTimeHasCome(request: Asked, onTime: () => void, signal: AbortSignal): void {
  const until = untilOf(request)
  if (until === null) return
  let timer: NodeJS.Timeout | undefined
  const arm = (): void => {
    const left = until - Date.now()
    if (left <= 0) onTime()
    else timer = setTimeout(arm, Math.min(left, timerMaxMs)).unref()
  }
  signal.addEventListener('abort', () => clearTimeout(timer), { once: true })
  if (!signal.aborted) timer = setTimeout(arm, 0).unref()
}
