/**
 * Forks of a run of a fleet that need no disk here: at a checkpoint whose files the store has, and at the beginning. The disks
 * stay in the store, and the forks name the same contents; only what differs in a fork is read and stored.
 */
import { rm } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { CaissonError } from '#specs/errors.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { ArchiveStage } from '../archive/archive-stage.ts'
import { type Member, memberKinds } from '../archive/format.ts'
import { parseJson } from '../files/json.ts'
import type { FleetBlobs } from '../fleet/blobs.ts'
import type { Fleet } from '../fleet/fleet.ts'
import { type ReadRow, readRows } from '../fleet/journal-rows.ts'
import { type ForkRequest, type Forks, forkRun } from '../forks/fork-run.ts'
import { type ForkPoint, findMoment, isNow, namesOf } from '../forks/moment.ts'
import { type RunPaths, RunStore } from '../journal/run-store.ts'
import { DiskRecord } from '../vm/checkpoints/checkpoint-disk.ts'
import { adoptRuns } from './adopt.ts'
import { readMembers, restoreRun, storeRunFiles } from './files.ts'

export interface StoreParts {
  readonly fleet: Fleet
  readonly blobs: Pick<FleetBlobs, 'get' | 'put'>
}

/** What the store has of a run, and its journal until there. */
interface StoredRun {
  readonly seq: number
  readonly isAtWork: boolean
  readonly members: ReadonlyMap<string, Member>
  /** Undefined: the store has no disk of the VM. */
  readonly disk: DiskRecord | undefined
}

const recordName = 'scratch/disk.json'
/** Of a fork at any moment. */
const needed = ['run.json', 'manifest.jsonl', 'workspace-files.json', 'workspace.erofs']
/** What is another in a fork, or is read to make one. */
const read: ReadonlySet<string> = new Set([
  ...['run.json', 'exchanges.jsonl', 'manifest.jsonl', 'workspace-files.json'],
])

/** @returns undefined: the store has not what the moment needs, or only the process that has the run knows the moment */
export async function forkStored(
  parts: StoreParts,
  { runId, directory, locks }: RunPaths,
  request: ForkRequest,
): Promise<Forks | undefined> {
  const { fleet, blobs } = parts
  const stored = await readStoredRun(parts, runId)
  const small = [...stored.members.values()].filter(({ name }) => read.has(name))
  const folders = { runs: path.dirname(directory), locks }
  await using stage = await ArchiveStage.open(folders, 'import')
  const from = new RunStore({ runs: stage.directory, locks: path.join(stage.directory, 'locks') })
  const rows = linesUntil(readRows(fleet.database, fleet.runs, runId), stored.seq)
  await restoreRun(from.paths(runId), { files: small, rows }, blobs)
  const { state } = await from.fold(runId)
  if (stored.isAtWork && isNow(state, request.at)) return undefined
  if (!hasMoment(stored, findMoment(runId, state, request.at))) return undefined
  const adopt = async (forks: readonly RunPaths[], checkpointId: string | null) => {
    const filesOf = (fork: RunPaths) => filesOfFork(fork, checkpointId, stored, blobs)
    await adoptRuns({ fleet, blobs, filesOf, host: null }, forks, [runId])
    // Reading one makes a copy of it, which has all of its files.
    for (const fork of forks) await rm(fork.directory, { recursive: true, force: true })
  }
  return await forkRun({ store: new RunStore(folders), runId, stored: { from, adopt } }, request)
}

/** The moments of a run that any host can fork it at, oldest first. */
export async function storedMoments(parts: StoreParts, runId: string): Promise<string[]> {
  const { fleet } = parts
  const stored = await readStoredRun(parts, runId)
  let state = initialRunState
  for await (const { event } of linesUntil(readRows(fleet.database, fleet.runs, runId), stored.seq))
    state = reduceRun(state, event)
  return namesOf(state).filter((at) => hasMoment(stored, findMoment(runId, state, at)))
}

/** One look, so that journal and files belong together. @throws {CaissonError} `run_not_found`, `state_corrupted` */
async function readStoredRun({ fleet, blobs }: StoreParts, runId: string): Promise<StoredRun> {
  const found = await fleet.runs.stored(runId)
  if (found === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
  const { seq, files, isAtWork } = found
  const members = new Map(readMembers(runId, files).map((member) => [member.name, member]))
  const record = members.get(recordName)
  const disk = record === undefined ? undefined : parseJson(await text(Readable.from(blobs.get(record))))
  return { seq, isAtWork, members, disk: DiskRecord.safeParse(disk).data }
}

function hasMoment({ members, disk }: StoredRun, { moment }: ForkPoint): boolean {
  if (!needed.every((name) => members.has(name))) return false
  if (moment === null) return true
  const record = disk === undefined ? undefined : recordAt(disk, moment.checkpointId)
  return record !== undefined && diskNames(record).every((name) => members.has(name))
}

/** Undefined: it has no such checkpoint. */
function recordAt({ sealed, ...disk }: DiskRecord, checkpointId: string): DiskRecord | undefined {
  const at = sealed.findIndex(({ checkpoint }) => checkpoint === checkpointId)
  return at < 0 ? undefined : { ...disk, sealed: sealed.slice(0, at + 1) }
}

const diskNames = ({ sealed }: DiskRecord) =>
  ['base.raw', ...sealed.map(({ file }) => file)].map((name) => `scratch/${name}`)

/** Its own small files are in its folder; the others are those of the run. */
async function filesOfFork(
  fork: RunPaths,
  checkpointId: string | null,
  { members, disk }: StoredRun,
  blobs: StoreParts['blobs'],
): Promise<Member[]> {
  const own = await storeRunFiles(fork, null, blobs)
  const record = disk === undefined || checkpointId === null ? undefined : recordAt(disk, checkpointId)
  const names = [
    'workspace-files.json',
    'workspace.erofs',
    ...(record === undefined ? [] : diskNames(record)),
  ]
  const shared = names.flatMap((name) => members.get(name) ?? [])
  if (record !== undefined) {
    const line = Buffer.from(`${JSON.stringify(record)}\n`)
    own.push({ name: recordName, ...(await blobs.put(() => Readable.from([line]))) })
  }
  const placeOf = ({ name }: Member) => memberKinds.findIndex((kind) => kind.name.test(name))
  return [...own, ...shared].sort((one, other) => placeOf(one) - placeOf(other))
}

async function* linesUntil(rows: AsyncIterable<ReadRow>, seq: number): AsyncGenerator<ReadRow, void> {
  for await (const row of rows) {
    if (row.event.seq > seq) return
    yield row
  }
}
