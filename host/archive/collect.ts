/** What of a run's folder goes into its archive, each part as a stream that leaves known keys out or refuses them. */
import { closeSync, createReadStream, existsSync, openSync, readSync } from 'node:fs'
import { open, readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { CaissonError } from '#specs/errors.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { manifestFile } from '../runs/prepare.ts'
import type { Redaction } from '../secrets/redaction.ts'
import { CheckpointDisk } from '../vm/checkpoints/checkpoint-disk.ts'
import { basesOf } from '../workspace/index.ts'
import { kindOf, memberKinds } from './format.ts'
import type { Extent } from './holes.ts'
import { encodeSparse, findExtents } from './sparse.ts'
import type { Source } from './write-archive.ts'

export interface CollectOptions {
  readonly paths: RunPaths
  /** Of whole lines. */
  readonly journalBytes: number
  /** Texts in the place of files, by name, such as `run.json` without keys. */
  readonly texts: Readonly<Record<string, string>>
  /** The disk of the workspace and the positions of its files. Absent: it is not there. */
  readonly base?: { readonly disk: string; readonly diskFiles: string; readonly usedBytes?: number }
  /** The checkpoint from which the run can be continued. Absent: its disk does not go in. */
  readonly checkpointId?: string
  readonly redaction: Redaction
}

/** In the order of the archive. */
export async function collectSources(options: CollectOptions): Promise<Source[]> {
  const { paths, journalBytes, texts, base, checkpointId, redaction } = options
  const { directory } = paths
  const found: Source[] = []
  const addFile = (name: string, file: string, bytes?: number): void => {
    if (existsSync(file)) found.push(fileSource(name, file, redaction, bytes))
  }
  addFile('journal.jsonl', paths.journal, journalBytes)
  addFile('exchanges.jsonl', paths.exchanges)
  addFile('agent.jsonl', paths.agentLog)
  addFile('console.txt', paths.console)
  addFile('manifest.jsonl', manifestFile(directory))
  for (const name of ['changes.jsonl', 'changes.bin']) addFile(name, path.join(directory, name))
  for (const name of (await readdir(basesOf(directory)).catch(() => [])).sort())
    addFile(`base/${name}`, path.join(basesOf(directory), name))
  if (base !== undefined) {
    addFile('workspace-files.json', base.diskFiles)
    found.push(await sparseSource('workspace.erofs', base.disk, base.usedBytes))
  }
  if (checkpointId !== undefined) found.push(...(await scratchSources(paths.scratch, checkpointId)))
  for (const [name, text] of Object.entries(texts))
    found.push({ name, read: () => redacted(Readable.from([Buffer.from(text)]), redaction) })
  const placeOf = ({ name }: Source) => memberKinds.findIndex((kind) => kind.name.test(name))
  return found.filter((source) => placeOf(source) >= 0).sort((one, other) => placeOf(one) - placeOf(other))
}

/** The disk up to the checkpoint. */
async function scratchSources(scratch: string, checkpointId: string): Promise<Source[]> {
  const disk = await CheckpointDisk.open(scratch, checkpointId)
  const record = `${JSON.stringify({ version: 1, diskBytes: disk.diskBytes, sealed: disk.sealed })}\n`
  const files = ['base.raw', ...disk.sealed.map(({ file }) => file)]
  return [
    { name: 'scratch/disk.json', read: () => Readable.from([Buffer.from(record)]) },
    ...(await Promise.all(files.map((file) => sparseSource(`scratch/${file}`, path.join(scratch, file))))),
  ]
}

function fileSource(name: string, file: string, redaction: Redaction, bytes?: number): Source {
  const range = bytes === undefined ? {} : { end: bytes - 1 }
  const read = () => createReadStream(file, range)
  if (kindOf(name)?.form === 'text') return { name, read: () => redacted(read(), redaction) }
  return { name, read, ...(bytes === undefined ? { file } : {}) }
}

/** Its content is looked for when it is read, and once: a store may have it already. */
async function sparseSource(name: string, file: string, usedBytes?: number): Promise<Source> {
  const { size } = await stat(file)
  let extents: Promise<Extent[]> | undefined
  const read = () => {
    extents ??= findExtents(file, usedBytes)
    return readSparse(file, extents, size)
  }
  return { name, fileBytes: size, file, read }
}

async function* readSparse(file: string, extents: Promise<Extent[]>, size: number): AsyncGenerator<Buffer> {
  const found = await extents
  await using handle = await open(file, 'r')
  yield* encodeSparse(handle, found, size)
}

async function* redacted(pieces: AsyncIterable<Uint8Array>, redaction: Redaction): AsyncGenerator<Buffer> {
  const stream = redaction.stream()
  for await (const piece of pieces) yield stream.push(piece)
  yield stream.end()
}

/**
 * Whatever has a digest in the journal, and every disk, goes as it is or not at all.
 * @throws {CaissonError} `denied` naming the part that holds a key
 */
export async function requireNoKeys(
  sources: readonly Source[],
  runId: string,
  redaction: Redaction,
): Promise<void> {
  for (const { name, read } of sources) {
    if (kindOf(name)?.form === 'text') continue
    if (await holdsKey(read(), redaction))
      throw new CaissonError('denied', `${runId} is not exported: ${name} holds a key or a secret of yours`, {
        remedy:
          'an archive cannot leave it out there; replace the key where it is in use, and export the run then',
      })
  }
}

async function holdsKey(pieces: AsyncIterable<Uint8Array>, redaction: Redaction): Promise<boolean> {
  const stream = redaction.stream()
  let held: Buffer = Buffer.alloc(0)
  for await (const piece of pieces) {
    held = Buffer.concat([held, piece])
    const out = stream.push(piece)
    if (!held.subarray(0, out.length).equals(out)) return true
    held = held.subarray(out.length)
  }
  return !held.equals(stream.end())
}

const superblockAt = 1_024
const blocksField = 36
const erofsBlockBytes = 4_096

/** What of the sparse disk of a workspace has content, by its own account. */
export function usedBytesOf(disk: string): { usedBytes?: number } {
  const fd = openSync(disk, 'r')
  try {
    const field = Buffer.alloc(4)
    readSync(fd, field, 0, 4, superblockAt + blocksField)
    const blocks = field.readUInt32LE(0)
    return blocks === 0 ? {} : { usedBytes: blocks * erofsBlockBytes }
  } finally {
    closeSync(fd)
  }
}
