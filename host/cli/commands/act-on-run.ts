/** `caisson runs steer`, `pause`, `resume` and `cancel`: what a person does with a run of this host, or of its fleet. */
import { existsSync } from 'node:fs'
import { CaissonError } from '#specs/errors.ts'
import type { RunClient, WatchEnd } from '../../control/run-client.ts'
import type { RunHandle } from '../../control/run-handle.ts'
import { formatCount } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import { findFleetMark } from '../../journal/fleet-mark.ts'
import { type AnyRun, findAnyRun } from '../any-run.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { attach } from './attach.ts'
import { resumeDetached } from './detach.ts'
import { type ContinueFlags, continueRun, hasPerson } from './run.ts'
import { watchAnswers } from './watch-end.ts'

export async function runsSteer(
  io: Io,
  name: string,
  text: string,
  { agent }: { agent?: string } = {},
): Promise<ExitCode> {
  return await say(
    io,
    await findAnyRun(io, name),
    (run) => run.steer(text, { by: 'caisson runs steer', ...(agent === undefined ? {} : { to: agent }) }),
    () => `message sent to ${agent === undefined ? 'the agent' : sanitizeLine(agent)}`,
  )
}

export async function runsPause(io: Io, name: string): Promise<ExitCode> {
  return await say(
    io,
    await findAnyRun(io, name),
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
  const found = await findAnyRun(io, name)
  if (found.shared !== undefined) return await resumeShared(io, found, { detach, ...flags })
  const { runId } = found
  const { state, status, isLive, pendingApprovals } = await host.runs.summary(runId)
  const isTaken = flags.takeOver === true && state.end === null
  if (isTaken || status === 'interrupted' || (status === 'sleeping' && !isLive)) {
    if (!isAnswerable && pendingApprovals > 0) throw unanswerable(runId, pendingApprovals)
    return await resume(runId)
  }
  return await say(io, found, ...resuming)
}

const resuming = [
  (run: RunHandle) => run.resume({ by: 'caisson runs resume' }),
  () => 'the agent resumes',
] as const

/** A paused agent, or a run that waits for people alone, which any host then continues. */
async function resumeShared(
  io: Io,
  found: AnyRun,
  { detach = false, takeOver, restart, apply, ...flags }: ContinueFlags & ResumeFlags,
): Promise<ExitCode> {
  const { runId, shared } = found
  const refused = [
    ...(takeOver === true ? ['--take-over'] : []),
    ...(restart === true ? ['--restart'] : []),
    ...(apply === true ? ['--apply'] : []),
  ]
  if (refused.length > 0)
    throw new CaissonError(
      'invalid_options',
      `${refused.join(' and ')} cannot be used with ${runId}, which the hosts of a fleet carry out`,
      {
        remedy: `continue it without: caisson runs resume ${runId}; to give it to another host: caisson fleet move ${runId}`,
      },
    )
  if (shared?.resource.status !== 'sleeping') return await say(io, found, ...resuming)
  await shared.fleet.wake(runId)
  io.stdout.write(`${runId}: the next free host of the fleet continues it\n`)
  if (!detach) return await attach(io, runId, flags)
  io.stdout.write(`  watch:   caisson attach ${runId}\n`)
  return exitCodes.completed
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
  const left: typeof stopped = []
  for (const run of stopped) {
    const { options, journal } = host.runs.paths(run.id)
    // The hosts of a fleet continue theirs by themselves.
    if (existsSync(options) && (await findFleetMark(journal)) === undefined) left.push(run)
  }
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
      await findAnyRun(io, name),
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
  const { runId, shared } = await findAnyRun(io, name)
  if (shared !== undefined) return await cancelAndWait(io, shared.fleet.run(runId), flags)
  const host = hostOf(io)
  const { state, isLive } = await host.runs.summary(runId)
  if (state.end === null && !isLive) {
    await host.cancel(runId, { by: 'caisson runs cancel' })
    io.stdout.write(`${runId}: cancelled; its changes were not collected\n`)
    return exitCodes.completed
  }
  return await cancelAndWait(io, await findLive(host, runId), flags)
}

async function cancelAndWait(
  io: Io,
  run: RunHandle & { readonly ended: Promise<WatchEnd> },
  { now = false }: { readonly now?: boolean },
): Promise<ExitCode> {
  await run.cancel({ by: 'caisson runs cancel', now })
  const end = await run.ended
  if (end.kind !== 'ended')
    throw new CaissonError('connection_lost', end.kind === 'lost' ? end.message : `it was ${end.kind}`)
  io.stdout.write(`${run.id}: ${sanitizeLine(end.end?.outcome ?? 'ended')}\n`)
  return exitCodes.completed
}

async function say(
  io: Io,
  { runId, shared }: AnyRun,
  send: (run: RunHandle) => Promise<void>,
  done: (runId: string) => string,
): Promise<ExitCode> {
  const host = hostOf(io)
  using _ =
    shared === undefined
      ? watchAnswers(host, runId, {
          say: (line) => void io.stderr.write(`${line}\n`),
          leaving: `To leave it, press Ctrl-C. To continue the run in another process: caisson runs resume ${runId} --take-over`,
        })
      : undefined
  const run = shared === undefined ? await findLive(host, runId) : shared.fleet.run(runId)
  try {
    await send(run)
  } catch (error) {
    const { code, message } = CaissonError.from(error)
    const said = sanitizeLine(message, 2_000)
    throw new CaissonError(code, said.startsWith(run.id) ? said : `${run.id}: ${said}`, { cause: error })
  } finally {
    await run.detach()
  }
  io.stdout.write(`${run.id}: ${done(run.id)}\n`)
  return exitCodes.completed
}

/** @throws {CaissonError} `run_not_found` where no process carries it out */
async function findLive(host: Host, runId: string): Promise<RunClient> {
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
