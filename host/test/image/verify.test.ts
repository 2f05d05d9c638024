import { readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { checkFiles, describeFiles, verifyFiles } from '../../image/verify.ts'
import { makeScratch } from './support.ts'

async function makeFile(folder: string) {
  const file = path.join(folder, 'root.erofs')
  await writeFile(file, 'the bytes of a root')
  return { file, files: await describeFiles(folder, ['root.erofs']) }
}

it('takes files that are as their manifest says [V.07]', async () => {
  await using scratch = await makeScratch()
  const { files } = await makeFile(scratch.folder)
  await verifyFiles(scratch.folder, files)
  await expect(checkFiles(scratch.folder, files)).resolves.toBeUndefined()
})

it('refuses a changed byte although size and modification time were kept [V.07]', async () => {
  await using scratch = await makeScratch()
  const { file, files } = await makeFile(scratch.folder)
  await verifyFiles(scratch.folder, files)
  const { atime, mtime } = await stat(file)
  await writeFile(file, 'the bytes of a rooT')
  await utimes(file, atime, mtime)
  await expect(checkFiles(scratch.folder, files)).rejects.toMatchObject({
    name: 'ImageError',
    kind: 'image_damaged',
    message: expect.stringMatching(/root\.erofs was changed: sha256 \w+ expected, \w+ seen/),
    remedy: expect.stringContaining('caisson image build'),
  })
})

it('names a file that is missing or has another size [V.07]', async () => {
  await using scratch = await makeScratch()
  const { file, files } = await makeFile(scratch.folder)
  await writeFile(file, 'short')
  await expect(checkFiles(scratch.folder, files)).rejects.toThrow('has 5 bytes; expected 19')
  await rm(file)
  await expect(checkFiles(scratch.folder, files)).rejects.toThrow(`${file} is missing`)
})

it('reads only stamps while nothing changed, and every byte when a stamp did [V.07]', async () => {
  await using scratch = await makeScratch()
  const { file, files } = await makeFile(scratch.folder)
  await verifyFiles(scratch.folder, files)
  const before = await readFile(path.join(scratch.folder, 'stamp.json'), 'utf8')
  await checkFiles(scratch.folder, files)
  expect(await readFile(path.join(scratch.folder, 'stamp.json'), 'utf8')).toBe(before)
  await utimes(file, 1, 1)
  await checkFiles(scratch.folder, files)
  expect(await readFile(path.join(scratch.folder, 'stamp.json'), 'utf8')).not.toBe(before)
})

it('does not trust stamps taken for another manifest [V.07]', async () => {
  await using scratch = await makeScratch()
  const { files } = await makeFile(scratch.folder)
  await verifyFiles(scratch.folder, files)
  const other = { 'root.erofs': { sha256: 'a'.repeat(64), bytes: 19 } }
  await expect(checkFiles(scratch.folder, other)).rejects.toMatchObject({ kind: 'image_damaged' })
})
