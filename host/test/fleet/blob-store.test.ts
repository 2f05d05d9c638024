import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, symlink, truncate, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { type Blob, type Content, ContentChanged, DirectoryBlobs } from '../../fleet/blob-store.ts'

const contentOf = (...texts: string[]): Content =>
  async function* () {
    for (const text of texts) yield Buffer.from(text)
  }

function describeText(text: string): Blob {
  return { sha256: createHash('sha256').update(text).digest('hex'), bytes: Buffer.byteLength(text) }
}

async function textOf(pieces: AsyncIterable<Buffer>): Promise<string> {
  const found: Buffer[] = []
  for await (const piece of pieces) found.push(piece)
  return Buffer.concat(found).toString()
}

const placeOf = (folder: string, { sha256 }: Blob) => path.join(folder, sha256.slice(0, 2), sha256)

it('gives the content that was written, and leaves no draft', async () => {
  const folder = await temporaryFolder('blobs')
  const store = new DirectoryBlobs(folder)
  const blob = describeText('one two')
  const { sha256: name } = blob
  expect(await store.has(name, 7)).toBe(false)
  // What follows is not of it, as of a file that grows.
  await store.write(name, blob, contentOf('one ', 'two', ' three'))
  expect(await textOf(store.read(name, blob))).toBe('one two')
  expect([await store.has(name, 7), await store.has(name, 8)]).toEqual([true, false])
  const failing: Content = async function* () {
    yield Buffer.from('one')
    throw new Error('the source ended')
  }
  await expect(store.write(name, blob, failing)).rejects.toThrow('the source ended')
  for (const other of ['one', 'one TWO'])
    await expect(store.write(name, blob, contentOf(other))).rejects.toThrow(ContentChanged)
  expect(await textOf(store.read(name, blob))).toBe('one two')
  expect(await readdir(folder)).toEqual([name.slice(0, 2)])
  await store.remove(name)
  await store.remove(name)
  expect(await store.has(name, 7)).toBe(false)
})

it('a content that is written again is whole again, also where a damaged file has its size', async () => {
  const folder = await temporaryFolder('blobs')
  const store = new DirectoryBlobs(folder)
  const blob = describeText('content')
  await store.write(blob.sha256, blob, contentOf('content'))
  await writeFile(placeOf(folder, blob), 'CONTENT')
  await expect(textOf(store.read(blob.sha256, blob))).rejects.toMatchObject({ code: 'state_corrupted' })
  await store.write(blob.sha256, blob, contentOf('content'))
  expect(await textOf(store.read(blob.sha256, blob))).toBe('content')
})

it('refuses a larger or smaller file before it gives any of it, and what is no file without waiting', async () => {
  const folder = await temporaryFolder('blobs')
  const store = new DirectoryBlobs(folder)
  const blob = describeText('content')
  await store.write(blob.sha256, blob, contentOf('content'))
  const place = placeOf(folder, blob)
  const given: Buffer[] = []
  const read = async () => {
    for await (const piece of store.read(blob.sha256, blob)) given.push(piece)
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

it('removes the draft of a process that ended, and leaves one that is written', async () => {
  const folder = await temporaryFolder('blobs')
  for (const name of ['.draft-old', '.draft-new']) await writeFile(path.join(folder, name), '')
  const now = Date.now()
  await utimes(path.join(folder, '.draft-old'), new Date(now), new Date(now - 25 * 3_600_000))
  await new DirectoryBlobs(folder).removeDrafts(now)
  expect(await readdir(folder)).toEqual(['.draft-new'])
})

it('a host that may write no more of a file says so', async () => {
  const folder = await temporaryFolder('blobs')
  const zeros = createHash('sha256').update(Buffer.alloc(100_000)).digest('hex')
  // The system writes a part of the last piece, and fails at the next one alone.
  const program = `
    import { DirectoryBlobs } from ${JSON.stringify(new URL('../../fleet/blob-store.ts', import.meta.url))}
    const blob = ${JSON.stringify({ sha256: zeros, bytes: 100_000 })}
    const writing = new DirectoryBlobs(${JSON.stringify(folder)}).write(blob.sha256, blob, () => [Buffer.alloc(100_000)])
    await writing.then(() => console.log('stored'), ({ code }) => console.log(code))`
  const words = `ulimit -f 64; exec "$0" --conditions=caisson-source --input-type=module -e "$1"`
  const said = execFileSync('bash', ['-c', words, process.execPath, program], { encoding: 'utf8' })
  expect(said).toBe('EFBIG\n')
  expect(existsSync(placeOf(folder, { sha256: zeros, bytes: 0 }))).toBe(false)
})

it('names lead to no other place', async () => {
  const folder = await temporaryFolder('blobs')
  const store = new DirectoryBlobs(path.join(folder, 'blobs'))
  const secret = path.join(folder, 'secret')
  await writeFile(secret, 'secret')
  for (const name of ['../secret', `${'a'.repeat(63)}/`, '', `${'a'.repeat(64)}-../../secret`]) {
    await expect(textOf(store.read(name, describeText('secret')))).rejects.toThrow()
    await expect(store.remove(name)).rejects.toThrow()
    await expect(store.has(name, 6)).rejects.toThrow()
  }
  await symlink(secret, path.join(folder, 'link'))
  expect(await readFile(secret, 'utf8')).toBe('secret')
})
