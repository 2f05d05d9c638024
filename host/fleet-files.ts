/**
 * The files of a run for another host of its fleet: what a checkpoint needs, in the blob store, and a run's folder made of
 * them. They hold keys of the run, as the folder does. Refuses a name that no run has.
 */
import { existsSync } from 'node:fs'
import { mkdir, open, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { collectSources, usedBytesOf } from './archive/collect.ts'
import { kindOf, Member } from './archive/format.ts'
import { decodeSparse } from './archive/sparse.ts'
import type { BlobStore } from './fleet/blob-store.ts'
import type { ReadRow } from './fleet/journal-rows.ts'
import type { RunPaths } from './journal/run-store.ts'
import { findKeptBase } from './runs/replay/base.ts'
import { noRedaction } from './secrets/redaction.ts'

const RunFiles = z.array(Member).max(10_000)

/** The rows have it. */
const journalName = 'journal.jsonl'

/** Stores the files, and lists them. @param checkpointId null: those of the beginning */
export async function storeRunFiles(
  paths: RunPaths,
  checkpointId: string | null,
  blobs: BlobStore,
): Promise<Member[]> {
  const base = checkpointId === null ? undefined : await findKeptBase(paths)
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
  for (const { name, fileBytes, read } of sources)
    if (name !== journalName)
      members.push({ name, ...(await blobs.put(read())), ...(fileBytes === undefined ? {} : { fileBytes }) })
  return members
}

/**
 * Makes the folder of a run as it was at its last checkpoint, in the place of whatever this host had of it.
 * @param files what {@link storeRunFiles} listed
 * @throws {CaissonError} `state_corrupted`
 */
export async function restoreRun(
  paths: RunPaths,
  { files, rows }: { readonly files: unknown; readonly rows: AsyncIterable<ReadRow> },
  blobs: BlobStore,
): Promise<void> {
  const { directory, runId } = paths
  const members = RunFiles.safeParse(files ?? [])
  if (!members.success)
    throw new CaissonError('state_corrupted', `the list of the files of ${runId} is damaged`)
  await rm(directory, { recursive: true, force: true })
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await using journal = await open(paths.journal, 'wx', 0o600)
  for await (const { body } of rows) await journal.appendFile(`${body}\n`)
  await journal.sync()
  for (const member of members.data) await restoreMember(directory, member, blobs)
}

async function restoreMember(directory: string, member: Member, blobs: BlobStore): Promise<void> {
  const { name, fileBytes } = member
  const kind = kindOf(name)
  if (kind === undefined || name === journalName || (fileBytes ?? 0) > (kind.maxFileBytes ?? 0))
    throw new CaissonError('state_corrupted', `${JSON.stringify(name)} is no file of a run`)
  const file = path.join(directory, name)
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
  await using handle = await open(file, 'wx', 0o600)
  if (kind.form === 'sparse') await decodeSparse(blobs.get(member), handle, fileBytes ?? 0)
  else for await (const piece of blobs.get(member)) await handle.write(piece)
}

async function textOf(name: string, file: string): Promise<Record<string, string>> {
  return existsSync(file) ? { [name]: await readFile(file, 'utf8') } : {}
}
