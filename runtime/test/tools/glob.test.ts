import fc from 'fast-check'
import { expect, it } from 'vitest'
import { matchesGlob } from '../../tools/glob.ts'

it.each([
  ['a.ts', '*.ts', true],
  ['src/deep/a.ts', '*.ts', true],
  ['src/a.tsx', '*.ts', false],
  ['src/a.ts', 'src/*.ts', true],
  ['src/deep/a.ts', 'src/*.ts', false],
  ['src/deep/er/a.ts', 'src/**/*.ts', true],
  ['src/a.ts', 'src/**/*.ts', true],
  ['src/a.ts', './src/a.??', true],
  ['src/a.ts', '**', true],
  ['😀.ts', '?.ts', true],
  ['a[b].ts', 'a[b].ts', true],
])('%s by %s: %s [S2.15]', (path, pattern, fits) => {
  expect(matchesGlob(path, pattern)).toBe(fits)
})

it('comes to an end whatever the pattern: going back over all of its stars would not [S2.15]', () => {
  expect(matchesGlob(`${'a'.repeat(4_000)}b`, `${'*a'.repeat(200)}*c`)).toBe(false)
  expect(matchesGlob(`${'a/'.repeat(2_000)}b`, `${'**/a/'.repeat(200)}**/c`)).toBe(false)
})

it('agrees with the plain meaning of its stars [S2.15]', () => {
  const letters = fc.string({ unit: fc.constantFrom('a', 'b', '/'), maxLength: 8 })
  const pattern = fc.string({ unit: fc.constantFrom('a', 'b', '*', '?'), maxLength: 6 })
  fc.assert(
    fc.property(letters, pattern, (path, text) => {
      const name = path.slice(path.lastIndexOf('/') + 1)
      const plain = new RegExp(`^${text.replaceAll('*', '.*').replaceAll('?', '.')}$`)
      expect(matchesGlob(path, text)).toBe(plain.test(name))
    }),
    { seed: 11, numRuns: 500 },
  )
})
