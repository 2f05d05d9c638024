// An image out of a recording, also out of one that came with an archive and says what it likes.
import { createHash } from 'node:crypto'
import { appendFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { imageMaxBytes } from '#specs/protocol/image.ts'
import { dataUrl, gif, jpeg, png, webp } from '#specs/testing/images.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { readRecordedImage } from '../../recording/recorded-image.ts'
import { recordImages } from '../support/recorded-images.ts'

const runId = `run-${'a'.repeat(20)}`
const digestOf = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')
const lineOf = (sha256: string, url: string) => `${JSON.stringify({ kind: 'image', sha256, url })}\n`

it('an image that the model got is read by its digest, with type, dimensions and bytes [G.09]', async () => {
  const file = path.join(await temporaryFolder('recording'), 'exchanges.jsonl')
  // Longer than one read of the file.
  const large = Buffer.concat([png(9, 9).subarray(0, 33), Buffer.alloc(700_000, 7), png(9, 9).subarray(33)])
  const images = [
    ['image/png', png(640, 480)],
    ['image/png', large],
    ['image/jpeg', jpeg(32, 16)],
    ['image/gif', gif(3, 4)],
    ['image/webp', webp(5, 6)],
  ] as const
  await recordImages(file, runId, images)
  for (const [type, bytes] of images) {
    const sha256 = digestOf(bytes)
    const read = await readRecordedImage(file, sha256)
    expect(read).toMatchObject({ sha256, type, sizeBytes: bytes.length })
    expect(bytes.equals(read?.bytes ?? Buffer.alloc(0))).toBe(true)
  }
  expect(await readRecordedImage(file, digestOf(png(1, 1)))).toBeNull()
  expect(await readRecordedImage(`${file}.none`, digestOf(png(1, 1)))).toBeNull()
})

it('a recording that lies gives nothing but a whole image with the digest [G.09]', async () => {
  const file = path.join(await temporaryFolder('recording'), 'exchanges.jsonl')
  const picture = png(640, 480)
  const sha256 = digestOf(picture)
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')
  const cut = picture.subarray(0, -4)
  const huge = Buffer.alloc(imageMaxBytes + 1)
  const lines = [
    lineOf(sha256, dataUrl('image/png', png(1, 1))),
    lineOf(sha256, 'https://images.example/a.png'),
    `{"kind":"image","sha256":"${sha256}","url":\n`,
    `{"kind":"image","sha256":"${sha256}","url":"${'A'.repeat(3 * imageMaxBytes)}"}\n`,
    lineOf(digestOf(svg), dataUrl('image/svg+xml', svg)),
    lineOf(digestOf(svg), dataUrl('image/png', svg)),
    lineOf(digestOf(cut), dataUrl('image/png', cut)),
    lineOf(digestOf(huge), dataUrl('image/png', huge)),
    // Its end is not written yet.
    lineOf(sha256, dataUrl('image/png', picture)).trimEnd(),
  ]
  await writeFile(file, lines.join(''))
  for (const bytes of [picture, svg, cut, huge])
    expect(await readRecordedImage(file, digestOf(bytes))).toBeNull()
  await appendFile(file, '\n')
  expect(await readRecordedImage(file, sha256)).toMatchObject({ width: 640, height: 480 })
})
