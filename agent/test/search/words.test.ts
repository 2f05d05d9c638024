import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { openStore } from '../../search/store.ts'
import { matchOf, prepareText } from '../../search/words.ts'

/** Which of the texts a query finds, the best first. */
async function found(query: string, texts: readonly string[]): Promise<number[]> {
  using store = await openStore()
  store.begin()
  for (const [index, text] of texts.entries()) store.add(index, 'x', prepareText(text))
  store.commit()
  const match = matchOf(query)
  return match === null ? [] : [...store.find(match)]
}

describe('names of code', () => {
  it.each([
    ['readFile', 'function readFile(path)'],
    ['readfile', 'function readFile(path)'],
    ['read_file', 'function readFile(path)'],
    ['read file', 'function readFile(path)'],
    ['readFile', 'def read_file(path):'],
    ['read-file', 'def read_file(path):'],
    ['file', 'class HTTPFileServer'],
    ['http', 'class HTTPFileServer'],
    ['HTTPFileServer', 'the http file server'],
    ['server', 'const { fileServer } = this'],
    ['decoder', 'utf8Decoder.decode(bytes)'],
    ['überlauf', 'if (speicherÜberlauf) {'],
    ['SpeicherUberlauf', 'if (speicherÜberlauf) {'],
    ['retry', 'for (const retries of [1, 2])'],
  ])('%s is found in %s [S0.14]', async (query, text) => {
    expect(await found(query, ['something else', text, 'more of it'])).toEqual([1])
  })

  it('stand before their parts alone, and the rarer word before the common one [S0.14]', async () => {
    const texts = [
      'read the budget of a file',
      'await readFile(path)',
      'read read read',
      'the tokens',
      'of a',
    ]
    expect((await found('readFile', texts))[0]).toBe(1)
    expect((await found('read the tokens', texts))[0]).toBe(3)
  })

  it('have their parts behind the text, in their order, each as often as it is there [S0.14]', () => {
    expect(prepareText('readFile(a, HTTPServer, readFile, utf8Decoder)')).toBe(
      'readFile(a, HTTPServer, readFile, utf8Decoder)\nread File\nHTTP Server\nread File\nutf8 Decoder',
    )
    expect(prepareText('größeÄndern readFile')).toBe('größeÄndern readFile\ngröße Ändern\nread File')
    expect(prepareText(`${'aB'.repeat(50)} plain UPPER lower_case`)).not.toContain('\n')
    fc.assert(
      fc.property(fc.string({ maxLength: 200 }), (text) => {
        expect(prepareText(text, false)).toBe(prepareText(text))
      }),
      { numRuns: 500, seed: 14 },
    )
  })

  it('of one letter after another, and of megabytes, are prepared in little time [S0.14]', () => {
    const started = process.cpuUsage()
    for (const text of ['aB'.repeat(500_000), 'a'.repeat(1_000_000), `${'A'.repeat(100)}b`.repeat(10_000)])
      expect(prepareText(text).startsWith(text)).toBe(true)
    // Linear: what is quadratic takes minutes.
    expect(process.cpuUsage(started).user / 1e6).toBeLessThan(20)
  })
})

describe('a query', () => {
  it('takes what the index has for syntax as words [S0.14]', async () => {
    const texts = ['NEAR the AND gate', 'path : text', 'star * and "quote"', 'not here']
    for (const query of [
      'NEAR(',
      '"the gate',
      'AND OR NOT',
      'path:text',
      'star*',
      '^path',
      '{a b}: c',
      'a + b',
      '-path',
    ])
      expect(Array.isArray(await found(query, texts))).toBe(true)
    expect(await found('text:path', texts)).toEqual([1])
    expect(await found('gate*', texts)).toEqual([0])
    expect(await found('"star quote"', texts)).toEqual([2])
  })

  it('of common words alone asks for those, and without a letter or digit for nothing [S0.14]', async () => {
    expect(matchOf('where is it')).toBe('"where" OR "is" OR "it"')
    expect(matchOf('where is the budget')).toBe('"budget"')
    expect(matchOf(' -- "*" \u0000 ')).toBeNull()
  })

  it('of any text never fails in the index [S0.14, T.02]', async () => {
    using store = await openStore()
    store.add(1, 'a/b', 'some text NEAR AND')
    const piece = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 30 }),
      fc.constantFrom(
        '"',
        '*',
        'NEAR(',
        ' AND ',
        'OR',
        'NOT',
        'text:',
        '{',
        '}',
        '^',
        '+',
        '-',
        '\0',
        '\ud800',
        '(',
        ')',
      ),
      fc.string({ unit: 'grapheme', maxLength: 20 }),
    )
    await fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
        const match = matchOf(pieces.join(''))
        if (match !== null) expect(() => [...store.find(match)]).not.toThrow()
      }),
      { numRuns: 1_000, seed: 14 },
    )
  })
})
