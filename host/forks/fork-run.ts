/**
 * Makes the folder of a run that continues another one from a moment of it: the lines of its journal until there, its
 * disk as it was there, its recording, and its task. The other run stays as it is.
 */
import { constants, createReadStream } from 'node:fs'
import { copyFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { RunMetadata } from '#specs/protocol/host-event.ts'
import { describeIssues } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { replaceFile } from '../files/durable.ts'
import { parseJson } from '../files/json.ts'
import { importedLinesOf, readImported, writeImported } from '../journal/imported.ts'
import { momentPaths } from '../journal/kept-moments.ts'
import { RunRecord } from '../journal/run-record.ts'
import { newRunId, type RunPaths, type RunStore } from '../journal/run-store.ts'
import { RecordingHeader } from '../recording/format.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'
import { linkOrCopy } from '../vm/hibernation/sparse-file.ts'
import { manifestName } from '../workspace/index.ts'
import { RunLock } from '../workspace/run-lock.ts'
import { type ForkPoint, findMoment, isNow } from './moment.ts'
import { readTask, type StoredTask } from './stored-task.ts'

/** Names the session of an editor that a run belongs to. A fork joins it only where its own metadata says so. */
const sessionKey = 'acp.session'

/** What {@link forkRun} is asked for. */
export interface ForkRequest {
  /** As {@link findMoment} takes it. */
  readonly at: string
  readonly count: number
  /** What the person says to each fork, in their order; those without get nothing. */
  readonly prompts: readonly string[]
  /** Who asks, for the journals. */
  readonly by: string
  /** Effects outside the VM behind the moment that the person accepted, for the journals. */
  readonly despite?: readonly string[]
  /** Metadata of the new runs, over that of the run. */
  readonly metadata?: Readonly<Record<string, string>>
}

export interface ForkSource {
  readonly store: RunStore
  readonly runId: string
  /** For a run at work: its process alone can copy the disk of its VM and has all exchanges. Absent: no process has it. */
  readonly live?: {
    copyDisk(to: string, checkpointId: string): Promise<void>
    flushRecording(): Promise<void>
    /** Why it made no checkpoint of `now`. Absent: it made one. */
    readonly notNow?: string
  }
  /** Absent: its disks are in its folder. */
  readonly stored?: StoredSource
}

/** For a run whose disks are in the store of its fleet. */
interface StoredSource {
  /** Has its journal and its other files, in a folder of their own. */
  readonly from: RunStore
  /** Takes the new runs, whose folders have no disks. */
  adopt(forks: readonly RunPaths[], checkpointId: string | null): Promise<void>
}

export interface Forks {
  /** The step before which they begin, `start`, `now` (the moment of the call) or `end` (the last checkpoint before it). */
  readonly step: string
  /** For `now`: why they begin at the last checkpoint instead. Absent: they begin at the moment that was asked for. */
  readonly notNow?: string
  /** Null: from the beginning of the run. */
  readonly checkpointId: string | null
  /** Ids of the new runs, which `host.resume` continues. */
  readonly runIds: readonly string[]
}

/** @throws {CaissonError} `not_possible_now` when the run has no such moment or does not keep its disk, `state_corrupted` */
export async function forkRun(source: ForkSource, request: ForkRequest): Promise<Forks> {
  const { store, runId, stored } = source
  const runIds: string[] = []
  try {
    const forks = await makeForks(source, request, runIds)
    // Takes minutes for large disks, and needs nothing of the run: a host may continue it meanwhile.
    const made = runIds.map((id) => store.paths(id))
    if (stored === undefined) await store.adopt(runIds, [runId])
    else await stored.adopt(made, forks.checkpointId)
    return forks
  } catch (error) {
    // One that another process has taken up by now stays.
    for (const id of runIds) await store.remove(id).catch(() => undefined)
    throw error
  }
}

/** @param runIds receives the id of each new run before its files are there */
async function makeForks(source: ForkSource, request: ForkRequest, runIds: string[]): Promise<Forks> {
  const { store, runId, stored: inStore } = source
  const from = inStore?.from ?? store
  // Nobody continues it, applies its changes or frees its disk meanwhile.
  await using _ = source.live === undefined ? await RunLock.take(from.paths(runId).locks, runId) : undefined
  const lines: JournalEvent[] = []
  let state = initialRunState
  await from.visit(runId, (line) => {
    lines.push(line)
    state = reduceRun(state, line)
  })
  const found = findMoment(runId, state, request.at)
  const notNow = isNow(state, request.at) ? notNowOf(source, state) : undefined
  const point = isNow(state, request.at) && notNow === undefined ? { ...found, step: 'now' } : found
  const isKept = state.end !== null && source.live === undefined && inStore === undefined
  const paths = momentPaths(from.paths(runId), isKept)
  const stored = await readTask(paths, (await readImported(paths.directory)) !== undefined)
  await source.live?.flushRecording()
  const prefix = prefixOf(lines, point)
  const checkpointId = point.moment?.checkpointId ?? null
  for (let index = 0; index < request.count; index += 1) {
    const fork = await store.create(newRunId())
    runIds.push(fork.runId)
    await makeFork({ source, paths, fork, prefix, point, stored, request, words: request.prompts[index] })
  }
  return { step: point.step, checkpointId, runIds, ...(notNow === undefined ? {} : { notNow }) }
}

/** Why there is no checkpoint of the moment of the call. */
function notNowOf({ live }: ForkSource, { end }: RunState): string | undefined {
  if (live !== undefined) return live.notNow?.slice(0, limits.lineMaxChars).toWellFormed()
  return end === null ? 'no process works on the run' : 'the run has ended'
}

interface ForkParts {
  readonly source: ForkSource
  /** Of the files of the run that is forked. */
  readonly paths: RunPaths
  readonly fork: RunPaths
  readonly prefix: readonly JournalEvent[]
  readonly point: ForkPoint
  readonly stored: StoredTask
  readonly request: ForkRequest
  readonly words: string | undefined
}

async function makeFork(parts: ForkParts): Promise<void> {
  const { source, paths, fork, point, stored } = parts
  // The lock of the open journal keeps others from continuing half a run.
  await using _ = await writePrefix(parts)
  const { moment } = point
  if (source.stored === undefined) await copyDisks(parts)
  await copyFile(paths.diskFiles, fork.diskFiles, constants.COPYFILE_EXCL)
  await copyFile(
    path.join(paths.directory, manifestName),
    path.join(fork.directory, manifestName),
    constants.COPYFILE_EXCL,
  )
  await copyRecording(paths.exchanges, fork, moment?.exchanges ?? 0)
  const imported = await readImported(paths.directory)
  if (imported !== undefined) {
    const lines = Math.min(importedLinesOf(imported), parts.prefix.length)
    await writeImported(fork.directory, { ...imported, lines })
  }
  // The last: without it nothing continues the run.
  const { task } = stored
  const own = { ...stored, task: { ...task, runId: fork.runId, idSeed: task.idSeed ?? task.runId } }
  await replaceFile(fork.options, `${JSON.stringify(own)}\n`)
}

async function copyDisks({ source, paths, fork, point: { moment } }: ForkParts): Promise<void> {
  if (moment !== null) {
    const { checkpointId } = moment
    if (source.live !== undefined) await source.live.copyDisk(fork.scratch, checkpointId)
    else await CheckpointDisk.fork(paths.scratch, fork.scratch, checkpointId)
  }
  await linkOrCopy(paths.disk, fork.disk)
}

/** Writes the lines until the moment anew, with their times. Returns the open record. */
async function writePrefix({ source, fork, prefix, point, request, words }: ForkParts): Promise<RunRecord> {
  let at: number | undefined
  const record = await RunRecord.open(fork, { now: () => at ?? Date.now() })
  try {
    for (const line of prefix) {
      at = line.at
      if (line.source === 'agent') await record.agent(line.agentPath, line.n, line.event)
      else if (line.event.type !== 'run-start') await record.host(line.event)
      else {
        const { despite, by } = request
        const checkpointId = point.moment?.checkpointId ?? null
        const forkedFrom = {
          ...{ runId: source.runId, checkpointId, step: point.step, by, at: Date.now() },
          ...(despite === undefined || despite.length === 0 ? {} : { despite: [...despite] }),
        }
        await record.host({ ...line.event, ...metadataOf(line.event, request), forkedFrom })
      }
    }
    at = undefined
    if (words !== undefined && words.trim() !== '') await record.host(messageOf(words, fork, request))
    return record
  } catch (error) {
    await record[Symbol.asyncDispose]()
    throw error
  }
}

/** @throws {CaissonError} `invalid_options` for more than a run may have */
function metadataOf(
  { metadata: own }: { readonly metadata?: RunMetadata | undefined },
  { metadata, despite }: ForkRequest,
): { readonly metadata?: RunMetadata } {
  if (own === undefined && metadata === undefined) return {}
  const { [sessionKey]: session, ...kept } = own ?? {}
  // A rewound run takes the place of the other one; only a rewind says what it accepts.
  const isRewind = despite !== undefined && session !== undefined
  const all = RunMetadata.safeParse({ ...kept, ...(isRewind ? { [sessionKey]: session } : {}), ...metadata })
  if (all.success) return { metadata: all.data }
  throw new CaissonError(
    'invalid_options',
    `the metadata of the forks cannot be used: ${describeIssues(all.error, { root: 'it', max: 1 })}`,
  )
}

function messageOf(words: string, { runId }: RunPaths, { by }: ForkRequest) {
  if (words.length > limits.textMaxChars)
    throw new CaissonError(
      'invalid_options',
      `the words for a fork are longer than ${limits.textMaxChars} characters`,
      { remedy: 'put them into a file of the workspace' },
    )
  const messageId = `m-${runId.slice('run-'.length)}`
  return { type: 'steer-request', messageId, text: words.toWellFormed(), by } as const
}

/** The lines of the journal until the moment. */
function prefixOf(lines: readonly JournalEvent[], { moment }: ForkPoint): readonly JournalEvent[] {
  if (moment === null) {
    const ready = lines.findLast(({ event }) => event.type === 'workspace-ready')
    return [...lines.slice(0, 1), ...(ready === undefined ? [] : [ready])]
  }
  const { checkpointId } = moment
  const at = lines.findLastIndex(
    ({ event }) => event.type === 'checkpoint' && event.checkpointId === checkpointId,
  )
  return lines.slice(0, at + 1)
}

/** The header and the first exchanges; later ones belong to the other run. */
async function copyRecording(from: string, fork: RunPaths, count: number): Promise<void> {
  const lines: string[] = []
  try {
    for await (const line of createInterface({
      input: createReadStream(from),
      crlfDelay: Number.POSITIVE_INFINITY,
    })) {
      lines.push(line)
      if (lines.length > count) break
    }
  } catch (error) {
    // A run that asked its model for nothing has none.
    if (errnoOf(error) === 'ENOENT') return
    throw error
  }
  const header = RecordingHeader.safeParse(parseJson(lines[0] ?? ''))
  if (!header.success) throw new CaissonError('state_corrupted', `the recording ${from} is damaged`)
  const own = [JSON.stringify({ ...header.data, runId: fork.runId }), ...lines.slice(1)]
  await writeFile(fork.exchanges, `${own.join('\n')}\n`, { mode: 0o600, flag: 'wx' })
}
