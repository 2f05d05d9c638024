import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  comparePaths,
  decodeLatin1Name,
  decodePath,
  encodePath,
  isPathText,
  nameInLine,
  quotePath,
  toSystemPath,
} from '#specs/node/path-text.ts'

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

  it('keeps each character whole beside a byte that is none, from the first to the last of each length [W.02]', () => {
    for (const character of [
      '\u007f',
      '\u0080',
      '\u07ff',
      '\u0800',
      '\ud7ff',
      '\ue000',
      '\uffff',
      '\u{10000}',
      '\u{10ffff}',
    ]) {
      const bytes = Buffer.concat([Buffer.from([0xff]), Buffer.from(character), Buffer.from([0x80])])
      expect(decodePath(bytes)).toBe(`\udcff${character}\udc80`)
      expect(encodePath(`\udcff${character}\udc80`)).toEqual(bytes)
    }
  })

  it('has no bytes for a surrogate that stands for none [S1.08]', () => {
    for (const text of ['\ud800', '\udbff', '\udc7f', '\udd00', '\udfff']) {
      expect(() => encodePath(text), quotePath(text)).toThrow('stands for no byte')
      expect(isPathText(text)).toBe(false)
    }
    expect(encodePath('\udc80\udcff')).toEqual(Buffer.from([0x80, 0xff]))
    expect(toSystemPath('\udcff')).toEqual(Buffer.from([0xff]))
    expect(toSystemPath('é')).toBe('é')
  })

  it('is quoted with every character visible, and only where a reader could mistake the name [S1.08]', () => {
    const hidden = 'a\u200b\u2028\u0007\udc9b.txt'
    expect(quotePath(hidden)).toBe('"a\\u200b\\u2028\\u0007\\udc9b.txt"')
    expect(JSON.parse(quotePath(hidden))).toBe(hidden)
    for (const plain of ['a b.txt', 'é', 'say "hi"']) expect(nameInLine(plain)).toBe(plain)
    for (const odd of [' a', 'a ', '"a"', 'a\nb', '\u200ba', hidden])
      expect(nameInLine(odd)).toBe(quotePath(odd))
  })

  it('orders a directory before what is in it, and that before its siblings [W.02]', () => {
    expect([comparePaths('a/b', 'a0'), comparePaths('a0', 'a/b')].map(Math.sign)).toEqual([-1, 1])
    expect([comparePaths('a.', 'a0'), comparePaths('a0', 'a.')].map(Math.sign)).toEqual([-1, 1])
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
