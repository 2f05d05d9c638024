/** `caisson runs`: lists, shows and removes runs. */
import { existsSync } from 'node:fs'

import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import type { RunClient } from '../../control/run-client.ts'
import { formatBytes, formatCost, formatCount, formatTime } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import { findFleetMark } from '../../journal/fleet-mark.ts'
import type { JournalReading } from '../../journal/journal-summary.ts'
import { keptDiskBytes } from '../../journal/kept-moments.ts'
import { type RunFilter, readFilters } from '../../journal/run-query.ts'
import type { RunSummary } from '../../journal/run-store.ts'
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
import { resumeDetached } from './detach.ts'
import { type ContinueFlags, continueRun, hasPerson } from './run.ts'
import { watchAnswers } from './watch-end.ts'

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

const noneOfFleet = 'the fleet has no runs yet; start one over HTTP or on the page of the service\n'
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
    const isLive = shared === undefined ? await host.runs.isLive(paths.runId) : shared.end === null
    if (!isLive) {
      writeLines(io.stdout, unknownCallLines(state, colors))
      const { keepsVm } = await host.runs.summary(paths.runId)
      const left = { keepsVm, canResume: existsSync(paths.options) }
      writeLines(io.stdout, interruptedLines(paths.runId, events, state, left).map(colors.yellow))
    }
    writeLines(io.stdout, headLines(events, reading, isLive))
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
  closed: 'journal intact',
  open: 'no damaged lines, but the process did not close the journal; the last lines may be missing',
  unknown: 'no damaged lines, but the length is unknown; the last lines may be missing',
} as const

/** The head that was printed as the run ended is another one once something was applied, undone or decided. */
function headLines(
  events: readonly JournalEvent[],
  { length, tornBytes }: JournalReading,
  isLive: boolean,
): string[] {
  const now = `${formatCount(events.length, 'event')}${isLive ? ' so far' : ''}, ${lengthWords[isLive ? 'live' : length]}, head ${events.at(-1)?.hash ?? 'none'}`
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
  const runIds = new Set<string>()
  for (const name of names) runIds.add(await findRun(io, name))
  for (const runId of runIds) {
    await runs.remove(runId)
    io.stdout.write(`removed ${runId}\n`)
  }
  return exitCodes.completed
}

export async function runsSteer(
  io: Io,
  name: string,
  text: string,
  { agent }: { agent?: string } = {},
): Promise<ExitCode> {
  return await say(
    io,
    name,
    (run) => run.steer(text, { by: 'caisson runs steer', ...(agent === undefined ? {} : { to: agent }) }),
    () => `message sent to ${agent === undefined ? 'the agent' : sanitizeLine(agent)}`,
  )
}

export async function runsPause(io: Io, name: string): Promise<ExitCode> {
  return await say(
    io,
    name,
    (run) => run.pause({ by: 'caisson runs pause' }),
    (runId) => `the agent pauses before its next step; to resume it: caisson runs resume ${runId}`,
  )
}

interface ResumeFlags {
  readonly all?: boolean
  /** In a background process. */
  readonly detach?: boolean
}

/** A paused agent, or a run without a host process; with `all` each of those that waits for no answer, one by one. */
export async function runsResume(
  io: Io,
  name: string | undefined,
  { all = false, detach = false, ...flags }: ContinueFlags & ResumeFlags,
): Promise<ExitCode> {
  const host = hostOf(io)
  const resume = (runId: string) =>
    detach ? resumeDetached(io, runId, flags) : continueRun(io, runId, flags)
  // Questions that wait would be denied where nobody can answer.
  const isAnswerable = detach || hasPerson(io, flags)
  if (all) return await resumeAll(io, host, resume, isAnswerable)
  if (name === undefined)
    throw new CaissonError(
      'invalid_options',
      'expected a run, or --all for each run whose host process ended',
    )
  const runId = await findRun(io, name)
  const { state, status, isLive, pendingApprovals } = await host.runs.summary(runId)
  const isTaken = flags.takeOver === true && state.end === null
  if (isTaken || status === 'interrupted' || (status === 'sleeping' && !isLive)) {
    if (!isAnswerable && pendingApprovals > 0) throw unanswerable(runId, pendingApprovals)
    return await resume(runId)
  }
  return await say(
    io,
    runId,
    (run) => run.resume({ by: 'caisson runs resume' }),
    () => 'the agent resumes',
  )
}

function unanswerable(runId: string, questions: number): CaissonError {
  const message = `${runId} waits for ${formatCount(questions, 'answer')}, which nobody can give here without a terminal`
  return new CaissonError('not_possible_now', message, {
    remedy: `answer: caisson approvals list ${runId}; or continue it in the background: caisson runs resume ${runId} --detach`,
  })
}

/** @returns the code of the first run that did not complete */
async function resumeAll(
  io: Io,
  host: Host,
  resume: (runId: string) => Promise<ExitCode>,
  isAnswerable: boolean,
): Promise<ExitCode> {
  const runs = await host.runs.list()
  const stopped = runs.filter(({ status, isLive, isPaused, pendingApprovals }) =>
    status === 'sleeping'
      ? !isLive && isPaused !== true && pendingApprovals === 0
      : status === 'interrupted' && (isAnswerable || pendingApprovals === 0),
  )
  const left = stopped.filter(({ id }) => existsSync(host.runs.paths(id).options))
  if (left.length === 0) io.stderr.write('no run can be continued; list all: caisson runs list\n')
  let first: ExitCode = exitCodes.completed
  for (const { id } of left) {
    const code = await resume(id)
    if (first === exitCodes.completed) first = code
  }
  return first
}

/** Waits for the end: the run sends its changes first, unless it ends at once. */
export async function runsCancel(
  io: Io,
  name: string,
  flags: { now?: boolean; agent?: string; reason?: string },
): Promise<ExitCode> {
  const { agent, reason } = flags
  if (agent !== undefined)
    return await say(
      io,
      name,
      (run) =>
        run.cancelAgent(agent, {
          by: 'caisson runs cancel',
          ...(reason === undefined ? {} : { reason }),
        }),
      () => `${sanitizeLine(agent)} is cancelled; the run continues`,
    )
  if (reason !== undefined)
    throw new CaissonError(
      'invalid_options',
      'expected --agent with --reason: it is for the agent that continues',
    )
  const host = hostOf(io)
  const runId = await findRun(io, name)
  const { state, isLive } = await host.runs.summary(runId)
  if (state.end === null && !isLive) {
    await host.cancel(runId, { by: 'caisson runs cancel' })
    io.stdout.write(`${runId}: cancelled; its changes were not collected\n`)
    return exitCodes.completed
  }
  const run = await findLive(io, runId)
  await run.cancel({ by: 'caisson runs cancel', now: flags.now === true })
  const end = await run.ended
  if (end.kind !== 'ended')
    throw new CaissonError('connection_lost', end.kind === 'lost' ? end.message : `it was ${end.kind}`)
  io.stdout.write(`${run.id}: ${end.end?.outcome ?? 'ended'}\n`)
  return exitCodes.completed
}

async function say(
  io: Io,
  name: string,
  send: (run: RunClient) => Promise<void>,
  done: (runId: string) => string,
): Promise<ExitCode> {
  const runId = await findRun(io, name)
  using _ = watchAnswers(hostOf(io), runId, {
    say: (line) => void io.stderr.write(`${line}\n`),
    leaving: `To leave it, press Ctrl-C. To continue the run in another process: caisson runs resume ${runId} --take-over`,
  })
  const run = await findLive(io, runId)
  try {
    await send(run)
  } catch (error) {
    const { code, message } = CaissonError.from(error)
    throw new CaissonError(code, `${run.id}: ${sanitizeLine(message)}`, { cause: error })
  } finally {
    await run.detach()
  }
  io.stdout.write(`${run.id}: ${done(run.id)}\n`)
  return exitCodes.completed
}

/** @throws {CaissonError} `run_not_found` where no process carries it out */
export async function findLive(io: Io, name: string): Promise<RunClient> {
  const host = hostOf(io)
  const runId = await findRun(io, name)
  const run = await host.attach(runId)
  if (run !== null) return run
  const { state, status, isPaused } = await host.runs.summary(runId)
  const why =
    state.end !== null
      ? `it has ended as ${state.end.outcome}`
      : isPaused === true
        ? `it was paused and sleeps; continue it: caisson runs resume ${runId}`
        : status === 'sleeping'
          ? `it sleeps until its approvals are answered; list them: caisson approvals list ${runId}`
          : status === 'damaged'
            ? `its journal is damaged, so it cannot continue; what is wrong: caisson runs show ${runId}`
            : `its host process ended before the run did; what it was doing: caisson runs show ${runId}`
  throw new CaissonError('run_not_found', `${runId} is not active: ${why}`)
}
