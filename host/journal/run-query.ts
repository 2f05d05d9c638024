/** Which runs a list shows, and in which part: filter, cursor and limit over the summaries. Pure. */
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { RunMetadata } from '#specs/protocol/host-event.ts'
import { RunOutcome } from '#specs/protocol/task.ts'
import { checkArguments } from '../files/check-arguments.ts'
import type { RunOutline } from './run-outline.ts'
import type { RunHost, SharedRun } from './shared-run.ts'

/** List entry of a run; texts are cut to 500 characters. */
export interface RunSummary {
  readonly id: string
  readonly status: RunStatus
  /**
   * Since when it has a status `queued`, `waiting`, `sleeping` or `interrupted`, ms since 1970. Absent: another status, or
   * unknown.
   */
  readonly since?: number
  /** ms since 1970; 0 before the run started. */
  readonly startedAt: number
  readonly prompt: string
  readonly workspace: string
  readonly model: string
  /** Given by the application. */
  readonly metadata?: Readonly<Record<string, string>> | undefined
  /** Options that have no effect with its model, for people. Absent: none. */
  readonly notes?: readonly string[] | undefined
  /** The continued run. */
  readonly continues?: string | undefined
  /** The replayed run; nothing of a replay is applied. */
  readonly replays?: string | undefined
  /** The run that it continues from an earlier moment. */
  readonly forkedFrom?: string | undefined
  /** When it was forked, ms since 1970; `startedAt` is that of the other run. Absent: it is no fork, or an older one. */
  readonly forkedAt?: number | undefined
  readonly state: RunOutline['state']
  /** Whether it sleeps because a person paused it: resume it, answers alone do not wake it. Absent: not so. */
  readonly isPaused?: true
  /** Number of approvals that it waits for. */
  readonly pendingApprovals: number
  /** Whether a process runs the task, applies, or undoes now. */
  readonly isLive: boolean
  /** Whether its VM was kept for a later run. */
  readonly keepsVm: boolean
  /** The host of the fleet that carries it out; null: none does. Absent: it is no run of a fleet. */
  readonly host?: RunHost | null
  /**
   * Problem of the journal, judged by its length and newest lines. Absent: none. `RunStore.read` checks all of
   * it.
   */
  readonly problem?: string
}

/** Which of the open approvals of a fleet are read. */
export interface ApprovalBounds {
  /** Of their runs. Default: any. */
  readonly metadata?: Readonly<Record<string, string>>
  /** Runs that ask; those that began last. Default: all. */
  readonly maxRuns?: number
}
const ApprovalBoundsSchema = z.strictObject({
  metadata: RunMetadata.optional(),
  maxRuns: z.int().min(1).optional(),
})

/** @throws {CaissonError} `invalid_options` */
export function checkApprovalBounds(bounds: unknown): void {
  checkArguments('the bounds of the list cannot be used', ApprovalBoundsSchema, bounds)
}

/**
 * `queued`: it waits in the queue of its process to start or to continue; `running`: a process carries it out; `waiting`:
 * so it does, and the run waits for a person; `sleeping`: it waits for a person, or is paused, without a VM; `interrupted`:
 * its process ended before it did; `damaged`: its journal cannot be read.
 */
export type RunStatus = RunOutcome | 'queued' | 'running' | 'waiting' | 'sleeping' | 'interrupted' | 'damaged'
const Status = z.enum([
  ...RunOutcome.options,
  'queued',
  'running',
  'waiting',
  'sleeping',
  'interrupted',
  'damaged',
]) satisfies z.ZodType<RunStatus>

/** A run is listed if it has all of these. */
export interface RunFilter {
  readonly status?: RunStatus
  /** Absolute path. */
  readonly workspace?: string
  readonly model?: string
  /** Keys that its metadata must have, with these values. */
  readonly metadata?: Readonly<Record<string, string>>
}

export interface RunQuery {
  /** Default: all runs. */
  readonly filter?: RunFilter
  /** `nextCursor` of the page before. Default: the newest runs. */
  readonly cursor?: string
  /** From 1 to 1,000. Default: 100. */
  readonly limit?: number
}

export interface RunPage {
  /** Newest first. */
  readonly runs: readonly RunSummary[]
  /** Cursor of the next page. Absent: this is the last one. */
  readonly nextCursor?: string
}

const cursorForm = /^(\d{1,16})\.(run-[0-9a-f]{20})$/
const Query = z.strictObject({
  filter: z
    .strictObject({
      status: Status.optional(),
      workspace: z.string().optional(),
      model: z.string().optional(),
      metadata: RunMetadata.optional(),
    })
    .optional(),
  cursor: z.string().regex(cursorForm, 'expected nextCursor of an earlier page').optional(),
  limit: z.int().min(1).max(1_000).default(100),
})
const names = { '': Object.keys(Query.shape), filter: Object.keys(Query.shape.filter.unwrap().shape) }

/** A query whose form was checked. */
export interface CheckedRunQuery {
  readonly filter: RunFilter
  /** The run before the first one. Absent: from the newest on. */
  readonly after?: { readonly begunAt: number; readonly id: string }
  readonly limit: number
}

/** @throws {OptionsError} for a query of another form */
export function readRunQuery(query: RunQuery): CheckedRunQuery {
  const { filter = {}, cursor, limit } = checkArguments('the runs cannot be listed', Query, query, names)
  const [, begunAt, id] = cursorForm.exec(cursor ?? '') ?? []
  return {
    filter: filter as RunFilter,
    limit,
    ...(begunAt === undefined || id === undefined ? {} : { after: { begunAt: Number(begunAt), id } }),
  }
}

/** @param runs all runs that can match, newest first */
export function pageOf(runs: readonly RunSummary[], { filter, after, limit }: CheckedRunQuery): RunPage {
  const wanted = runs.filter((run) => matches(run, filter) && isBehind(run, after))
  const page = wanted.slice(0, limit)
  const last = page.at(-1)
  return {
    runs: page,
    ...(last === undefined || wanted.length === page.length
      ? {}
      : { nextCursor: `${begunAt(last)}.${last.id}` }),
  }
}

/** The status of a run whose journal can be read, and since when. */
export function statusOf(
  { state, openApprovals, sleepingSince, sleepsPaused, queuedSince, lastAt }: RunOutline,
  isLive: boolean,
): Pick<RunSummary, 'status' | 'since' | 'isPaused'> {
  if (state.end !== null) return { status: state.end.outcome }
  const [oldest] = openApprovals
  const withTime = (status: RunStatus, since: number | undefined) =>
    since === undefined ? { status } : { status, since }
  const paused = sleepsPaused === undefined ? {} : { isPaused: sleepsPaused }
  if (sleepingSince !== undefined) return { ...withTime('sleeping', sleepingSince), ...paused }
  if (!isLive) return withTime('interrupted', lastAt)
  if (queuedSince !== undefined) return withTime('queued', queuedSince)
  return oldest === undefined ? { status: 'running' } : withTime('waiting', oldest.at)
}

/** The list entry of a run of a fleet, as its row says. */
export function summaryOfShared(run: SharedRun): RunSummary {
  const { id, host, outline, problem, hasEnded } = run
  const { openApprovals, sleepingSince: _, sleepsPaused: _2, queuedSince: _3, lastAt: _4, ...shown } = outline
  const listed = {
    ...{ id, ...shown, startedAt: outline.startedAt ?? 0, host },
    ...{ pendingApprovals: hasEnded ? 0 : openApprovals.length, isLive: host !== null, keepsVm: false },
  }
  if (problem !== undefined) return { ...listed, status: 'damaged', problem }
  return { ...listed, ...sharedStatus(run) }
}

/** As `host/fleet/run-rows.ts` filters by it. */
function sharedStatus({
  host,
  waits,
  hasEnded,
  outline,
}: SharedRun): Pick<RunSummary, 'status' | 'since' | 'isPaused'> {
  const { sleepingSince, sleepsPaused, queuedSince: _, ...rest } = outline
  if (hasEnded) return statusOf(outline, false)
  // A host that has it wakes it; what it waits for is what it says next.
  if (host !== null) return statusOf(rest, true)
  const since = sleepingSince ?? outline.lastAt
  if (waits)
    return {
      ...{ status: 'sleeping', ...(since === undefined ? {} : { since }) },
      ...(sleepsPaused === undefined ? {} : { isPaused: sleepsPaused }),
    }
  return { status: 'queued', since: outline.lastAt ?? outline.startedAt ?? 0 }
}

export function matches(run: RunSummary, { status, workspace, model, metadata = {} }: RunFilter): boolean {
  const has = (key: string, value: string) =>
    run.metadata !== undefined && Object.hasOwn(run.metadata, key) && run.metadata[key] === value
  return (
    (status === undefined || run.status === status) &&
    (workspace === undefined || run.workspace === workspace) &&
    (model === undefined || run.model === model) &&
    Object.entries(metadata).every(([key, value]) => has(key, value))
  )
}

/** When a run began: a fork when it was made, though its journal starts with lines of the other run. */
export function begunAt({ startedAt, forkedAt }: Pick<RunSummary, 'startedAt' | 'forkedAt'>): number {
  return forkedAt ?? startedAt
}

/** Newest first, then by id: the order of lists. */
export function compareRuns(a: RunSummary, b: RunSummary): number {
  return begunAt(b) - begunAt(a) || a.id.localeCompare(b.id)
}

function isBehind(run: RunSummary, after: CheckedRunQuery['after']): boolean {
  if (after === undefined) return true
  const at = begunAt(run)
  return at < after.begunAt || (at === after.begunAt && after.id.localeCompare(run.id) < 0)
}

/**
 * `status=running`, `metadata=ticket=T-1`: a filter from the words of a command line.
 * @param directory base of a relative `workspace`
 * @throws {CaissonError} `invalid_options`
 */
export function readFilters(words: readonly string[], directory = process.cwd()): RunFilter {
  const metadata: Record<string, string> = {}
  const filter: Record<string, unknown> = {}
  for (const word of words) {
    const [, key = '', value = ''] = /^([a-z]+)=(.*)$/s.exec(word) ?? []
    if (key === 'metadata') Object.assign(metadata, readMetadata([value]))
    else if (key === 'workspace') filter[key] = path.resolve(directory, value)
    else if (key === 'status' || key === 'model') filter[key] = value
    else
      throw new CaissonError(
        'invalid_options',
        `--filter ${JSON.stringify(word)}: expected status=STATUS, workspace=DIR, model=ID or metadata=KEY=VALUE`,
      )
  }
  return Object.keys(metadata).length === 0 ? filter : { ...filter, metadata }
}

/** `KEY=VALUE` words as metadata. @throws {CaissonError} `invalid_options` */
export function readMetadata(words: readonly string[]): Record<string, string> {
  const entries = words.map((word) => {
    const at = word.indexOf('=')
    if (at > 0) return [word.slice(0, at), word.slice(at + 1)] as const
    throw new CaissonError('invalid_options', `${JSON.stringify(word)}: expected KEY=VALUE`)
  })
  return Object.fromEntries(entries)
}
