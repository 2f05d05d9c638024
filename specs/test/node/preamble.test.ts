// Finding the beginning of a session among bytes of others.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodePreamble, PreambleHunter, preambleBytes } from '#specs/node/preamble.ts'

const session = fc
  .uint8Array({ minLength: 16, maxLength: 16 })
  .map((bytes) => Buffer.from(bytes).toString('hex'))
const noise = fc.oneof(
  fc.uint8Array({ maxLength: 60 }),
  fc.constantFrom(
    Uint8Array.of(0xff, 0xff, 0xff),
    Buffer.from('CAISSON1'),
    encodePreamble('00'.repeat(16)).subarray(0, 20),
  ),
)

describe('the preamble', () => {
  it('is found after any bytes of an earlier session, however they are cut [C.03]', () => {
    fc.assert(
      fc.property(
        noise,
        session,
        fc.uint8Array({ maxLength: 30 }),
        fc.integer({ min: 1, max: 50 }),
        (before, id, after, size) => {
          const bytes = Buffer.concat([before, encodePreamble(id), after])
          const hunter = new PreambleHunter()
          let rest: Buffer | null = null
          for (let offset = 0; offset < bytes.length; offset += size) {
            let chunk: Buffer = bytes.subarray(offset, offset + size)
            if (rest !== null) rest = Buffer.concat([rest, chunk])
            while (rest === null && chunk.length > 0) {
              const found = hunter.push(chunk)
              if (found?.session === id) rest = Buffer.from(found.rest)
              chunk = found?.again ?? Buffer.alloc(0)
            }
          }
          expect(rest).toEqual(Buffer.from(after))
        },
      ),
      { seed: 3, numRuns: 300 },
    )
  })

  it('has a fixed length and refuses what is no session [C.03]', () => {
    expect(encodePreamble('0f'.repeat(16))).toHaveLength(preambleBytes)
    expect(() => encodePreamble('xyz')).toThrow(RangeError)
  })
})
