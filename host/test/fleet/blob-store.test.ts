import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { type Blob, DirectoryBlobs } from '../../fleet/blob-store.ts'

async function* piecesOf(...texts: string[]): AsyncGenerator<Buffer> {
  for (const text of texts) yield Buffer.from(text)
}

async function textOf(pieces: AsyncIterable<Buffer>): Promise<string> {
  const found: Buffer[] = []
  for await (const piece of pieces) found.push(piece)
  return Buffer.concat(found).toString()
}

const placeOf = (folder: string, { sha256 }: Blob) => path.join(folder, sha256.slice(0, 2), sha256)

it('gives the content that was put, and leaves no draft', async () => {
  const folder = await temporaryFolder('blobs')
  const blobs = new DirectoryBlobs(folder)
  const blob = await blobs.put(piecesOf('one ', 'two'))
  expect(blob).toEqual({ sha256: createHash('sha256').update('one two').digest('hex'), bytes: 7 })
  expect(await textOf(blobs.get(blob))).toBe('one two')
  const failing = (async function* () {
    yield Buffer.from('begun')
    throw new Error('the source ended')
  })()
  await expect(blobs.put(failing)).rejects.toThrow('the source ended')
  expect(await readdir(folder)).toEqual([blob.sha256.slice(0, 2)])
})

it('a content that is put again is whole again, also where a damaged file has its size', async () => {
  const folder = await temporaryFolder('blobs')
  const blobs = new DirectoryBlobs(folder)
  const blob = await blobs.put(piecesOf('content'))
  await writeFile(placeOf(folder, blob), 'CONTENT')
  await expect(textOf(blobs.get(blob))).rejects.toMatchObject({ code: 'state_corrupted' })
  expect(await blobs.put(piecesOf('content'))).toEqual(blob)
  expect(await textOf(blobs.get(blob))).toBe('content')
})

it('refuses a larger or smaller file before it gives any of it, and what is no file without waiting', async () => {
  const folder = await temporaryFolder('blobs')
  const blobs = new DirectoryBlobs(folder)
  const blob = await blobs.put(piecesOf('content'))
  const place = placeOf(folder, blob)
  const given: Buffer[] = []
  const read = async () => {
    for await (const piece of blobs.get(blob)) given.push(piece)
  }
  // A file of a terabyte, which takes no room.
  await truncate(place, 2 ** 40)
  await expect(read()).rejects.toMatchObject({ code: 'state_corrupted' })
  await truncate(place, 3)
  await expect(read()).rejects.toMatchObject({ code: 'state_corrupted' })
  await rm(place)
  execFileSync('mkfifo', [place])
  await expect(read()).rejects.toMatchObject({ code: 'state_corrupted' })
  await rm(place)
  await mkdir(place)
  await expect(read()).rejects.toMatchObject({ code: 'state_corrupted' })
  expect(given).toEqual([])
})

it('a host that may write no more of a file says so', async () => {
  const folder = await temporaryFolder('blobs')
  // The system writes a part of the last piece, and fails at the next one alone.
  const program = `
    import { DirectoryBlobs } from ${JSON.stringify(new URL('../../fleet/blob-store.ts', import.meta.url))}
    const put = new DirectoryBlobs(${JSON.stringify(folder)}).put([Buffer.alloc(100_000)])
    await put.then(({ bytes }) => console.log('stored ' + bytes), ({ code }) => console.log(code))`
  const words = `ulimit -f 64; exec "$0" --conditions=caisson-source --input-type=module -e "$1"`
  const said = execFileSync('bash', ['-c', words, process.execPath, program], { encoding: 'utf8' })
  expect(said).toBe('EFBIG\n')
  expect(
    existsSync(
      placeOf(folder, { sha256: createHash('sha256').update(Buffer.alloc(100_000)).digest('hex'), bytes: 0 }),
    ),
  ).toBe(false)
})

it('names lead to no other place', async () => {
  const folder = await temporaryFolder('blobs')
  const blobs = new DirectoryBlobs(path.join(folder, 'blobs'))
  const secret = path.join(folder, 'secret')
  await writeFile(secret, 'secret')
  for (const sha256 of ['../secret', `${'a'.repeat(63)}/`, ''])
    await expect(textOf(blobs.get({ sha256, bytes: 6 }))).rejects.toThrow()
  await symlink(secret, path.join(folder, 'link'))
  expect(await readFile(secret, 'utf8')).toBe('secret')
})
