/** A run as tools answer with it, and the wait for its next turning point. */
import { setTimeout as sleep } from 'node:timers/promises'
import type * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { ApprovalResource, RunResource, RunResultResource } from '#specs/service/resources.ts'
import type { JournalEvent, ServiceCall, ServiceReply } from '../../client/index.ts'
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
/** Time of one request for events; the state is looked at again after it. */
const waitStepMs = 15_000
const eventsOfStep = 1_000
/** Between two looks where no event tells of a change. */
const lookAgainMs = 500

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
  const result = run.end === null ? undefined : await service.call('getResult', { ...call, query: { waitMs: resultWaitMs } })
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
export async function followRun(caller: McpCaller, runId: string, options: FollowOptions): Promise<Followed> {
  const { waitMs, signal, onEvents } = options
  const until = performance.now() + waitMs
  let next = options.from
  for (;;) {
    const view = await viewRun(caller, runId, signal)
    const left = until - performance.now()
    if (view.result !== undefined || view.questions.length > 0 || left <= 0) return { ...view, next }
    const query: ServiceCall<'listEvents'>['query'] = {
      from: next,
      limit: eventsOfStep,
      waitMs: Math.ceil(Math.min(left, waitStepMs)),
    }
    const page: ServiceReply<'listEvents'> = await caller.service.call('listEvents', {
      params: { run: runId },
      query,
      signal,
    })
    next = page.next
    await onEvents(page.events)
    // A run that has no process any more answers at once.
    if (page.events.length === 0) await sleep(Math.min(lookAgainMs, Math.max(1, left)), undefined, { signal })
  }
}
