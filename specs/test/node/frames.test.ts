// The frame reader against whole, cut, broken and hostile bytes.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  encodeFrame,
  encodePayload,
  FrameDecoder,
  type FrameEnd,
  FrameTooLongError,
} from '#specs/node/frames.ts'
import { encodePreamble } from '#specs/node/preamble.ts'

const bounds = { maxBytes: 4_096, maxDepth: 8 }

/** What comes out of the decoder for these chunks. */
function decode(chunks: Iterable<Buffer>): { values: unknown[]; end: FrameEnd | null } {
  const values: unknown[] = []
  let end: FrameEnd | null = null
  const decoder = new FrameDecoder(
    (value) => values.push(value),
    (reason) => {
      expect(end).toBeNull()
      end = reason
    },
    bounds,
  )
  for (const chunk of chunks) decoder.push(chunk)
  return { values, end }
}

function frameOf(payload: string | Buffer, count = 0): Buffer {
  return encodePayload(Buffer.from(payload as string), count)
}

function cut(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const pieces: Buffer[] = []
  for (let offset = 0, turn = 0; offset < bytes.length; turn++) {
    const size = sizes[turn % sizes.length] ?? 1
    pieces.push(bytes.subarray(offset, offset + size))
    offset += size
  }
  return pieces
}

const json = fc.jsonValue({ maxDepth: 5 }).filter((value) => JSON.stringify(value).length < 1_000)
const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 6 })

describe('frames', () => {
  it('come out as they went in, however the bytes are cut [C.01]', () => {
    const noPrototype = json.filter((value) => !JSON.stringify(value).includes('__proto__'))
    fc.assert(
      fc.property(fc.array(noPrototype, { maxLength: 8 }), sizes, (values, pieces) => {
        const bytes = Buffer.concat(values.map((value, count) => encodeFrame(value, count)))
        const wanted = values.map((value) => JSON.parse(JSON.stringify(value)) as unknown)
        expect(decode(cut(bytes, pieces))).toEqual({ values: wanted, end: null })
      }),
      { seed: 1, numRuns: 200 },
    )
  })

  it('keep lone surrogates, by which names that are not UTF-8 travel [W.02]', () => {
    expect(decode([encodeFrame('a\udc80b', 0)]).values).toEqual(['a\udc80b'])
  })

  it.each([
    ['empty_frame', frameOf('')],
    ['too_long', frameOf('"'.padEnd(bounds.maxBytes + 1, 'x'))],
    ['too_long', Buffer.from([0x7f, 0, 0, 0])],
    ['bad_utf8', frameOf(Buffer.from([0x22, 0xc3, 0x28, 0x22]), 1)],
    ['bad_json', frameOf('{"a":', 1)],
    ['bad_json', frameOf('\ufeff{}', 1)],
    ['too_deep', frameOf('['.repeat(9) + ']'.repeat(9), 1)],
    ['too_deep', frameOf('{"a":'.repeat(600), 1)],
    ['forbidden_key', frameOf('{"__proto__":{"a":1}}', 1)],
    ['forbidden_key', frameOf('{"b":[{"\\u005f_pro\\u0074o__":1}]}', 1)],
    ['bad_check', frameOf('{"a":1}', 0)],
    ['bad_check', frameOf('{"a":1}', 2)],
    ['session_replaced', encodePreamble('ab'.repeat(16))],
  ])('end as %s and deliver nothing more [C.01]', (fault, bytes) => {
    const good = encodeFrame({ good: true }, 0)
    for (const pieces of [[bytes.length + 99], [1]]) {
      const { values, end } = decode(cut(Buffer.concat([good, bytes, good]), pieces))
      expect(values).toEqual([{ good: true }])
      expect(end?.fault).toBe(fault)
    }
  })

  it('do not count brackets inside strings as depth [C.01]', () => {
    const value = { text: '[[[[[[[[[[[["\\{{{{{{{{{{{{' }
    expect(decode([encodeFrame(value, 0)])).toEqual({ values: [value], end: null })
  })

  it('see a preamble at once, also in the middle of a frame that will never be complete [C.01]', () => {
    const preamble = encodePreamble('cd'.repeat(16))
    const frame = frameOf(`"${'x'.repeat(300)}"`)
    for (let length = 0; length < 40; length++) {
      const { end } = decode([Buffer.concat([frame.subarray(0, length), preamble])])
      expect(['session_replaced', 'too_long']).toContain(end?.fault)
      expect(end?.unread.includes(preamble)).toBe(true)
    }
  })

  it('end the session wherever bytes or frames are lost, doubled or changed on their way [C.01, R.02]', () => {
    const values = Array.from({ length: 6 }, (_, index) => ({ index, text: 'x'.repeat(index * 9) }))
    const bytes = Buffer.concat(values.map((value, count) => encodeFrame(value, count)))
    const at = fc.integer({ min: 0, max: bytes.length - 1 })
    const kind = fc.constantFrom('lose', 'double', 'change')
    fc.assert(
      fc.property(at, fc.integer({ min: 1, max: 60 }), kind, sizes, (start, length, fault, pieces) => {
        const piece = Buffer.from(bytes.subarray(start, start + length))
        const changed = { lose: [], double: [piece, piece], change: [piece.map((byte) => byte ^ 1)] }[fault]
        const sent = Buffer.concat([
          bytes.subarray(0, start),
          ...changed,
          bytes.subarray(start + piece.length),
          // What comes next, so that a loss at the end is noticed.
          encodeFrame({ next: true }, values.length),
          Buffer.alloc(5_000, '0'),
        ])
        const { values: got, end } = decode(cut(sent, pieces))
        // Doubling equal bytes, such as of a run of x, is still a change of length.
        expect(end).not.toBeNull()
        expect(got).toEqual(values.slice(0, got.length))
      }),
      { seed: 3, numRuns: 1_000 },
    )
  })

  it('never throw, whatever the bytes are [C.01]', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 64 }), { maxLength: 20 }), sizes, (chunks, pieces) => {
        const bytes = Buffer.concat(chunks)
        const whole = decode([bytes])
        const pieced = decode(cut(bytes, pieces))
        expect(pieced.values).toEqual(whole.values)
        expect(pieced.end?.fault).toBe(whole.end?.fault)
      }),
      { seed: 2, numRuns: 500 },
    )
  })

  it('cost time in proportion to their size when they come byte by byte [C.01]', () => {
    const run = (bytes: number): number => {
      const frame = frameOf(`"${'x'.repeat(bytes)}"`)
      const big = { maxBytes: 2 ** 20, maxDepth: 8 }
      let got = 0
      const decoder = new FrameDecoder(
        () => got++,
        () => {},
        big,
      )
      // Of this thread alone: what else the machine does is not counted.
      const before = process.threadCpuUsage()
      for (let index = 0; index < frame.length; index++) decoder.push(frame.subarray(index, index + 1))
      expect(got).toBe(1)
      const { user, system } = process.threadCpuUsage(before)
      return user + system
    }
    // Long enough for the small one to have its share of compiling and collecting.
    run(64_000)
    const [small, large] = [64_000, 1_024_000].map((bytes) => Math.min(run(bytes), run(bytes), run(bytes)))
    // Sixteen times the bytes; a quadratic reader would take 256 times as long.
    expect((large ?? 0) / Math.max(1, small ?? 0)).toBeLessThan(80)
  })

  it('are refused when they would be too long, with nothing written [C.01]', () => {
    expect(() => encodeFrame('x'.repeat(100), 0, 50)).toThrow(FrameTooLongError)
  })
})
