/** A run as one caller of the service sees it, and the wait for its next turning point. */
import { setTimeout as sleep } from 'node:timers/promises'
import type * as z from 'zod'
import { waitTool } from '#specs/protocol/tool-names.ts'
import type { ApprovalResource } from '#specs/service/approval-resources.ts'
import type { RunResource, RunResultResource } from '#specs/service/run-resources.ts'
import { type JournalEvent, type ServiceClient, ServiceError, type ServiceReply } from '../../client/index.ts'

/** Calls the routes of the service with the rights of one caller, over HTTP or within its process. */
export type RouteCaller = Pick<ServiceClient, 'call'>
/** The same with the events of runs as they happen. */
export type RunService = Pick<ServiceClient, 'call' | 'events'>
export type Question = z.infer<typeof ApprovalResource>

export interface RunView {
  readonly run: RunResource
  /** Undefined before its end. */
  readonly result: z.infer<typeof RunResultResource> | undefined
  /** What it waits for a person to answer, oldest first. */
  readonly questions: readonly Question[]
}

/** A run tells its result a little after its last event. */
const resultWaitMs = 10_000
/** Time of one request for events; the state is looked at again after one without any. */
const waitStepMs = 15_000
const eventsOfPage = 1_000
const runsOfPage = 20
/** Between two requests for events, so that a run with many of them uses up no quota of its caller. */
const pageGapMs = 1_000

/** @throws {ServiceError} `run_not_found` of a run that the caller does not see */
export async function viewRun(service: RouteCaller, runId: string, signal?: AbortSignal): Promise<RunView> {
  const call = { params: { run: runId }, ...(signal === undefined ? {} : { signal }) }
  const run = await service.call('getRun', call)
  const result =
    run.end === null
      ? undefined
      : await service.call('getResult', { ...call, query: { waitMs: resultWaitMs } })
  const questions =
    run.end !== null || run.pendingApprovals === 0 ? [] : await questionsOf(service, runId, signal)
  return { run, result, questions }
}

/** What a run waits for a person to answer, oldest first. */
export async function questionsOf(
  service: RouteCaller,
  runId: string,
  signal?: AbortSignal,
): Promise<Question[]> {
  const { approvals } = await service.call('listApprovals', {
    query: { run: runId },
    ...(signal === undefined ? {} : { signal }),
  })
  // The clock answers a wait.
  return approvals.filter(({ approval: { tool } }) => tool !== waitTool)
}

/** The newest run with this metadata that is meant. Forks are not: they have the metadata of their run. */
export async function newestRunWith(
  service: RouteCaller,
  metadata: Readonly<Record<string, string>>,
  isMeant: (run: RunResource) => boolean = () => true,
): Promise<RunResource | undefined> {
  const filter = { metadata: JSON.stringify(metadata) as never, limit: runsOfPage }
  for (let cursor: string | undefined; ; ) {
    const query = { ...filter, ...(cursor === undefined ? {} : { cursor }) }
    const { runs, nextCursor } = await service.call('listRuns', { query })
    const found = runs.find((run) => run.forkedFrom === undefined && isMeant(run))
    if (found !== undefined || nextCursor === undefined) return found
    cursor = nextCursor
  }
}

export interface FollowOptions {
  readonly waitMs: number
  /** `seq` of the first event that is new to the caller. */
  readonly from: number
  readonly signal: AbortSignal
  readonly onEvents: (events: readonly JournalEvent[]) => Promise<void>
  /** Whether to leave a run that no process carries out, such as one whose process died. Default false. */
  readonly leavesIdle?: boolean
}

export interface Followed extends RunView {
  /** `seq` of the next event. */
  readonly next: number
}

/** Waits until the run has ended or asks, or the time is over. */
export async function followRun(
  service: RouteCaller,
  runId: string,
  { waitMs, signal, from, onEvents, leavesIdle = false }: FollowOptions,
): Promise<Followed> {
  const until = performance.now() + waitMs
  let next = from
  for (;;) {
    const view = await viewRun(service, runId, signal)
    const isOver = () => performance.now() >= until
    const hasStopped = leavesIdle && !view.run.isLive
    if (view.result !== undefined || view.questions.length > 0 || hasStopped || isOver())
      return { ...view, next }
    let hasTurned = false
    while (!hasTurned && !isOver()) {
      const left = until - performance.now()
      const page = await readEvents(service, runId, {
        from: next,
        waitMs: Math.min(left, waitStepMs),
        signal,
      })
      next = page.next
      await onEvents(page.events)
      // A run that no process carries out gives an empty page at once.
      hasTurned = page.events.length === 0 || page.events.some(isTurningPoint)
      if (!hasTurned || page.events.length === 0)
        await sleep(Math.max(1, Math.min(pageGapMs, left)), undefined, { signal })
    }
  }
}

/** The question if it still waits and the caller may answer it. */
export async function findQuestion(
  service: RouteCaller,
  runId: string,
  approvalId: string,
): Promise<Question | 'gone' | 'forbidden'> {
  try {
    return await service.call('getApproval', { params: { run: runId, approval: approvalId } })
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error
    if (error.status === 403) return 'forbidden'
    if (isGone(error)) return 'gone'
    throw error
  }
}

/** Whether somebody else answered the question, or it no longer waits. */
export function isGone({ status }: ServiceError): boolean {
  return [404, 409, 410].includes(status)
}

async function readEvents(
  service: RouteCaller,
  runId: string,
  { from, waitMs, signal }: { readonly from: number; readonly waitMs: number; readonly signal: AbortSignal },
): Promise<ServiceReply<'listEvents'>> {
  const query = { from, limit: eventsOfPage, waitMs: Math.max(0, Math.floor(waitMs)) }
  return await service.call('listEvents', { params: { run: runId }, query, signal })
}

function isTurningPoint({ event: { type } }: JournalEvent): boolean {
  return type === 'run-end' || type === 'approval-request'
}
