/** `caisson runs fork` and `rewind`: other runs that continue one from a moment of it. */
import { formatCount } from '../../files/format.ts'
import type { Host } from '../../host.ts'
import type { Run } from '../../runs/run.ts'
import { findAnyRun, requireOwn } from '../any-run.ts'
import { type ExitCode, exitCodeOfEnd, exitCodes } from '../exit-codes.ts'
import { Interrupts } from '../interrupts.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import type { RunsOfFleet } from '../runs-of-fleet.ts'
import { attach } from './attach.ts'
import { type ContinueFlags, continueRun } from './run.ts'

interface StartFlags extends ContinueFlags {
  /** `--no-start`: only the folders are made. */
  readonly start?: boolean
}

export interface ForkFlags extends StartFlags {
  readonly at: string
  readonly count?: number
}

export interface RewindFlags extends StartFlags {
  readonly to: string
  readonly despiteEffects?: boolean
}

export async function runsFork(io: Io, name: string, prompts: string[], flags: ForkFlags): Promise<ExitCode> {
  const host = hostOf(io)
  const { runId, shared } = await findAnyRun(io, name, { mayBeCopy: true })
  if (shared === undefined) await requireOwn(io, runId)
  const { at, count } = flags
  const options = {
    ...{ at, prompts, by: 'caisson runs fork' },
    ...(count === undefined ? {} : { count }),
  }
  const forks = await (shared?.fleet.fork(runId, options) ?? host.fork(runId, options))
  const { runIds, step, notNow } = forks
  if (flags.json === true) await writeJsonLine(io.stdout, { source: 'forks', runId, ...forks })
  else {
    for (const id of runIds) io.stdout.write(`${id} is a fork of ${runId} at ${sanitizeLine(step)}\n`)
    if (notNow !== undefined)
      io.stdout.write(`  this is the last checkpoint, as no new one was possible: ${sanitizeLine(notNow)}\n`)
  }
  if (flags.start === false) {
    if (flags.json !== true) io.stdout.write(`start one: caisson runs resume ${runIds[0] ?? ''}\n`)
    return exitCodes.completed
  }
  const [only, ...others] = runIds
  if (shared !== undefined) return await startShared(io, shared.fleet, runIds, flags)
  if (only !== undefined && others.length === 0) return await continueRun(io, only, flags)
  const code = await runSideBySide(io, host, runIds, flags)
  if (flags.json !== true) io.stdout.write(`Compare them: caisson runs compare ${runIds.join(' ')}\n`)
  return code
}

export async function runsRewind(
  io: Io,
  name: string,
  prompt: string | undefined,
  flags: RewindFlags,
): Promise<ExitCode> {
  const host = hostOf(io)
  const { runId: old, shared } = await findAnyRun(io, name, { mayBeCopy: true })
  if (shared === undefined) await requireOwn(io, old)
  const { to, despiteEffects = false } = flags
  const options = {
    ...{ to, despiteEffects, by: 'caisson runs rewind' },
    ...(prompt === undefined ? {} : { prompt }),
  }
  const rewound = await (shared?.fleet.rewind(old, options) ?? host.rewind(old, options))
  const { runId, step, effects } = rewound
  if (flags.json === true) await writeJsonLine(io.stdout, { source: 'rewind', from: old, ...rewound })
  else {
    io.stdout.write(`${runId} continues ${old} from ${sanitizeLine(step)}\n`)
    for (const effect of effects) io.stdout.write(`  stays: ${sanitizeLine(effect)}\n`)
  }
  if (flags.start !== false && shared !== undefined)
    return await startShared(io, shared.fleet, [runId], flags)
  if (flags.start !== false) return await continueRun(io, runId, flags)
  if (flags.json !== true) io.stdout.write(`start it: caisson runs resume ${runId}\n`)
  return exitCodes.completed
}

/** Hosts of the fleet continue them. One alone is followed to its end. */
async function startShared(
  io: Io,
  fleet: RunsOfFleet,
  runIds: readonly string[],
  { json = false, ...detail }: StartFlags,
): Promise<ExitCode> {
  for (const id of runIds) await fleet.wake(id)
  const [only, ...others] = runIds
  if (only !== undefined && others.length === 0) return await attach(io, only, { json, ...detail })
  if (json) return exitCodes.completed
  for (const id of runIds) io.stdout.write(`watch: caisson attach ${id}\n`)
  io.stdout.write(`Compare them: caisson runs compare ${runIds.join(' ')}\n`)
  return exitCodes.completed
}

/** @returns the code of the first run that did not complete */
async function runSideBySide(
  io: Io,
  host: Host,
  runIds: readonly string[],
  { json = false }: ForkFlags,
): Promise<ExitCode> {
  // Questions of several runs at once are answered from elsewhere; without a person they are denied.
  const interactive = io.stdin.isTTY === true && !json
  const runs: Run[] = []
  for (const id of runIds) runs.push(await host.resume(id, { interactive }))
  const all: Pick<Run, 'cancel'> = {
    cancel: async (options) => void (await Promise.all(runs.map((run) => run.cancel(options)))),
  }
  using _ = new Interrupts(all, io.stdout, () =>
    io.stderr.write('cancelling; interrupt again to stop immediately\n'),
  )
  const codes = await Promise.all(
    runs.map((run, index) => followOne(io, run, index + 1, { isJson: json, isAnswerable: interactive })),
  )
  return codes.find((code) => code !== exitCodes.completed) ?? exitCodes.completed
}

/** Shows in one line each what a person needs of one run among others. */
async function followOne(
  io: Io,
  run: Run,
  number: number,
  { isJson, isAnswerable }: { isJson: boolean; isAnswerable: boolean },
): Promise<ExitCode> {
  const write = (line: string) => void io.stdout.write(`[${number}] ${line}\n`)
  let isNew = false
  for await (const item of run.watch()) {
    if (isJson) await writeJsonLine(io.stdout, item)
    if (isJson || item.source === 'delta') continue
    const { event } = item
    // The lines before are those of the run that was forked.
    if (event.type === 'run-resume') isNew = true
    if (!isNew) continue
    if (event.type === 'step-start') write(`step ${sanitizeLine(event.stepId)} starts`)
    if (event.type === 'approval-request' && isAnswerable)
      write(`waits for an answer; in another terminal: caisson approvals list ${run.id}`)
  }
  const { end, changes } = await run.ended
  const brought = changes === null ? 'no changes' : formatCount(changes.entries, 'change')
  if (!isJson)
    write(
      `${end?.outcome ?? 'not ended'}, ${brought}: ${sanitizeLine(end?.summary || end?.message || '', 200)}`,
    )
  return exitCodeOfEnd(end)
}
