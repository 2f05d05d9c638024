import { open, truncate } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { makeSparseFile, sampleFile } from '../../../vm/hibernation/sparse-file.ts'

const MiB = 1024 ** 2

/** A disk of a GiB with little on it. */
async function disk(): Promise<string> {
  const file = path.join(await temporaryFolder('sample'), 'scratch')
  await makeSparseFile(file, 1024 * MiB)
  await write(file, 0, Buffer.alloc(MiB, 1))
  return file
}

async function write(file: string, at: number, bytes: Buffer): Promise<void> {
  await using handle = await open(file, 'r+')
  await handle.write(bytes, 0, bytes.length, at)
}

describe('the sample of a saved file', () => {
  it('is the same for the same content [V.04]', async () => {
    const file = await disk()
    expect(await sampleFile(file)).toEqual(await sampleFile(file))
    expect(await sampleFile(file)).toMatchObject({ bytes: 1024 * MiB })
  })

  it.each([
    ['cut by a byte', (file: string) => truncate(file, 1024 * MiB - 1)],
    ['emptied', (file: string) => truncate(file, 0)],
    ['overwritten at its beginning', (file: string) => write(file, 10, Buffer.from('x'))],
    ['overwritten at its end', (file: string) => write(file, 1024 * MiB - 1, Buffer.from('x'))],
    [
      'overwritten for 16 MiB in its midst',
      (file: string) => write(file, 333 * MiB, Buffer.alloc(16 * MiB, 7)),
    ],
  ])('is another one of a file that was %s [V.04]', async (_, harm) => {
    const file = await disk()
    const before = await sampleFile(file)
    await harm(file)
    expect(await sampleFile(file)).not.toEqual(before)
  })

  it('sees every byte of a small file [V.04]', async () => {
    const file = path.join(await temporaryFolder('sample'), 'small')
    await makeSparseFile(file, MiB)
    const before = await sampleFile(file)
    for (let at = 0; at < MiB; at += 37_003) {
      await write(file, at, Buffer.from('x'))
      expect(await sampleFile(file), `byte ${at}`).not.toEqual(before)
      await write(file, at, Buffer.alloc(1))
    }
  })
})
