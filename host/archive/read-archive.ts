/**
 * Unpacks an archive into an empty folder. Every byte of it is hostile: the manifest says what follows, and what is
 * another is refused. Nothing is written before its size is known to be within its bound.
 */
import { createHash } from 'node:crypto'
import { mkdir, open, statfs } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { constants, createZstdDecompress } from 'node:zlib'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { TarReader } from '../control/tar.ts'
import { formatBytes } from '../files/format.ts'
import {
  type ArchiveManifest,
  decodeManifest,
  invalidArchive,
  kindOf,
  type Member,
  manifestMaxBytes,
  manifestName,
} from './format.ts'
import { decodeSparse } from './sparse.ts'

export interface UnpackOptions {
  /** Bytes of all members together. */
  readonly maxBytes: number
  readonly signal?: AbortSignal
}

/** Left free on the disk. */
const reserveBytes = 256 * 1024 ** 2
/** A window of 128 MiB; ours are smaller. */
const windowLogMax = 27

/**
 * @param to an empty folder of this user alone
 * @throws {CaissonError} `invalid_archive`, `no_space`, `limit_reached`; then files are left in the folder
 */
export async function unpackArchive(
  from: Readable,
  to: string,
  options: UnpackOptions,
): Promise<ArchiveManifest> {
  const unzip = createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: windowLogMax } })
  const { signal } = options
  const onAbort = (): void => void unzip.destroy(signal?.reason)
  signal?.addEventListener('abort', onAbort, { once: true })
  from.once('error', (error) => unzip.destroy(error))
  try {
    signal?.throwIfAborted()
    if (from.errored !== null) throw from.errored
    return await unpack(from.pipe(unzip), to, options)
  } catch (error) {
    signal?.throwIfAborted()
    throw asRefusal(error)
  } finally {
    signal?.removeEventListener('abort', onAbort)
    from.unpipe(unzip)
    unzip.destroy()
  }
}

async function unpack(stream: Readable, to: string, { maxBytes }: UnpackOptions): Promise<ArchiveManifest> {
  const tar = new TarReader(stream)
  const manifest = decodeManifest(await readManifest(tar))
  await requireSpace(manifest.members, to, maxBytes)
  for (const member of manifest.members) {
    const entry = await tar.next()
    if (entry?.path !== member.name || entry.type !== 'file' || entry.size !== member.bytes)
      throw invalidArchive(`${JSON.stringify(member.name)} is not where its manifest says`)
    await writeMember(tar, member, to)
  }
  if ((await tar.next()) !== null) throw invalidArchive('it has more files than its manifest names')
  return manifest
}

async function readManifest(tar: TarReader): Promise<Buffer> {
  const first = await tar.next()
  if (first?.path !== manifestName || first.type !== 'file' || first.size > manifestMaxBytes)
    throw invalidArchive('it does not begin with a manifest; expected a file of caisson runs export')
  const pieces: Buffer[] = []
  for await (const piece of tar.content()) pieces.push(Buffer.from(piece))
  return Buffer.concat(pieces)
}

async function requireSpace(members: readonly Member[], to: string, maxBytes: number): Promise<void> {
  const bytes = members.reduce((sum, member) => sum + member.bytes, 0)
  if (bytes > maxBytes)
    throw new CaissonError(
      'limit_reached',
      `the archive has ${formatBytes(bytes)}, expected at most ${formatBytes(maxBytes)}; raise kept.maxGiB in the configuration`,
    )
  const { bavail, bsize } = await statfs(to)
  if (bavail * bsize < bytes + reserveBytes)
    throw new CaissonError(
      'no_space',
      `the archive needs ${formatBytes(bytes)} in ${to}, but ${formatBytes(bavail * bsize)} are free; remove runs: caisson clean --runs --older-than 30d --yes`,
    )
}

async function writeMember(tar: TarReader, { name, sha256, fileBytes }: Member, to: string): Promise<void> {
  const file = path.join(to, name)
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
  const hash = createHash('sha256')
  async function* hashed(): AsyncGenerator<Buffer> {
    for await (const piece of tar.content()) {
      hash.update(piece)
      yield piece
    }
  }
  {
    await using handle = await open(file, 'wx', 0o600)
    if (kindOf(name)?.form === 'sparse') await decodeSparse(hashed(), handle, fileBytes ?? 0)
    else for await (const piece of hashed()) await handle.appendFile(piece)
    await handle.sync()
  }
  if (hash.digest('hex') !== sha256) throw invalidArchive(`${name} was changed or damaged`)
}

/** The tar reader speaks of the VM, and zlib of its own. */
function asRefusal(error: unknown): unknown {
  if (hasCode(error, 'protocol_violation')) return invalidArchive('its entries cannot be read', error)
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  if (
    code.startsWith('ZSTD') ||
    code.startsWith('Z_') ||
    code.startsWith('ERR_ZSTD') ||
    code === 'ERR_STREAM_PREMATURE_CLOSE'
  )
    return invalidArchive(`it cannot be unpacked: ${errorMessage(error)}`, error)
  return error
}
