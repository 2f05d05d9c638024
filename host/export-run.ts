/** Writes a run as one file, without a key or a secret of this host. */
import path from 'node:path'
import type { Writable } from 'node:stream'
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import type { Task } from '#specs/protocol/task.ts'
import { ArchiveStage } from './archive/archive-stage.ts'
import { collectSources, requireNoKeys, usedBytesOf } from './archive/collect.ts'
import type { ArchiveManifest, Withheld } from './archive/format.ts'
import { describeSource, type Source, writeArchive } from './archive/write-archive.ts'
import { readImported } from './journal/imported.ts'
import { momentPaths } from './journal/kept-moments.ts'
import { RunFold } from './journal/run-outline.ts'
import type { RunPaths } from './journal/run-store.ts'
import { findKnownKeys } from './known-keys.ts'
import type { HostState } from './resolve-run.ts'
import { findKeptBase, placeBase } from './runs/replay/base.ts'
import { readReplaySetup } from './runs/replay/setup.ts'
import { createRedaction, type Redaction } from './secrets/redaction.ts'
import { readStoredRun, storedWithoutKeys } from './stored-run.ts'
import { CheckpointDisk } from './vm/checkpoints/checkpoint-disk.ts'
import { RunLock } from './workspace/run-lock.ts'

export interface ExportOptions {
  readonly signal?: AbortSignal
  /** Receives what could not be looked for or put in, one sentence each. */
  readonly onNote?: (text: string) => void
}

/** @throws {CaissonError} `run_busy`, `denied` when a part that cannot be changed holds a key, `state_corrupted` */
export async function exportRun(
  paths: RunPaths,
  to: Writable,
  host: HostState,
  { signal, onNote = () => undefined }: ExportOptions,
): Promise<void> {
  const { runId } = paths
  await using _ = await RunLock.take(paths.locks, runId)
  await using temporary = new AsyncDisposableStack()
  const facts = await readFacts(paths, host)
  const { hasEnded } = facts
  const place = momentPaths(paths, hasEnded)
  const imported = await readImported(paths.directory)
  const setup = await readReplaySetup(paths).catch(() => undefined)
  const base = await findBase(paths, { facts, setup, host, temporary, signal }, onNote)
  const canFork = hasEnded && base !== undefined && (await keepsCheckpoint(place, facts))
  const stored = facts.canContinue || canFork ? await readStoredRun(place) : undefined
  const keys = await findKnownKeys(host, stored?.task.mcpServers ?? {}, onNote)
  const redaction = createRedaction(keys)
  const found = await collectSources({
    paths: place,
    journalBytes: facts.end.bytes,
    texts: {
      ...(setup === undefined ? {} : { 'replay.json': `${JSON.stringify(setup)}\n` }),
      ...(stored === undefined ? {} : { 'run.json': storedWithoutKeys(stored) }),
    },
    ...(base === undefined ? {} : { base }),
    ...(stored === undefined || facts.checkpointId === null ? {} : { checkpointId: facts.checkpointId }),
    redaction,
  })
  const sources = canFork ? await withoutKeyedDisk(found, runId, redaction, onNote) : found
  await requireNoKeys(sources, runId, redaction)
  const members: ArchiveManifest['members'] = []
  for (const source of sources) {
    signal?.throwIfAborted()
    members.push(await describeSource(source))
  }
  const manifest: ArchiveManifest = {
    format: 'caisson-run',
    version: 1,
    runId,
    image: facts.image,
    journal: { events: facts.end.seq, bytes: facts.end.bytes, head: facts.end.hash, closed: hasEnded },
    canContinue: facts.canContinue,
    withheld: stored === undefined ? {} : { ...imported?.withheld, ...withheldOf(stored.task) },
    members,
  }
  await writeArchive(manifest, sources, to, signal)
}

/** Whether an ended run keeps the disk of its last checkpoint with its options, from which it can be forked. */
async function keepsCheckpoint(place: RunPaths, { checkpointId }: Facts): Promise<boolean> {
  if (checkpointId === null) return false
  const kept = Promise.all([CheckpointDisk.open(place.scratch, checkpointId), readStoredRun(place)])
  return await kept.then(
    () => true,
    () => false,
  )
}

/** An ended run is of use without its disk, so it is exported without one that holds a key. */
async function withoutKeyedDisk(
  sources: Source[],
  runId: string,
  redaction: Redaction,
  note: (text: string) => void,
): Promise<Source[]> {
  const isOfDisk = ({ name }: Source): boolean => name.startsWith('scratch/') || name === 'run.json'
  try {
    await requireNoKeys(sources.filter(isOfDisk), runId, redaction)
    return sources
  } catch (error) {
    if (!hasCode(error, 'denied')) throw error
    note(
      'the disk of the run holds a key or a secret of yours, so it is not in the archive: the run cannot be forked elsewhere',
    )
    return sources.filter((source) => !isOfDisk(source))
  }
}

interface Facts {
  readonly end: { readonly seq: number; readonly bytes: number; readonly hash: string }
  readonly hasEnded: boolean
  /** Whether another process can continue it. */
  readonly canContinue: boolean
  readonly checkpointId: string | null
  readonly image: ArchiveManifest['image']
  readonly workspaceReady: Extract<HostEvent, { type: 'workspace-ready' }> | undefined
}

async function readFacts(paths: RunPaths, host: HostState): Promise<Facts> {
  const fold = new RunFold()
  let image: Facts['image'] = null
  let workspaceReady: Facts['workspaceReady']
  const onLine = ({ event }: JournalEvent): void => {
    if (event.type === 'workspace-ready') workspaceReady = event
    if (event.type !== 'vm-ready' || event.imageKey === undefined || event.agentDigest === undefined) return
    image = { key: event.imageKey, agentDigest: event.agentDigest }
  }
  const { end } = await host.runs.visit(paths.runId, (line, at) => {
    fold.next(line, at)
    onLine(line)
  })
  if (end.seq === 0)
    throw new CaissonError('not_possible_now', `${paths.runId} has not begun; there is nothing to export`)
  const hasEnded = fold.state.end !== null
  const canContinue =
    !hasEnded &&
    (await readStoredRun(paths).then(
      () => true,
      () => false,
    ))
  return {
    end,
    hasEnded,
    canContinue,
    checkpointId: fold.state.checkpoint?.checkpointId ?? null,
    image,
    workspaceReady,
  }
}

interface BaseQuestion {
  readonly facts: Facts
  readonly setup: Awaited<ReturnType<typeof readReplaySetup>> | undefined
  readonly host: HostState
  readonly temporary: AsyncDisposableStack
  readonly signal: AbortSignal | undefined
}

/** The workspace as the run got it: kept, or built from the directory if that has the same files. */
async function findBase(
  paths: RunPaths,
  { facts, setup, host, temporary, signal = new AbortController().signal }: BaseQuestion,
  note: (text: string) => void,
) {
  const kept = await findKeptBase(paths)
  if (kept !== undefined) return { ...kept, ...usedBytesOf(kept.disk) }
  const { workspaceReady } = facts
  if (workspaceReady === undefined || setup === undefined) return undefined
  const { directory: folder } = temporary.use(await ArchiveStage.open(host.folders, 'export'))
  const place = {
    directory: folder,
    disk: path.join(folder, 'workspace.erofs'),
    diskFiles: path.join(folder, 'workspace-files.json'),
  }
  try {
    await placeBase(paths, place, { setup, workspaceReady, folders: host.folders, signal })
  } catch (error) {
    signal.throwIfAborted()
    note(
      `the workspace is not in the archive, so it cannot be replayed elsewhere: ${CaissonError.from(error).message}`,
    )
    return undefined
  }
  return { ...place, ...usedBytesOf(place.disk) }
}

/** The names of what {@link storedWithoutKeys} leaves out. */
function withheldOf({ mcpServers = {} }: Task): Withheld {
  return Object.fromEntries(
    Object.entries(mcpServers).flatMap(([name, { env = {}, headers = {} }]) =>
      Object.keys({ ...env, ...headers }).length === 0
        ? []
        : [[name, { env: Object.keys(env), headers: Object.keys(headers) }]],
    ),
  )
}
