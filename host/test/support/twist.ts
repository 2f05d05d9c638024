/** Hostile values in the place of good ones, the same for the same seed. */

/** What a terminal would obey or hide; a line feed alone is none. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones that must not be there
export const controls = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b\u202e]/
const escapes = '\u001b[2J\u001b]0;owned\u0007\u009b31m\r\n\u202e\u200b'
const texts = [
  escapes,
  `a${escapes}b`,
  '../../etc/passwd',
  '/etc/passwd',
  '__proto__',
  'constructor',
  'root/1',
  '',
  'x'.repeat(500),
  '$(touch owned)',
  '-rf',
  '{"a":1}',
  '[['.repeat(100),
  'run-00000000000000000009',
  'last',
]
const numbers = [0, -1, 1, 0.5, 1e308, Number.MAX_SAFE_INTEGER, 8.64e15 + 1, Number.NaN]

/** The same numbers for the same seed. */
export function dice(seed: number) {
  let state = seed
  return (below: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return (state >> 8) % below
  }
}
export type Dice = ReturnType<typeof dice>

/** A value with some of what it holds exchanged. */
export function twist(value: unknown, roll: Dice): unknown {
  const isHit = roll(4) === 0
  if (typeof value === 'string') return isHit ? texts[roll(texts.length)] : value
  if (typeof value === 'number') return isHit ? numbers[roll(numbers.length)] : value
  if (Array.isArray(value)) {
    const items = value.map((item) => twist(item, roll))
    return isHit ? [...items, ...items, ...items] : items
  }
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).map(([key, inner]) => [key, twist(inner, roll)] as const)
  return Object.fromEntries(entries)
}
