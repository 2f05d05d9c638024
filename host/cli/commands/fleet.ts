/** `caisson fleet`: looks at the database that the hosts of a fleet share, and asks of them by it. It needs no service. */

import { CaissonError } from '#specs/errors.ts'
import { formatCount, formatDuration, formatTable } from '../../files/format.ts'
import { Fleet } from '../../fleet/fleet.ts'
import type { FleetHost } from '../../fleet/host-table.ts'
import { type FleetSignals, faultWords } from '../../fleet/waits.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import type { Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { type FleetFlags, requireAddress } from './fleet-environment.ts'

interface Flags extends FleetFlags {
  readonly json?: boolean
}

export async function fleetStatus(io: Io, flags: Flags): Promise<ExitCode> {
  await using fleet = await look(io, flags)
  const [status, hosts, signals] = [await fleet.status(), await fleet.hosts(), await fleet.signals()]
  const there = hosts.filter(({ isGone }) => !isGone)
  if (flags.json === true) await writeJsonLine(io.stdout, { ...status, hosts: there.length, signals })
  else {
    const { waiting, atWork, waitingForPeople, ended } = status
    const { slots, oldestWaitSeconds } = signals
    io.stdout.write(
      [
        `hosts:               ${there.length}, ${there.filter(({ isDraining }) => isDraining).length} draining`,
        `slots:               ${slots.free} free of ${slots.total}`,
        `wait for a host:     ${waiting}${oldestWaitSeconds === 0 ? '' : `, the oldest for ${formatDuration(oldestWaitSeconds * 1_000)}`}`,
        `at work:             ${atWork}`,
        `wait for people:     ${waitingForPeople}`,
        `have ended:          ${ended}`,
        ...unservableLines(signals),
        '',
      ].join('\n'),
    )
  }
  return exitCodes.completed
}

/** Runs that wait and that no host can serve, by what hosts lack. */
function unservableLines({ unservable }: FleetSignals): string[] {
  const names = Object.keys(faultWords) as (keyof FleetSignals['unservable'])[]
  const lacking = names.filter((name) => unservable[name] > 0)
  if (lacking.length === 0) return []
  return ['no host can serve:', ...lacking.map((name) => `  ${faultWords[name]}: ${unservable[name]}`)]
}

export async function fleetHosts(io: Io, flags: Flags): Promise<ExitCode> {
  await using fleet = await look(io, flags)
  const hosts = await fleet.hosts()
  if (flags.json === true) for (const host of hosts) await writeJsonLine(io.stdout, host)
  else if (hosts.length === 0)
    io.stdout.write('no hosts yet; start one: caisson serve --fleet ADDRESS --fleet-files PLACE\n')
  else io.stdout.write(formatTable(columns, hosts.map(rowOf)))
  return exitCodes.completed
}

const columns = ['HOST', 'NAME', 'VERSION', 'STATE', 'RUNS', 'SLOTS', 'SEEN', 'MACHINE', 'IMAGE', 'LABELS']

function rowOf(host: FleetHost): string[] {
  const { hostId, name, version, runs, slots, seenSecondsAgo, isDraining, isGone, facts } = host
  const state = isGone ? 'gone' : isDraining ? 'draining' : 'takes runs'
  const seen = `${Math.round(seenSecondsAgo)} s ago`
  const labels = facts.labels.join(',') || '-'
  const machine = [facts.architecture, facts.accelerator].filter((fact) => fact !== null).join(' ') || '-'
  const row = [hostId, name, version, state, String(runs), String(slots), seen, machine]
  return [...row, shortImage(facts.image), labels].map((text) => sanitizeLine(text))
}

/** The digests of image and agent as far as a person compares them; `--json` has them whole. */
function shortImage(image: string | null): string {
  return (
    image
      ?.split('-')
      .map((digest) => digest.slice(0, 8))
      .join('-') ?? '-'
  )
}

/** @throws {CaissonError} `invalid_options` */
export async function fleetDrain(
  io: Io,
  host: string,
  flags: Flags & { readonly undo?: boolean },
): Promise<ExitCode> {
  await using fleet = await look(io, flags)
  const undo = flags.undo === true
  for (const one of await fleet.drainHost(host, { undo })) {
    const { name, hostId, runs } = one
    if (flags.json === true) await writeJsonLine(io.stdout, one)
    else if (undo) io.stdout.write(`${sanitizeLine(name)} (${hostId}) takes runs again\n`)
    else
      io.stdout.write(
        `${sanitizeLine(name)} (${hostId}) takes no more runs; ${runs === 0 ? 'it has none' : `others continue its ${formatCount(runs, 'run')} after the next checkpoint, at the latest in 30 s`}\n`,
      )
  }
  return exitCodes.completed
}

/** @throws {CaissonError} `run_not_found`, `invalid_options`, `not_possible_now` */
export async function fleetMove(
  io: Io,
  runId: string,
  host: string | undefined,
  flags: Flags,
): Promise<ExitCode> {
  await using fleet = await look(io, flags)
  const state = await fleet.move(runId, host)
  if (state === 'ended') throw new CaissonError('not_possible_now', `${runId} has ended`)
  if (flags.json === true) await writeJsonLine(io.stdout, { runId, state })
  else {
    const to = host === undefined ? 'another host' : sanitizeLine(host)
    const how =
      state === 'moving' ? 'after its next checkpoint, at the latest in 30 s' : 'when it has a free slot'
    io.stdout.write(`${to} takes ${runId} ${how}\n`)
  }
  return exitCodes.completed
}

/** Reads and takes no run; it is no host in the list. */
async function look(io: Io, flags: FleetFlags): Promise<Fleet> {
  return await Fleet.look(await requireAddress(io, flags), io.version)
}
