import { describe, expect, it } from 'vitest'
import { parseCompletionRequest } from '../../protocol/completion-request.ts'
import {
  estimateImageTokens,
  imageMaxBytes,
  imageMaxPixels,
  readImage,
  readImageUrl,
} from '../../protocol/image.ts'
import { dataUrl, gif, jpeg, png, webp } from '../../testing/images.ts'

describe('an image of a request', () => {
  it('is PNG, JPEG, WebP or GIF, with its dimensions', () => {
    const types = { 'image/png': png, 'image/jpeg': jpeg, 'image/webp': webp, 'image/gif': gif }
    for (const [type, make] of Object.entries(types)) {
      const bytes = make(640, 480)
      expect(readImage(bytes)).toEqual({
        ok: true,
        value: { type, width: 640, height: 480, sizeBytes: bytes.length },
      })
    }
  })

  it('is refused when truncated, at any length', () => {
    for (const make of [png, jpeg, webp, gif]) {
      const bytes = make(640, 480)
      for (let length = 0; length < bytes.length; length += 1) {
        expect(readImage(bytes.subarray(0, length)).ok).toBe(false)
      }
    }
  })

  it('is refused with something after its end, such as another format', () => {
    for (const make of [png, webp, gif]) {
      expect(readImage(Buffer.concat([make(8, 8), Buffer.from('<script>alert(1)</script>')])).ok).toBe(false)
    }
  })

  it('counts for a GIF the larger of screen and frames, as decoders do', () => {
    const frame = (width: number, height: number) => {
      const bytes = Buffer.from('2c00000000000000000002024c0100', 'hex')
      bytes.writeUInt16LE(width, 5)
      bytes.writeUInt16LE(height, 7)
      return bytes
    }
    const comment = Buffer.from('21fe03616263021f2c00', 'hex')
    const [head, tail] = [gif(1, 1).subarray(0, 13), Buffer.from(';')]
    const made = (...blocks: Buffer[]) => readImage(Buffer.concat([head, ...blocks, tail]))
    expect(made(comment, frame(640, 8), comment, frame(8, 480))).toMatchObject({
      value: { width: 640, height: 480 },
    })
    expect(made(frame(imageMaxPixels + 1, 8)).ok).toBe(false)
    expect(made(frame(8, 8).subarray(0, -1)).ok).toBe(false)
    expect(made(Buffer.from('script'), frame(8, 8)).ok).toBe(false)
  })

  it('may be a JPEG with more behind its end, as phones write; its own dimensions count', () => {
    const first = jpeg(640, 480)
    const both = readImage(Buffer.concat([first, jpeg(8, 8), Buffer.alloc(100)]))
    expect(both).toMatchObject({ value: { width: 640, height: 480, sizeBytes: first.length * 2 + 100 } })
    const filled = Buffer.concat([first.subarray(0, 2), Buffer.from([0xff, 0xff]), first.subarray(2)])
    expect(readImage(filled)).toMatchObject({ value: { width: 640, height: 480 } })
    const withoutScan = Buffer.concat([first.subarray(0, 21), first.subarray(-2)])
    expect(readImage(withoutScan).ok).toBe(false)
  })

  it('counts at least as many tokens as its smallest form, at most as its largest', () => {
    expect(estimateImageTokens({ width: 8, height: 8 })).toBe(258)
    expect(estimateImageTokens({ width: 1_400, height: 700 })).toBe(1_250)
    expect(estimateImageTokens({ width: 8_000, height: 8_000 })).toBe(16_384)
  })

  it('is refused when a side has no pixels or too many, or when it has too many bytes', () => {
    expect(readImage(png(0, 8)).ok).toBe(false)
    expect(readImage(png(8, imageMaxPixels)).ok).toBe(true)
    expect(readImage(png(8, imageMaxPixels + 1))).toMatchObject({
      error: expect.stringContaining(`8x${imageMaxPixels + 1}`),
    })
    expect(readImage(png(2 ** 32 - 1, 2 ** 32 - 1)).ok).toBe(false)
    expect(readImage(Buffer.alloc(imageMaxBytes + 1)).ok).toBe(false)
  })

  it('is a data URL whose type is that of its bytes', () => {
    expect(readImageUrl(dataUrl('image/png', png(8, 8))).ok).toBe(true)
    const refused = [
      dataUrl('image/jpeg', png(8, 8)),
      dataUrl('image/png', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')),
      dataUrl('image/svg+xml', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')),
      dataUrl('text/html', png(8, 8)),
      'data:image/png;base64,****',
      'data:image/png;base64,',
      'https://example.com/a.png',
      'file:///etc/passwd',
      `${dataUrl('image/png', png(8, 8))}${'A'.repeat(2 * imageMaxBytes)}`,
    ]
    for (const url of refused) expect(readImageUrl(url).ok, url.slice(0, 60)).toBe(false)
  })

  it('is accepted in messages of the user alone; a remote address is refused by name', () => {
    const parse = (role: string, url: string) =>
      parseCompletionRequest(
        Buffer.from(
          JSON.stringify({ messages: [{ role, content: [{ type: 'image_url', image_url: { url } }] }] }),
        ),
      )
    expect(parse('user', dataUrl('image/png', png(8, 8))).ok).toBe(true)
    expect(parse('system', dataUrl('image/png', png(8, 8))).ok).toBe(false)
    expect(parse('user', 'https://example.com/a.png').ok).toBe(false)
  })
})
