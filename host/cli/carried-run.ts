/**
 * A run as a command carries it from its start to its end: in this process, in the HTTP service of this user, where it
 * outlives this process, or on a host of the fleet of that service.
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
import type { FleetRun } from './fleet-run.ts'
import type { Io } from './io.ts'
import { findLocalService, startRun } from './local-service.ts'
import { sanitizeLine } from './render/sanitize.ts'
import { askFor, type CommandSettings } from './run-request.ts'
import { RunsOfFleet } from './runs-of-fleet.ts'

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
  /** Of a run of a fleet: who hears when the service does not answer. Absent: it is none. */
  readonly hear?: (say: (line: string) => void) => void
}

export type CarriedEnd =
  | { readonly kind: 'ended'; readonly state: RunState; readonly journalHead: string }
  | Exclude<WatchEnd, { kind: 'ended' }>

/** What decides where a run is carried out. */
export interface PlaceSettings extends CommandSettings {
  /** In this process, whatever services there are. */
  readonly here?: boolean | undefined
  /** By any host of the fleet of the service, and by nobody else. Default: false. */
  readonly fleet?: boolean | undefined
}

/** A run that the service of this user has started. */
export interface StartedRun {
  readonly runId: string
  /** Any host of the fleet of the service carries it out. */
  readonly isOfFleet: boolean
}

const howToServe = 'start a service of the fleet: caisson serve --fleet ADDRESS --fleet-files PLACE'

/** How long a run that was started may be out of reach. */
const reachMs = 10_000
const retryMs = 50
/** Between two tries to deny a question. */
const denyAgainMs = 1_000

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
 * `onNotes` gets a line why.
 * @throws {CaissonError} where nobody can carry it out, or nobody knows whether the service does; with `fleet` also where the
 *   fleet does not take it
 */
export async function startInService(
  io: Io,
  host: Host,
  options: RunOptions,
  settings: PlaceSettings,
): Promise<StartedRun | undefined> {
  if (settings.here === true) return undefined
  const say = (line: string): void => options.onNotes?.([line])
  const { fleet = false } = settings
  const sayHere = (why: string, remedy = 'correct that, or run it without --fleet'): undefined => {
    const line = sanitizeLine(why, 1_000)
    if (fleet) throw new CaissonError('not_possible_now', `--fleet: ${line}`, { remedy })
    say(`${line}. This process carries out the run.`)
  }
  const service = await findLocalService(host.folders.home, io.version)
  if (service === undefined && !fleet) return undefined
  if (service === undefined)
    return sayHere(`no service runs with your state folder ${host.folders.home}`, howToServe)
  if ('problem' in service) return sayHere(service.problem)
  const { isOfFleet = false } = service
  if (fleet && !isOfFleet) return sayHere('the service is in no fleet', howToServe)
  if (isOfFleet && !fleet)
    return sayHere('the service is one of a fleet; --fleet lets its hosts carry out the run')
  const asked = await askFor(host, options, settings, { isOfFleet })
  if ('reason' in asked) return sayHere(asked.reason)
  const started = await startRun(service, asked.request)
  if ('problem' in started) return sayHere(started.problem)
  const { runId } = started
  const who = isOfFleet ? 'A host of the fleet' : 'The service'
  if (io.stdout.isTTY === true) say(`${who} carries out the run; closing this terminal does not end it.`)
  const { notes = [] } = isOfFleet ? {} : await host.runs.summary(runId)
  options.onNotes?.([...asked.choice.notes, ...notes].map((note) => sanitizeLine(note, 2_000)))
  return { runId, isOfFleet }
}

/** Follows a run that was just started for the hosts of a fleet. @throws {CaissonError} `connection_lost` */
export async function followInFleet(io: Io, runId: string): Promise<CarriedRun> {
  const run = (await RunsOfFleet.find(io))?.run(runId)
  if (run === undefined)
    throw new CaissonError('connection_lost', `the service does not answer; it has started ${runId}`, {
      remedy: `once it answers, follow the run: caisson attach ${runId}`,
    })
  const hear = (say: (line: string) => void): void => {
    run.say = say
  }
  return { ...followed(run, async () => run.state), hear }
}

/** Follows a run that another process has just started. */
export async function followStarted(host: Host, runId: string): Promise<CarriedRun> {
  const lateAt = performance.now() + reachMs
  for (;;) {
    const client = await host.attach(runId)
    if (client !== null) return followed(client, async () => (await host.runs.fold(runId)).state)
    const { state } = await host.runs.summary(runId)
    // It listens a moment after its journal has begun.
    if (state.end !== null || performance.now() > lateAt) return await endedRun(host, runId)
    await sleep(retryMs)
  }
}

/** A run that another process carries out. @param stateOf once it has ended */
function followed(client: RunClient | FleetRun, stateOf: () => Promise<RunState>): CarriedRun {
  const leave = (): void => void client.detach()
  let stops = 0
  return {
    run: client,
    over: endOf(client, stateOf),
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

async function endOf(client: RunClient | FleetRun, stateOf: () => Promise<RunState>): Promise<CarriedEnd> {
  const end = await client.ended
  if (end.kind !== 'ended') return end
  try {
    return { kind: 'ended', state: { ...(await stateOf()), end: end.end }, journalHead: end.journalHead }
  } catch (error) {
    return { kind: 'lost', message: CaissonError.from(error).message }
  }
}

async function denyAll(client: RunClient | FleetRun): Promise<void> {
  for await (const item of client.watch())
    if (item.source === 'host' && item.event.type === 'approval-request')
      void deny(client, item.event.request.approvalId).catch(() => undefined)
}

/** Again while it waits, such as for a service that failed: nobody else may answer it. */
async function deny(client: RunClient | FleetRun, approvalId: string): Promise<void> {
  const by = 'the end of standard input'
  while (client.hasPendingApproval(approvalId)) {
    const { taken } = await client.answer(approvalId, { decision: 'deny', scope: 'once' }, { by })
    if (taken) return
    await Promise.race([client.whenResolved(approvalId), sleep(denyAgainMs)])
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
