/** The run that a command acts on, whether it is one of this host or of its fleet. */
import { existsSync } from 'node:fs'
import type { RunResource } from '#specs/service/run-resources.ts'
import { findFleetMark, requireNoFleet } from '../journal/fleet-mark.ts'
import { findRun, hostOf, type Io } from './io.ts'
import { RunsOfFleet } from './runs-of-fleet.ts'

/** A run that a command acts on. */
export interface AnyRun {
  readonly runId: string
  /** The run of a fleet, and the service to ask. Absent: it is one of this host alone. */
  readonly shared?: { readonly fleet: RunsOfFleet; readonly resource: RunResource }
}

/**
 * The run that the command line names, on this host or of the fleet.
 * @param options `mayBeCopy`: also without a service for a run that another host has. Default: false
 * @throws {CaissonError} `run_not_found`, what the service says, and `not_possible_now` for a run of a fleet without a service
 */
export async function findAnyRun(
  io: Io,
  name: string,
  { mayBeCopy = false }: { readonly mayBeCopy?: boolean } = {},
): Promise<AnyRun> {
  const fleet = await RunsOfFleet.find(io)
  const resource = await fleet?.find(io, name)
  if (fleet === undefined || resource === undefined) {
    const runId = await findRun(io, name)
    if (!mayBeCopy) await requireNoCopy(io, runId)
    return { runId }
  }
  // The service shows those of this host too, such as forks, which the fleet has not got.
  const { journal } = hostOf(io).runs.paths(resource.id)
  const isOwn = existsSync(journal) && (await findFleetMark(journal)) === undefined
  return isOwn ? { runId: resource.id } : { runId: resource.id, shared: { fleet, resource } }
}

const howToReachFleet =
  'start caisson serve for the fleet on this host, then repeat the command; ' +
  'or use the page or HTTP of another host, as caisson fleet hosts lists them'

/** What is here of a run of a fleet is a copy, unless this host has it. */
async function requireNoCopy(io: Io, runId: string): Promise<void> {
  const { runs } = hostOf(io)
  const { state, isLive } = await runs.summary(runId)
  if (state.end !== null || isLive) return
  await requireOwn(io, runId)
}

/** What changes a run of a fleet goes by a service of it, which tells the others. @throws {CaissonError} `not_possible_now` */
export async function requireOwn(io: Io, runId: string): Promise<void> {
  await requireNoFleet(hostOf(io).runs.paths(runId).journal, runId, howToReachFleet)
}
