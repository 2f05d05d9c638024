import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createStreamRedactor, redactText } from '../../gateway/redact.ts'

it('a stream in any pieces is redacted as the whole text would be [G.01]', () => {
  // A small alphabet and a key that overlaps itself make near misses common.
  const text = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 60 })
  const key = fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(text, key, fc.array(fc.integer({ min: 1, max: 7 })), (whole, secret, sizes) => {
      const redactor = createStreamRedactor(secret)
      const out: Buffer[] = []
      let at = 0
      for (const size of [...sizes, whole.length]) {
        out.push(redactor.push(Buffer.from(whole.slice(at, at + size))))
        at += size
      }
      out.push(redactor.end())
      expect(Buffer.concat(out).toString()).toBe(redactText(whole, secret))
    }),
    { numRuns: 2_000, seed: 1 },
  )
})

it('bytes pass unchanged where there is no key [G.01]', () => {
  const redactor = createStreamRedactor(null)
  expect([...redactor.push(Uint8Array.of(1, 2, 255)), ...redactor.end()]).toEqual([1, 2, 255])
})
