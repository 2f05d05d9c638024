import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ImageManifest, readImageManifest } from '../../image/manifest.ts'
import { makeScratch } from './support.ts'

const file = { sha256: '0'.repeat(64), bytes: 1 }
const good: ImageManifest = {
  manifestVersion: 1,
  key: 'a'.repeat(64),
  arch: 'amd64',
  files: { vmlinuz: file, initramfs: file, 'root.erofs': file, 'sbom.cdx.json': file },
  versions: { debian: 'bookworm', kernel: '6.1', node: '24', python: '3.11' },
  packages: { bash: '5' },
  inputs: { 'build.sh': 'b'.repeat(64) },
}

describe('the manifest', () => {
  it('is read back as it was written, and its absence is no error [V.07]', async () => {
    await using scratch = await makeScratch()
    expect(await readImageManifest(scratch.folder, ImageManifest)).toBeUndefined()
    await writeFile(path.join(scratch.folder, 'manifest.json'), JSON.stringify(good))
    expect(await readImageManifest(scratch.folder, ImageManifest)).toEqual(good)
  })

  it.each([
    ['an unknown field', { ...good, extra: 1 }],
    ['a file with a path of its own', { ...good, files: { ...good.files, '../../etc/passwd': file } }],
    ['a digest that is none', { ...good, key: 'A'.repeat(64) }],
    ['no files', { ...good, files: {} }],
    ['a negative size', { ...good, files: { ...good.files, vmlinuz: { ...file, bytes: -1 } } }],
  ])('is refused with %s [V.07]', async (_, manifest) => {
    await using scratch = await makeScratch()
    await writeFile(path.join(scratch.folder, 'manifest.json'), JSON.stringify(manifest))
    await expect(readImageManifest(scratch.folder, ImageManifest)).rejects.toMatchObject({
      kind: 'image_damaged',
    })
  })

  it('is refused, with a message and not a crash, whatever bytes it holds [V.07]', async () => {
    await using scratch = await makeScratch()
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.json().map((text) => Buffer.from(text)),
    )
    await fc.assert(
      fc.asyncProperty(bytes, async (content) => {
        await writeFile(path.join(scratch.folder, 'manifest.json'), content)
        await expect(readImageManifest(scratch.folder, ImageManifest)).rejects.toMatchObject({
          kind: 'image_damaged',
        })
      }),
      { seed: 7, numRuns: 200 },
    )
  })

  it('is refused unread when it is huge [V.07]', async () => {
    await using scratch = await makeScratch()
    await writeFile(path.join(scratch.folder, 'manifest.json'), ' '.repeat(1024 * 1024 + 1))
    await expect(readImageManifest(scratch.folder, ImageManifest)).rejects.toThrow('too large')
  })
})
