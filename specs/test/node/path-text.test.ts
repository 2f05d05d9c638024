import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { comparePaths, decodeLatin1Name, decodePath, encodePath, isPathText } from '#specs/node/path-text.ts'

describe('path text', () => {
  it('gives any bytes back and accepts its own texts [W.02]', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
        const buffer = Buffer.from(bytes)
        const text = decodePath(buffer)
        expect(encodePath(text)).toEqual(buffer)
        expect(isPathText(text)).toBe(true)
        expect(decodeLatin1Name(buffer.toString('latin1'))).toBe(text)
      }),
      { numRuns: 1000, seed: 1 },
    )
  })

  it('has one text for one path: escapes that spell UTF-8 are refused [S1.08]', () => {
    expect(decodePath(Buffer.from([0xff, 0x61]))).toBe('\udcffa')
    expect(isPathText('\udcc3\udca9')).toBe(false)
    expect(isPathText('\ud800')).toBe(false)
    expect(isPathText('\udc41')).toBe(false)
    expect(isPathText('plain/é')).toBe(true)
  })

  it('orders a directory before what is in it, and that before its siblings [W.02]', () => {
    expect(['a-b', 'a/c', 'a', 'b', 'a/c/d', 'a0'].sort(comparePaths)).toEqual([
      'a',
      'a/c',
      'a/c/d',
      'a-b',
      'a0',
      'b',
    ])
  })
})
