/**
 * A run as a command carries it from its start to its end: in this process, or in the HTTP service of this user, where it
 * outlives this process.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { RunClient, WatchEnd } from '../control/run-client.ts'
import type { CancelOptions } from '../control/run-handle.ts'
import type { Host, RunOptions } from '../host.ts'
import type { Run } from '../runs/run.ts'
import type { FollowedRun } from './commands/follow.ts'
import type { Io } from './io.ts'
import { findLocalService, startRun } from './local-service.ts'
import { sanitizeLine } from './render/sanitize.ts'
import { askFor, type CommandSettings } from './run-request.ts'

export interface CarriedRun {
  readonly run: FollowedRun
  /** How it ended, or why this process knows no more of it. Never rejects. */
  readonly over: Promise<CarriedEnd>
  /** Cancels it, as {@link Run.cancel}. */
  cancel(options?: CancelOptions): Promise<void>
  /** Nobody answers for this command any more: what waits and what comes is denied. */
  denyRest(): void
  /** Stops watching; the run continues. Absent: it ends with this process. */
  readonly leave?: () => void
}

export type CarriedEnd =
  | { readonly kind: 'ended'; readonly state: RunState; readonly journalHead: string }
  | Exclude<WatchEnd, { kind: 'ended' }>

/** What decides where a run is carried out. */
export interface PlaceSettings extends CommandSettings {
  /** In this process, whatever services there are. */
  readonly here?: boolean | undefined
}

/** How long a run that was started may be out of reach. */
const reachMs = 10_000
const retryMs = 50

/** Of a run that this process carries out. */
export function ownRun(run: Run): CarriedRun {
  return {
    run,
    over: run.ended.then((state) => ({ kind: 'ended', state, journalHead: run.journalHead })),
    cancel: (options) => run.cancel(options),
    denyRest: () => void run.detach(),
  }
}

/**
 * Starts a run in the service of this user. Undefined without a service, and where the service does not take the run; then
 * `say` gets a line why.
 * @throws {CaissonError} where nobody can carry it out, or nobody knows whether the service does
 */
export async function startInService(
  io: Io,
  host: Host,
  options: RunOptions,
  settings: PlaceSettings,
): Promise<string | undefined> {
  if (settings.here === true) return undefined
  const say = (line: string): void => options.onNotes?.([line])
  const sayHere = (why: string): undefined =>
    void say(`${sanitizeLine(why, 1_000)}. This process carries out the run.`)
  const service = await findLocalService(host.folders.home, io.version)
  if (service === undefined) return undefined
  if ('problem' in service) return sayHere(service.problem)
  if (service.isOfFleet)
    return sayHere('the service is one of a fleet, whose runs are started over HTTP or on its page')
  const asked = await askFor(host, options, settings)
  if ('reason' in asked) return sayHere(asked.reason)
  const started = await startRun(service, asked.request)
  if ('problem' in started) return sayHere(started.problem)
  if (io.stdout.isTTY === true) say('The service carries out the run; closing this terminal does not end it.')
  const { notes = [] } = await host.runs.summary(started.runId)
  options.onNotes?.([...asked.choice.notes, ...notes])
  return started.runId
}

/** Follows a run that another process has just started. */
export async function followStarted(host: Host, runId: string): Promise<CarriedRun> {
  const lateAt = performance.now() + reachMs
  for (;;) {
    const client = await host.attach(runId)
    if (client !== null) return servedRun(host, client)
    const { state } = await host.runs.summary(runId)
    // It listens a moment after its journal has begun.
    if (state.end !== null || performance.now() > lateAt) return await endedRun(host, runId)
    await sleep(retryMs)
  }
}

function servedRun(host: Host, client: RunClient): CarriedRun {
  const leave = (): void => void client.detach()
  let stops = 0
  return {
    run: client,
    over: endOf(host, client),
    cancel: async (options) => {
      if (options?.now === true) stops += 1
      // A process that does not answer would keep this one.
      if (stops > 1) leave()
      else await client.cancel(options).catch(() => undefined)
    },
    denyRest: () => void denyAll(client).catch(() => undefined),
    leave,
  }
}

async function endOf(host: Host, client: RunClient): Promise<CarriedEnd> {
  const end = await client.ended
  if (end.kind !== 'ended') return end
  try {
    const { state } = await host.runs.fold(client.id)
    return { kind: 'ended', state: { ...state, end: end.end }, journalHead: end.journalHead }
  } catch (error) {
    return { kind: 'lost', message: CaissonError.from(error).message }
  }
}

async function denyAll(client: RunClient): Promise<void> {
  for await (const item of client.watch()) {
    if (item.source !== 'host' || item.event.type !== 'approval-request') continue
    const { approvalId } = item.event.request
    if (!client.hasPendingApproval(approvalId)) continue
    const answer = { decision: 'deny', scope: 'once' } as const
    await client.answer(approvalId, answer, { by: 'the end of standard input' })
  }
}

/** Of a run that no process carries out any more: what its journal says. */
async function endedRun(host: Host, runId: string): Promise<CarriedRun> {
  const events: JournalEvent[] = []
  let journalHead = ''
  await host.runs.visit(runId, (event) => {
    events.push(event)
    journalHead = event.hash
  })
  const { state } = await host.runs.fold(runId)
  const refuse = async (): Promise<never> => {
    throw new CaissonError('not_possible_now', `${runId} has ended`)
  }
  const message = 'no process carries out the run'
  return {
    run: {
      id: runId,
      watch: async function* () {
        yield* events
      },
      hasPendingApproval: () => false,
      pendingCount: 0,
      whenResolved: async () => undefined,
      result: refuse,
      answer: async () => ({ taken: false, reason: 'unknown', message }),
      ...{ revokeAnswer: refuse, steer: refuse, cancelAgent: refuse, pause: refuse, resume: refuse },
      cancel: async () => undefined,
      detach: async () => undefined,
    },
    over: Promise.resolve(
      state.end === null ? { kind: 'lost', message } : { kind: 'ended', state, journalHead },
    ),
    cancel: async () => undefined,
    denyRest: () => undefined,
  }
}
