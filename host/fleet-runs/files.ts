/**
 * The files of a run for another host of its fleet: what a checkpoint needs, in the blob store, and a run's folder made of
 * them. They hold keys of the run, as the folder does. Refuses a name that no run has.
 */
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { collectSources, usedBytesOf } from '../archive/collect.ts'
import { findMemberFault, Member } from '../archive/format.ts'
import { decodeSparse } from '../archive/sparse.ts'
import type { FleetBlobs } from '../fleet/blobs.ts'
import type { ReadRow } from '../fleet/journal-rows.ts'
import { KnownDigests } from '../fleet/known-digests.ts'
import { markFleet } from '../journal/fleet-mark.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { findKeptBase } from '../runs/replay/base.ts'
import { noRedaction } from '../secrets/redaction.ts'

const RunFiles = z.array(Member).max(200_000)

/** The rows have it. */
const journalName = 'journal.jsonl'

/**
 * Stores the files, and lists them.
 * @param checkpointId null: those of the beginning, or of the end
 * @param hasBase whether the workspace that went into the VM is whole, also where there is no checkpoint: at the end, where
 *   what explains the changes counts, and in a fork
 * @param known digests of files that earlier calls of this run stored
 */
export async function storeRunFiles(
  paths: RunPaths,
  checkpointId: string | null,
  blobs: Pick<FleetBlobs, 'put'>,
  hasBase = false,
  known: Pick<KnownDigests, 'of'> = new KnownDigests(),
): Promise<Member[]> {
  const base = checkpointId === null && !hasBase ? undefined : await findKeptBase(paths)
  const sources = await collectSources({
    paths,
    journalBytes: 0,
    texts: {
      ...(await textOf('run.json', paths.options)),
      ...(await textOf('replay.json', paths.setup)),
    },
    ...(base === undefined ? {} : { base: { ...base, ...usedBytesOf(base.disk) } }),
    ...(checkpointId === null ? {} : { checkpointId }),
    redaction: noRedaction,
  })
  const members: Member[] = []
  for (const { name, fileBytes, file, read } of sources) {
    if (name === journalName) continue
    const blob =
      file === undefined
        ? await blobs.put(read)
        : await known.of(file, async (before) => await blobs.put(read, before))
    members.push({ name, ...blob, ...(fileBytes === undefined ? {} : { fileBytes }) })
  }
  return members
}

/**
 * Makes the folder of a run as it was at its last checkpoint, in the place of whatever this host had of it.
 * @param from `files`: what {@link storeRunFiles} listed; `fleet`: its address, which marks the folder before anything is in it,
 *   so that no command continues what is left of it here. Absent: nobody finds the folder
 * @throws {CaissonError} `state_corrupted`
 */
export async function restoreRun(
  paths: RunPaths,
  {
    files,
    rows,
    fleet,
  }: { readonly files: unknown; readonly rows: AsyncIterable<ReadRow>; readonly fleet?: string },
  blobs: Pick<FleetBlobs, 'get'>,
): Promise<void> {
  const { directory, runId } = paths
  const members = readMembers(runId, files)
  await rm(directory, { recursive: true, force: true })
  await mkdir(directory, { recursive: true, mode: 0o700 })
  if (fleet !== undefined) await markFleet(paths.journal, fleet)
  await using journal = await open(paths.journal, 'wx', 0o600)
  for await (const { body } of rows) await journal.appendFile(`${body}\n`)
  await journal.sync()
  for (const member of members) await restoreMember(directory, member, blobs)
}

/** What reads a run, and does not continue it, needs nothing of these. The options may hold keys. */
const ofContinuing = /^(run\.json$|scratch\/)/

/**
 * Fetches what was stored of a run for those who read it: its changes and its recording, not what continues it.
 * @param files what {@link storeRunFiles} listed
 * @throws {CaissonError} `state_corrupted`
 */
export async function fetchRunFiles(
  paths: RunPaths,
  files: unknown,
  blobs: Pick<FleetBlobs, 'get'>,
): Promise<void> {
  const { directory, runId } = paths
  const wanted = readMembers(runId, files).filter(({ name }) => !ofContinuing.test(name))
  const drafts = path.join(directory, `.fetched-${randomBytes(6).toString('hex')}`)
  try {
    for (const member of wanted) await restoreMember(drafts, member, blobs)
    for (const { name } of wanted) {
      const place = path.join(directory, name)
      await mkdir(path.dirname(place), { recursive: true, mode: 0o700 })
      await rename(path.join(drafts, name), place)
    }
  } finally {
    await rm(drafts, { recursive: true, force: true })
  }
}

/** The list is of the database. @throws {CaissonError} `state_corrupted` */
export function readMembers(runId: string, files: unknown): readonly Member[] {
  const { success, data: members = [] } = RunFiles.safeParse(files ?? [])
  const fault = success ? findMemberFault(members) : 'it has another form'
  if (fault === undefined && !members.some(({ name }) => name === journalName)) return members
  const why = fault ?? 'it names the journal'
  throw new CaissonError('state_corrupted', `the fleet's list of the files of ${runId} is damaged: ${why}`)
}

async function restoreMember(
  directory: string,
  member: Member,
  blobs: Pick<FleetBlobs, 'get'>,
): Promise<void> {
  const { name, fileBytes } = member
  const file = path.join(directory, name)
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
  await using handle = await open(file, 'wx', 0o600)
  if (fileBytes === undefined) for await (const piece of blobs.get(member)) await handle.appendFile(piece)
  else
    await decodeSparse(blobs.get(member), handle, fileBytes).catch((error: unknown) => {
      if (!hasCode(error, 'invalid_archive')) throw error
      throw new CaissonError('state_corrupted', `the fleet's content of ${name} was changed or damaged`)
    })
}

async function textOf(name: string, file: string): Promise<Record<string, string>> {
  return existsSync(file) ? { [name]: await readFile(file, 'utf8') } : {}
}
