// Compares files with their manifest: in full, or in full only when a file's stamp changed since it was last
// compared (design D9). A stamp is device, inode, size and times: it catches accidents, not an owner who forges times.

import { createHash, randomBytes } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { z } from 'zod'
import { damaged, type FileEntry, isMissing } from './manifest.ts'

const Stamps = z.record(z.string(), z.string())
const STAMP_FILE = 'stamp.json'

type FileTable = Readonly<Record<string, FileEntry>>

/** sha256 in hex of a file's bytes. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(file, { highWaterMark: 1024 * 1024 }), hash)
  return hash.digest('hex')
}

/** Digest and size of each named file in `directory`. */
export async function describeFiles<Name extends string>(
  directory: string,
  names: readonly Name[],
): Promise<Record<Name, FileEntry>> {
  const entries = names.map(async (name) => {
    const file = path.join(directory, name)
    return [name, { sha256: await hashFile(file), bytes: (await stat(file)).size }] as const
  })
  return Object.fromEntries(await Promise.all(entries)) as Record<Name, FileEntry>
}

/**
 * Compares every byte of `files` in `directory` and remembers the stamps.
 * @throws {ImageError} `image_damaged`, naming the file, what was expected and what was seen
 */
export async function verifyFiles(directory: string, files: FileTable): Promise<void> {
  // Stamps are taken before the bytes are read: a change in between shows at the next start.
  const stamps = await stampAll(directory, files)
  for (const [name, { sha256, bytes }] of Object.entries(files)) {
    const file = path.join(directory, name)
    const { size } = await stat(file)
    if (size !== bytes) throw damaged(directory, `${file} has ${size} bytes; expected ${bytes}`)
    const seen = await hashFile(file)
    if (seen !== sha256)
      throw damaged(directory, `${file} was changed: sha256 ${sha256} expected, ${seen} seen`)
  }
  await saveStamps(directory, stamps)
}

/** Like {@link verifyFiles}, but reads only stamps when they are those of the last comparison with this manifest. */
export async function checkFiles(directory: string, files: FileTable): Promise<void> {
  const [seen, known] = await Promise.all([stampAll(directory, files), loadStamps(directory)])
  const same = known !== undefined && Object.keys(seen).every((name) => seen[name] === known[name])
  if (!same) await verifyFiles(directory, files)
}

async function stampAll(directory: string, files: FileTable): Promise<Record<string, string>> {
  const stamps = Object.entries(files).map(async ([name, { sha256 }]) => {
    const file = path.join(directory, name)
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true }).catch(
      (cause: unknown) => {
        throw damaged(directory, isMissing(cause) ? `${file} is missing` : `${file} cannot be read`, {
          cause,
        })
      },
    )
    return [name, [dev, ino, size, mtimeNs, ctimeNs, sha256].join(' ')] as const
  })
  return Object.fromEntries(await Promise.all(stamps))
}

async function loadStamps(directory: string): Promise<Record<string, string> | undefined> {
  try {
    return Stamps.parse(JSON.parse(await readFile(path.join(directory, STAMP_FILE), 'utf8')))
  } catch {
    return undefined
  }
}

/** A folder that cannot be written (a shared, read-only cache) costs a full comparison at every start, no more. */
async function saveStamps(directory: string, stamps: Record<string, string>): Promise<void> {
  const temporary = path.join(directory, `.${STAMP_FILE}.${randomBytes(6).toString('hex')}`)
  try {
    await writeFile(temporary, JSON.stringify(stamps), { mode: 0o600 })
    await rename(temporary, path.join(directory, STAMP_FILE))
  } catch {
    await rm(temporary, { force: true }).catch(() => undefined)
  }
}
