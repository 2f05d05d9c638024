import fc from 'fast-check'
import { expect, it } from 'vitest'
import { createKeyRedaction, createRedaction, type Redaction, redactForms } from '../../secrets/redaction.ts'

/** The text as a stream of pieces of these sizes. */
function stream(redaction: Redaction, whole: string, sizes: readonly number[]): string {
  const redactor = redaction.stream()
  const bytes = Buffer.from(whole)
  const out: Buffer[] = []
  let at = 0
  for (const size of [...sizes, bytes.length]) {
    out.push(redactor.push(bytes.subarray(at, at + size)))
    at += size
  }
  out.push(redactor.end())
  return Buffer.concat(out).toString()
}

// A small alphabet, and forms that overlap themselves and one another, make near misses common.
const letters = (minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom('a', 'b', 'ü'), minLength, maxLength })
const sizes = fc.array(fc.integer({ min: 1, max: 7 }))

it('a stream in any pieces is redacted as the whole text is, for any set of forms [G.01, G.04]', () => {
  fc.assert(
    fc.property(
      letters(0, 60),
      fc.array(letters(1, 6), { minLength: 1, maxLength: 4 }),
      sizes,
      (text, forms, cuts) => {
        const redaction = redactForms(forms)
        const whole = redaction.text(text)
        expect(stream(redaction, text, cuts)).toBe(whole)
        const rest = whole.split('[redacted]')
        for (const form of forms) expect(rest.some((part) => part.includes(form))).toBe(false)
      },
    ),
    { numRuns: 3_000, seed: 1 },
  )
})

it('a key is taken out in each form in which a server echoes it, wherever the stream is cut [G.01]', () => {
  const key = fc.string({
    unit: fc.constantFrom(...'abcXYZ0189-_+/=.'),
    minLength: 12,
    maxLength: 40,
  })
  const encodings: readonly ((text: string) => string)[] = [
    (text) => text,
    (text) => Buffer.from(text).toString('base64'),
    (text) => Buffer.from(`Bearer ${text}`).toString('base64'),
    (text) => Buffer.from(`user:${text}:x`).toString('base64url'),
    (text) => Buffer.from(text).toString('hex'),
    (text) => Buffer.from(text).toString('hex').toUpperCase(),
    (text) => [...text].reverse().join(''),
    encodeURIComponent,
    (text) => JSON.stringify(text),
  ]
  fc.assert(
    fc.property(key, fc.nat(encodings.length - 1), fc.nat(), sizes, (secret, which, place, cuts) => {
      const echoed = encodings[which]?.(secret) ?? ''
      const around = '{"error":{"message":"no such key: '
      const at = place % around.length
      const answer = stream(
        createKeyRedaction(secret),
        `${around.slice(0, at)} ${echoed} ${around.slice(at)}`,
        cuts,
      )
      expect(answer).toContain('[redacted]')
      // Of base64 at most the characters that hold bits of what stands beside the key are left.
      for (let from = 0; from + 12 <= echoed.length; from += 1)
        expect(answer).not.toContain(echoed.slice(from, from + 12))
    }),
    { numRuns: 1_500, seed: 2 },
  )
})

it('bytes pass unchanged where there is no key', () => {
  const redactor = createKeyRedaction(null).stream()
  expect([...redactor.push(Uint8Array.of(1, 2, 255)), ...redactor.end()]).toEqual([1, 2, 255])
})

it('bytes that are not UTF-8 pass unchanged beside a key', () => {
  const redactor = createRedaction(['secret-of-a-server']).stream()
  const bytes = Buffer.concat([Buffer.of(0xff, 0xc3), Buffer.from('secret-of-a-server'), Buffer.of(0x80)])
  expect(Buffer.concat([redactor.push(bytes), redactor.end()])).toEqual(
    Buffer.concat([Buffer.of(0xff, 0xc3), Buffer.from('[redacted]'), Buffer.of(0x80)]),
  )
})

it('what cannot be the beginning of a secret passes at once; what can is held to the end, and left out where more was cut off [G.01]', () => {
  const redaction = createRedaction(['secret-of-a-server'])
  const redactor = redaction.stream()
  expect(redactor.push(Buffer.from('hello')).toString()).toBe('hello')
  expect(redactor.push(Buffer.from(', my sec')).toString()).toBe(', my ')
  expect(redactor.end().toString()).toBe('sec')
  expect(redaction.bytes(Buffer.from('my sec'), false).toString()).toBe('my sec')
  expect(redaction.bytes(Buffer.from('my sec'), true).toString()).toBe('my ')
})
