/** `caisson runs`: lists, shows and removes runs. */
import { existsSync } from 'node:fs'

import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { formatBytes, formatCost, formatCount, formatTime } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import { findFleetMark } from '../../journal/fleet-mark.ts'
import type { JournalReading } from '../../journal/journal-summary.ts'
import { keptDiskBytes } from '../../journal/kept-moments.ts'
import { type RunFilter, readFilters } from '../../journal/run-query.ts'
import type { RunSummary } from '../../journal/run-store.ts'
import { type AnyRun, findAnyRun } from '../any-run.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { findRun, hostOf, type Io } from '../io.ts'
import { colorsFor } from '../render/colors.ts'
import { eventLines } from '../render/event-lines.ts'
import { writeLines } from '../render/fit.ts'
import { HeldTexts } from '../render/held-texts.ts'
import { unknownCallLines } from '../render/hook-lines.ts'
import { interruptedLines, interruptedWhile } from '../render/interrupted-lines.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import type { Detail } from '../render/turn-lines.ts'
import { fleetListLine, RunsOfFleet, whereLine, writeFleetRuns } from '../runs-of-fleet.ts'

export async function runsList(
  io: Io,
  flags: { json?: boolean; filter?: string[]; last?: number },
): Promise<ExitCode> {
  const filter = readFilters(flags.filter ?? [], io.directory)
  const fleet = await RunsOfFleet.find(io)
  if (fleet !== undefined) {
    const count = await writeFleetRuns(io, fleet.list(filter, flags.last), flags)
    if (count === 0 && flags.json !== true)
      io.stdout.write(flags.filter === undefined ? noneOfFleet : noMatch)
    return exitCodes.completed
  }
  const runs = await listRuns(hostOf(io), filter, flags.last)
  for (const run of runs) {
    if (flags.json === true) await writeJsonLine(io.stdout, run)
    else writeLines(io.stdout, [listLine(run)])
  }
  if (runs.length === 0 && flags.json !== true)
    io.stdout.write(flags.filter === undefined ? 'no runs yet; start one: caisson run "TASK"\n' : noMatch)
  return exitCodes.completed
}

const noneOfFleet = 'the fleet has no runs yet; start one: caisson run --fleet "TASK"\n'
const noMatch = 'no run matches the filter; list all: caisson runs list\n'

async function listRuns(host: Host, filter: RunFilter, last?: number): Promise<RunSummary[]> {
  const found: RunSummary[] = []
  let cursor: string | undefined
  do {
    const limit = Math.min(1_000, (last ?? Number.POSITIVE_INFINITY) - found.length)
    const page = await host.runs.page({ filter, limit, ...(cursor === undefined ? {} : { cursor }) })
    found.push(...page.runs)
    cursor = page.nextCursor
  } while (cursor !== undefined && found.length < (last ?? Number.POSITIVE_INFINITY))
  return found
}

function listLine(run: RunSummary): string {
  const {
    id,
    status,
    since,
    startedAt,
    forkedAt,
    prompt,
    state,
    problem,
    isLive,
    keepsVm,
    pendingApprovals,
  } = run
  const { metadata = {}, replays, isPaused, host } = run
  const begunAt = forkedAt ?? startedAt
  const facts = Object.entries(metadata).map(([key, value]) => ` · ${key}=${sanitizeLine(value, 40)}`)
  const changes =
    state.changes === null
      ? ''
      : ` · ${formatCount(state.changes.entries, 'change')}${appliedWords(state, isLive)}`
  // Of the offline model it is known to be nothing.
  const cost = state.costUsd === null || state.costUsd === 0 ? '' : ` · ${formatCost(state.costUsd)}`
  const asked = pendingApprovals === 0 ? '' : ` · ${formatCount(pendingApprovals, 'approval')} pending`
  const when = status === 'interrupted' ? ` ${interruptedWhile(state)}` : ''
  const how =
    since === undefined
      ? ''
      : ` · ${isPaused === true ? 'paused, ' : ''}${status}${when} since ${formatTime(since)}`
  const replay = replays === undefined ? '' : ` · replay of ${replays}`
  const waiting = replays === undefined ? state.proposedNotes.length : 0
  const on = host == null ? '' : ` · on host ${sanitizeLine(host.name, 40)}`
  const notes = waiting === 0 ? '' : ` · ${formatCount(waiting, 'note')} to review`
  return `${id}  ${formatTime(begunAt)}  ${status.padEnd(11)}  ${sanitizeLine(prompt, 60)}${facts.join('')}${replay}${on}${asked}${how}${changes}${cost}${keepsVm ? ' · VM kept' : ''}${notes}${problem === undefined ? '' : ` · ${sanitizeLine(problem)}`}`
}

function appliedWords(
  { applied, unfinished }: Pick<RunState, 'applied' | 'unfinished'>,
  isLive: boolean,
): string {
  if (unfinished === null) return applied === null ? '' : `, ${applied} applied`
  return isLive ? `, ${unfinished} in progress` : `, ${applied ?? 0} applied, ${unfinished} interrupted`
}

export async function runsShow(io: Io, name: string, flags: { json?: boolean } & Detail): Promise<ExitCode> {
  const host = hostOf(io)
  const shared = await (await RunsOfFleet.find(io))?.show(io, name)
  const paths = host.runs.paths(shared?.id ?? (await findRun(io, name)))
  const events: JournalEvent[] = []
  const reading = await host.runs.visit(paths.runId, (event) => events.push(event))
  if (events.length === 0 && shared !== undefined && flags.json !== true) {
    writeLines(io.stdout, [fleetListLine(shared), whereLine(shared) ?? 'it has no journal'])
    return exitCodes.completed
  }
  const colors = colorsFor(io.stdout)
  const texts = new HeldTexts(colors)
  let state = initialRunState
  if (flags.json !== true) {
    const [first] = events
    const begun = first === undefined ? '' : `${formatTime(first.at)}  `
    io.stdout.write(`${paths.runId}  ${begun}${sanitizeLine(paths.directory)}\n`)
  }
  for (const item of events) {
    const before = state
    state = reduceRun(state, item)
    if (flags.json === true) await writeJsonLine(io.stdout, item)
    else writeLines(io.stdout, [...texts.before(item), ...eventLines(item, state, colors, before, flags)])
  }
  if (flags.json !== true) {
    const { host: place } = await host.runs.summary(paths.runId)
    const mark = await findFleetMark(paths.journal)
    const where = shared === undefined ? undefined : whereLine(shared)
    if (where !== undefined) io.stdout.write(`${where}\n`)
    else if (place != null)
      io.stdout.write(`the host ${sanitizeLine(place.name)} of the fleet carries it out\n`)
    else if (mark !== undefined && shared === undefined) io.stdout.write(`${fleetWords(mark.fleet)}\n`)
    // Of a copy it is not known.
    const isCopy = shared === undefined && mark !== undefined && state.end === null
    const isLive =
      isCopy || (shared === undefined ? await host.runs.isLive(paths.runId) : shared.end === null)
    if (!isLive) {
      writeLines(io.stdout, unknownCallLines(state, colors))
      const { keepsVm } = await host.runs.summary(paths.runId)
      const left = { keepsVm, canResume: existsSync(paths.options) }
      writeLines(io.stdout, interruptedLines(paths.runId, events, state, left).map(colors.yellow))
    }
    writeLines(io.stdout, headLines(events, reading, isLive, shared !== undefined && mark !== undefined))
    const bytes = isLive ? null : await keptDiskBytes(paths, state.end !== null)
    const use = state.end === null ? 'continued or forked' : 'forked'
    if (bytes !== null)
      io.stdout.write(`its disk is kept, ${formatBytes(bytes)}: the run can be ${use} from it\n`)
  }
  return exitCodes.completed
}

/** What is here is a copy, as old as the last time that the service of this host used it. */
function fleetWords(fleet: string): string {
  const which = fleet === '' ? 'a fleet' : `the fleet at ${sanitizeLine(fleet)}`
  return `it is a run of ${which}, whose hosts know how it is now: caisson fleet status`
}

const lengthWords = {
  live: 'no damaged lines',
  fleet: 'as the fleet has them',
  closed: 'journal intact',
  open: 'no damaged lines, but the process did not close the journal; the last lines may be missing',
  unknown: 'no damaged lines, but the length is unknown; the last lines may be missing',
} as const

/** The head that was printed as the run ended is another one once something was applied, undone or decided. */
function headLines(
  events: readonly JournalEvent[],
  { length, tornBytes }: JournalReading,
  isLive: boolean,
  isOfFleet: boolean,
): string[] {
  const whole = lengthWords[isOfFleet ? 'fleet' : isLive ? 'live' : length]
  const now = `${formatCount(events.length, 'event')}${isLive ? ' so far' : ''}, ${whole}, head ${events.at(-1)?.hash ?? 'none'}`
  if (tornBytes > 0 && !isLive)
    return [now, `  a last line of ${formatCount(tornBytes, 'byte')} was truncated and is not shown`]
  const at = events.findLastIndex(({ event }) => event.type === 'run-end')
  const end = events[at]
  return end === undefined || at === events.length - 1
    ? [now]
    : [now, `  ${at + 1} events at the end of the run, head ${end.hash}`]
}

export async function runsRemove(io: Io, names: string[]): Promise<ExitCode> {
  const { runs } = hostOf(io)
  // A name that is no run's stops the command before anything is removed.
  const found = new Map<string, AnyRun>()
  for (const name of names) {
    const run = await findAnyRun(io, name)
    found.set(run.runId, run)
  }
  for (const { runId, shared } of found.values()) {
    const mark = await findFleetMark(runs.paths(runId).journal)
    if (shared === undefined) await runs.remove(runId)
    else await shared.fleet.remove(runId)
    const isCopy = shared === undefined && mark !== undefined
    io.stdout.write(
      isCopy ? `removed the copy of ${runId}; its fleet still has the run\n` : `removed ${runId}\n`,
    )
  }
  return exitCodes.completed
}
