/** Forks and rewinds runs of the host: at work in this or another process, interrupted, or ended. */
import { setTimeout as sleep } from 'node:timers/promises'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { Line, Text } from '#specs/protocol/text.ts'
import { ForkFields } from './control/messages.ts'
import { RunClient } from './control/run-client.ts'
import { checkArguments } from './files/check-arguments.ts'
import type { RunElsewhere, RunFences } from './fleet-runs/run-fences.ts'
import { type ForkRequest, type Forks, forkRun } from './forks/fork-run.ts'
import { checkRewind, endInterrupted, type Rewound } from './forks/rewind.ts'
import { requireNoFleet } from './journal/fleet-mark.ts'
import type { RunPaths, RunStore } from './journal/run-store.ts'

export interface ForkOptions {
  /**
   * A step of the plan, before it first started; `start`: before the run did anything; `end`: the last checkpoint; `now`:
   * a checkpoint that a run at work makes for it, or the last one where none is possible (see `notNow` of the result).
   */
  readonly at: string
  /** New runs, at most 16. Default: one for each of `prompts`, else 1. */
  readonly count?: number
  /** What the person says to each new run, in their order; the agent has it from its first moment. Default: nothing. */
  readonly prompts?: readonly string[]
  /** Who forks, for the journals. Default: `the application`. */
  readonly by?: string
  /** Metadata of the new runs, by key, beside and over that of the run. Default: none. */
  readonly metadata?: Readonly<Record<string, string>>
}

export interface RewindOptions {
  /** As {@link ForkOptions.at}. */
  readonly to: string
  /** What the person says to the run from there. Default: nothing. */
  readonly prompt?: string
  /** Whether to rewind although the run did something outside its VM since, which stays. Default: false. */
  readonly despiteEffects?: boolean
  /** Who rewinds, for the journals. Default: `the application`. */
  readonly by?: string
}

const common = { by: Line.default('the application') }
const { at, count, prompts, metadata } = ForkFields.shape
const ForkSchema = z.strictObject({
  ...common,
  at,
  count: count.optional(),
  prompts: prompts.default([]),
  metadata,
})
const RewindSchema = z.strictObject({
  ...common,
  to: Line.min(1),
  prompt: Text.optional(),
  despiteEffects: z.boolean().default(false),
})
/** How long the process of an ended run has to leave it, and how often that is looked at. */
const leaveMaxMs = 10_000
const lookMs = 50
const unusable = 'the options of the call cannot be used'

/** @throws {CaissonError} `invalid_options` */
export function readForkOptions(options: ForkOptions): ForkRequest {
  const { count, prompts, metadata, ...rest } = checkArguments(unusable, ForkSchema, options)
  const wanted = count ?? Math.max(1, prompts.length)
  if (prompts.length > wanted)
    throw new CaissonError(
      'invalid_options',
      `${prompts.length} prompts for ${wanted} forks; pass one for each at most`,
    )
  return { ...rest, count: wanted, prompts, ...(metadata === undefined ? {} : { metadata }) }
}

/** @throws {CaissonError} `not_possible_now`, `run_busy`, `state_corrupted`, `connection_lost` */
export async function forkAnyRun(
  store: RunStore,
  paths: RunPaths,
  request: ForkRequest,
  fences?: RunFences,
): Promise<Forks> {
  // Of a fleet that this host knows nothing of.
  if (fences === undefined) await requireNoFleet(paths.journal, paths.runId)
  const elsewhere = await fences?.makeThere?.(paths)
  const made = (await elsewhere?.forkStored(request)) ?? (await elsewhere?.fork(request))
  if (made !== undefined) return made
  await untilLeft(store, paths.runId)
  const client = await connectTo(store, paths)
  if (client === null) return await forkRun({ store, runId: paths.runId }, request)
  try {
    return await client.fork(request)
  } finally {
    await client.detach()
  }
}

/** See {@link RewindOptions}. @throws {CaissonError} `invalid_options`, and as {@link forkAnyRun} */
export async function rewindAnyRun(
  store: RunStore,
  paths: RunPaths,
  options: RewindOptions,
  fences?: RunFences,
): Promise<Rewound> {
  const checked = checkArguments(unusable, RewindSchema, options)
  if (fences === undefined) await requireNoFleet(paths.journal, paths.runId)
  const elsewhere = await fences?.makeThere?.(paths)
  const made = elsewhere && (await rewindElsewhere(store, paths, checked, elsewhere))
  if (made !== undefined) return made
  const { to, prompt, despiteEffects, by } = checked
  const { runId } = paths
  await untilLeft(store, runId)
  const client = await connectTo(store, paths)
  // From here on it begins no further effect.
  await client?.pause({ by })
  try {
    const despite = await checkRewind(store, runId, to, despiteEffects)
    const prompts = prompt === undefined ? [] : [prompt]
    const request: ForkRequest = { at: to, count: 1, prompts, by, despite }
    const forks = await (client === null ? forkRun({ store, runId }, request) : client.fork(request))
    const [fork = ''] = forks.runIds
    const { step } = forks
    try {
      await client?.cancel({ by: `rewind to ${step} as ${fork}` })
      await client?.ended
      if (client === null) await endInterrupted(store, runId, `rewound to ${step} as ${fork}`)
      return { runId: fork, step, effects: await checkRewind(store, runId, to, true) }
    } catch (error) {
      throw beside(runId, fork, error)
    }
  } catch (error) {
    await client?.resume({ by }).catch(() => undefined)
    throw error
  } finally {
    await client?.detach()
  }
}

/** Here by what the store has, once no host has the run; else by the host that has its disk. */
async function rewindElsewhere(
  store: RunStore,
  { runId }: RunPaths,
  { by, ...options }: z.infer<typeof RewindSchema>,
  elsewhere: RunElsewhere,
): Promise<Rewound | undefined> {
  const { to, prompt, despiteEffects } = options
  if (elsewhere.isAtWork) return await elsewhere.rewind(options, by)
  const despite = await checkRewind(store, runId, to, despiteEffects)
  const prompts = prompt === undefined ? [] : [prompt]
  const forks = await elsewhere.forkStored({ at: to, count: 1, prompts, by, despite })
  if (forks === undefined) return await elsewhere.rewind(options, by)
  const { step, runIds } = forks
  const [fork = ''] = runIds
  try {
    await elsewhere.end(`rewind to ${step} as ${fork}`)
    return { runId: fork, step, effects: await checkRewind(store, runId, to, true) }
  } catch (error) {
    throw beside(runId, fork, error)
  }
}

/** The process of a run that has just ended moves its disk, and closes its socket. */
async function untilLeft(store: RunStore, runId: string): Promise<void> {
  if ((await store.summary(runId)).state.end === null) return
  const until = performance.now() + leaveMaxMs
  while (performance.now() < until && (await store.isLive(runId))) await sleep(lookMs)
}

/** The rewound run was not ended: another process has continued it, say. The fork stays. */
function beside(runId: string, fork: string, error: unknown): CaissonError {
  const { code, message } = CaissonError.from(error)
  return new CaissonError(code, `${fork} was made, but ${runId} was not ended: ${message}`, {
    cause: error,
    remedy: `end ${runId} yourself: caisson runs cancel ${runId}; or remove the other one: caisson runs rm ${fork}`,
  })
}

/** A run that another process carries out; null when none does. It is forked also once that process is gone. */
export async function connectTo(store: RunStore, { runId, control }: RunPaths): Promise<RunClient | null> {
  const forkStored = (request: ForkRequest) => forkRun({ store, runId }, request)
  return await RunClient.connect(runId, control, { forkStored }).catch(() => null)
}
