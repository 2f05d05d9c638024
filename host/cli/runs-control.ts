/** `caisson runs steer`, `pause`, `resume` and `cancel`: what a person says to a run of any process, without watching it. */
import { ControlError } from '../control/client.ts'
import type { RunClient } from '../control/run-client.ts'
import { UnknownRunError } from '../runs/store.ts'
import { foreignLine } from '../ui/foreign.ts'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import { hostOf, type Io } from './io.ts'

export async function runsSteer(io: Io, name: string, text: string): Promise<ExitCode> {
  return await say(io, name, (run) => run.steer(text, 'caisson runs steer'), 'the agent gets the message')
}

export async function runsPause(io: Io, name: string): Promise<ExitCode> {
  const done = 'the agent holds before its next step; go on: caisson runs resume'
  return await say(io, name, (run) => run.pauseAgent('caisson runs pause'), done)
}

export async function runsResume(io: Io, name: string): Promise<ExitCode> {
  return await say(io, name, (run) => run.resumeAgent('caisson runs resume'), 'the agent goes on')
}

/** Waits for the end: what the run did comes home first, unless it is ended at once. */
export async function runsCancel(io: Io, name: string, flags: { now?: boolean }): Promise<ExitCode> {
  const run = await findLive(io, name)
  run.cancel('caisson runs cancel', flags.now === true)
  const end = await run.ended
  if (end.kind !== 'ended') throw new ControlError('gone', end.kind === 'lost' ? end.message : 'it was left')
  io.stdout.write(`${run.id}: ${end.end?.outcome ?? 'ended'}\n`)
  return exitCodes.completed
}

async function say(
  io: Io,
  name: string,
  send: (run: RunClient) => Promise<string | undefined>,
  done: string,
): Promise<ExitCode> {
  const run = await findLive(io, name)
  try {
    const problem = await send(run)
    if (problem !== undefined) throw new ControlError('busy', `${run.id}: ${foreignLine(problem)}`)
  } finally {
    run.leave()
  }
  io.stdout.write(`${run.id}: ${done}\n`)
  return exitCodes.completed
}

async function findLive(io: Io, name: string): Promise<RunClient> {
  const host = hostOf(io)
  const run = await host.attach(name)
  if (run !== null) return run
  const { runId } = await host.runs.find(name)
  throw new UnknownRunError(`${runId} is not at work: no process carries it out`)
}
