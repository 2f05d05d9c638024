/** A run as tools answer with it, and the wait for its next turning point. */
import { setTimeout as sleep } from 'node:timers/promises'
import type * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { ApprovalResource } from '#specs/service/approval-resources.ts'
import type { RunResource, RunResultResource } from '#specs/service/run-resources.ts'
import type { JournalEvent, ServiceReply } from '../../client/index.ts'
import { type McpCaller, mcpMark } from './caller.ts'

export type Question = z.infer<typeof ApprovalResource>

export interface RunView {
  readonly run: RunResource
  /** Undefined before its end. */
  readonly result: z.infer<typeof RunResultResource> | undefined
  /** What it waits for, oldest first. */
  readonly questions: readonly Question[]
}

/** A run tells its result a little after its last event. */
const resultWaitMs = 10_000
/** Time of one request for events; the state is looked at again after one without any. */
const waitStepMs = 15_000
const eventsOfPage = 1_000
/** Between two requests for events, so that a run with many of them uses up no quota of its caller. */
const pageGapMs = 1_000

/** @throws {ServiceError} `run_not_found` of a run that the caller does not see */
export async function viewRun(
  { service, seesMarkedRunsAlone }: McpCaller,
  runId: string,
  signal?: AbortSignal,
): Promise<RunView> {
  const call = { params: { run: runId }, ...(signal === undefined ? {} : { signal }) }
  const run = await service.call('getRun', call)
  if (seesMarkedRunsAlone && run.metadata?.['started-by'] !== mcpMark['started-by'])
    throw new CaissonError('run_not_found', `no run of this server has the ID "${runId}"`, {
      remedy: 'use an ID that run_task or list_runs gave; a person sees other runs with `caisson runs list`',
    })
  const result =
    run.end === null
      ? undefined
      : await service.call('getResult', { ...call, query: { waitMs: resultWaitMs } })
  const questions =
    run.end !== null || run.pendingApprovals === 0
      ? []
      : (
          await service.call('listApprovals', {
            query: { run: runId },
            ...(signal === undefined ? {} : { signal }),
          })
        ).approvals
  return { run, result, questions }
}

export interface FollowOptions {
  readonly waitMs: number
  /** `seq` of the first event that is new to the caller. */
  readonly from: number
  readonly signal: AbortSignal
  readonly onEvents: (events: readonly JournalEvent[]) => Promise<void>
}

export interface Followed extends RunView {
  /** `seq` of the next event. */
  readonly next: number
}

/** Waits until the run has ended or asks, or the time is over. */
export async function followRun(
  caller: McpCaller,
  runId: string,
  { waitMs, signal, from, onEvents }: FollowOptions,
): Promise<Followed> {
  const until = performance.now() + waitMs
  let next = from
  for (;;) {
    const view = await viewRun(caller, runId, signal)
    const isOver = () => performance.now() >= until
    if (view.result !== undefined || view.questions.length > 0 || isOver()) return { ...view, next }
    let hasTurned = false
    while (!hasTurned && !isOver()) {
      const left = until - performance.now()
      const page = await readEvents(caller, runId, { from: next, waitMs: Math.min(left, waitStepMs), signal })
      next = page.next
      await onEvents(page.events)
      // A run that no process carries out gives an empty page at once.
      hasTurned = page.events.length === 0 || page.events.some(isTurningPoint)
      if (!hasTurned || page.events.length === 0)
        await sleep(Math.max(1, Math.min(pageGapMs, left)), undefined, { signal })
    }
  }
}

async function readEvents(
  { service }: McpCaller,
  runId: string,
  { from, waitMs, signal }: { readonly from: number; readonly waitMs: number; readonly signal: AbortSignal },
): Promise<ServiceReply<'listEvents'>> {
  const query = { from, limit: eventsOfPage, waitMs: Math.max(0, Math.floor(waitMs)) }
  return await service.call('listEvents', { params: { run: runId }, query, signal })
}

function isTurningPoint({ event: { type } }: JournalEvent): boolean {
  return type === 'run-end' || type === 'approval-request'
}
