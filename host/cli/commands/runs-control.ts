/** `caisson runs steer`, `pause`, `resume` and `cancel`: what a person says to a run of any process, without watching it. */
import { CaissonError } from '#specs/errors.ts'
import type { RunClient } from '../../control/run-client.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export async function runsSteer(io: Io, name: string, text: string): Promise<ExitCode> {
  return await say(
    io,
    name,
    (run) => run.steer(text, { by: 'caisson runs steer' }),
    () => 'message sent to the agent',
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

export async function runsResume(io: Io, name: string): Promise<ExitCode> {
  return await say(
    io,
    name,
    (run) => run.resume({ by: 'caisson runs resume' }),
    () => 'the agent resumes',
  )
}

/** Waits for the end: what the run did comes home first, unless it is ended at once. */
export async function runsCancel(io: Io, name: string, flags: { now?: boolean }): Promise<ExitCode> {
  const run = await findLive(io, name)
  await run.cancel({ by: 'caisson runs cancel', now: flags.now === true })
  const end = await run.ended
  if (end.kind !== 'ended')
    throw new CaissonError('connection_lost', end.kind === 'lost' ? end.message : 'it was left')
  io.stdout.write(`${run.id}: ${end.end?.outcome ?? 'ended'}\n`)
  return exitCodes.completed
}

async function say(
  io: Io,
  name: string,
  send: (run: RunClient) => Promise<void>,
  done: (runId: string) => string,
): Promise<ExitCode> {
  const run = await findLive(io, name)
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
  const run = await host.attach(name)
  if (run !== null) return run
  const { runId } = await host.runs.find(name)
  const { state } = await host.runs.summary(runId)
  const why = state.end === null ? 'no process runs it' : `it has ended as ${state.end.outcome}`
  throw new CaissonError('run_not_found', `${runId} is not active: ${why}`)
}
