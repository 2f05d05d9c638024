// Trees of agents over the places that a run has: all of them end, whoever waits for whom.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { OwnPlace, Places } from '../../subagents/places.ts'

const never = new AbortController().signal

/** An agent that works, waits for its own, and works again. */
interface Tree {
  readonly ownWork: number
  readonly below: readonly Tree[]
}
const leaf: fc.Arbitrary<Tree> = fc.record({
  ownWork: fc.integer({ min: 0, max: 3 }),
  below: fc.constant([]),
})
const over = (below: fc.Arbitrary<Tree>): fc.Arbitrary<Tree> =>
  fc.record({ ownWork: fc.integer({ min: 0, max: 3 }), below: fc.array(below, { maxLength: 6 }) })

/** Has all agents live; the most at work, and the most between begin and end. */
async function live(size: number, forest: readonly Tree[]): Promise<{ working: number; alive: number }> {
  const places = new Places(size)
  let working = 0
  let alive = 0
  const most = { working: 0, alive: 0 }
  const work = async (turns: number): Promise<void> => {
    most.working = Math.max(most.working, ++working)
    for (let turn = 0; turn <= turns; turn++) await new Promise((resolve) => setImmediate(resolve))
    working--
  }
  const agent = async ({ ownWork, below }: Tree, depth: number): Promise<void> => {
    const place = new OwnPlace(places, depth)
    expect(await place.begin(never)).toBe(true)
    most.alive = Math.max(most.alive, ++alive)
    await work(ownWork)
    await Promise.all(below.map((one) => place.without(() => agent(one, depth + 1), never)))
    if (below.length > 0) await work(ownWork)
    place.end()
    alive--
  }
  await Promise.all(forest.map((tree) => agent(tree, 1)))
  expect(working).toBe(0)
  return most
}

describe('places', () => {
  it('are enough for any tree of agents: no more are at work than there are, and few wait for others [A.07]', async () => {
    const trees = fc.array(over(over(leaf)), { maxLength: 16 })
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 4 }), trees, async (size, forest) => {
        const most = await live(size, forest)
        expect(most.working).toBeLessThanOrEqual(size)
        expect(most.alive).toBeLessThanOrEqual(size * 3)
      }),
      { seed: 16, numRuns: 60 },
    )
  })

  it('are had again by one that began more while it took its own back, once [A.07]', async () => {
    const places = new Places(1)
    const place = new OwnPlace(places, 1)
    await place.begin(never)
    const first = place.without(() => places.take(2, never), never)
    await new Promise((resolve) => setImmediate(resolve))
    const second = place.without(async () => undefined, never)
    places.giveBack()
    await Promise.all([first, second])
    place.end()
    expect(await places.take(1, AbortSignal.timeout(1_000))).toBe(true)
    expect(await places.take(1, AbortSignal.timeout(20))).toBe(false)
  })

  it('go to nobody whose wait was ended [A.07]', async () => {
    const places = new Places(1)
    expect(await places.take(1, never)).toBe(true)
    const ending = new AbortController()
    const waiting = places.take(1, ending.signal)
    const next = places.take(1, never)
    ending.abort()
    expect(await waiting).toBe(false)
    places.giveBack()
    expect(await next).toBe(true)
  })
})
