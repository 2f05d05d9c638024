/** Writes an archive: each member is read twice, to hash it and to write it, so nothing is staged. */
import { createHash } from 'node:crypto'
import type { Writable } from 'node:stream'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { constants, createZstdCompress } from 'node:zlib'
import { CaissonError } from '#specs/errors.ts'
import { encodeEnd, encodeEntry, encodePadding } from '../control/tar.ts'
import { type ArchiveManifest, encodeManifest, type Member, manifestName } from './format.ts'

/** A member that can be read again and again with the same result. */
export interface Source {
  readonly name: string
  /** Of a sparse file. */
  readonly fileBytes?: number
  /** Path of the file that all of it comes from, unchanged or as a sparse one. Absent: it has another origin. */
  readonly file?: string
  read(): AsyncIterable<Uint8Array>
}

/** The size and digest of a source. */
export async function describeSource({ name, fileBytes, read }: Source): Promise<Member> {
  const hash = createHash('sha256')
  let bytes = 0
  for await (const piece of read()) {
    hash.update(piece)
    bytes += piece.byteLength
  }
  return { name, bytes, sha256: hash.digest('hex'), ...(fileBytes === undefined ? {} : { fileBytes }) }
}

/** @throws {CaissonError} `run_busy` when a file changed meanwhile @throws what `to` fails with */
export async function writeArchive(
  manifest: ArchiveManifest,
  sources: readonly Source[],
  to: Writable,
  signal?: AbortSignal,
): Promise<void> {
  const compress = createZstdCompress({
    params: {
      [constants.ZSTD_c_compressionLevel]: 3,
      // Whoever reads it learns of damage at once.
      [constants.ZSTD_c_checksumFlag]: 1,
    },
  })
  const options = signal === undefined ? {} : { signal }
  await pipeline(Readable.from(entries(manifest, sources)), compress, to, options)
}

async function* entries(manifest: ArchiveManifest, sources: readonly Source[]): AsyncGenerator<Uint8Array> {
  const encoded = encodeManifest(manifest)
  yield head(manifestName, encoded.length)
  yield encoded
  yield encodePadding(encoded.length)
  for (const [index, { name, bytes }] of manifest.members.entries()) {
    yield head(name, bytes)
    let left = bytes
    for await (const piece of sources[index]?.read() ?? []) {
      left -= piece.byteLength
      if (left < 0) break
      yield piece
    }
    if (left !== 0)
      throw new CaissonError(
        'run_busy',
        `${name} of ${manifest.runId} changed while it was exported; export it again`,
      )
    yield encodePadding(bytes)
  }
  yield encodeEnd()
}

function head(path: string, size: number): Buffer {
  return encodeEntry({ path, type: 'file', mode: 0o600, mtimeMs: 0, size, target: '' })
}
