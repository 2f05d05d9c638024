/** Counts what this process draws at random. */

/** Way of drawing to how often. */
export interface DrawCounts {
  /** While the clock stood in the time of the template. */
  readonly stale: Readonly<Record<string, number>>
  readonly ever: Readonly<Record<string, number>>
}

type Functions = Record<string, ((...args: unknown[]) => unknown) | undefined>

const STALE_BEFORE_MS = Date.UTC(2002)
const WAYS = [
  'randomBytes',
  'pseudoRandomBytes',
  'randomFill',
  'randomFillSync',
  'randomInt',
  'randomUUID',
  'generateKeyPair',
  'generateKeyPairSync',
  'generateKey',
  'generateKeySync',
]

/** To be called before anything draws. @returns the counts, which continue */
export function countDraws(): DrawCounts {
  const counts = { stale: {} as Record<string, number>, ever: {} as Record<string, number> }
  const note = (way: string) => {
    counts.ever[way] = (counts.ever[way] ?? 0) + 1
    if (Date.now() < STALE_BEFORE_MS) counts.stale[way] = (counts.stale[way] ?? 0) + 1
  }
  for (const way of WAYS) replace(process.getBuiltinModule('node:crypto'), way, () => note(way))
  for (const way of ['getRandomValues', 'randomUUID'])
    replace(Object.getPrototypeOf(globalThis.crypto), way, () => note(way))
  replace(Math, 'random', () => note('Math.random'))
  return counts
}

function replace(owner: object, name: string, before: () => void): void {
  const functions = owner as Functions
  const original = functions[name]
  if (original === undefined) return
  functions[name] = function (this: unknown, ...args: unknown[]) {
    before()
    return original.apply(this, args)
  }
}
