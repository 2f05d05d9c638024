// Copies of one template draw random values in every way there is, and none may come twice.

import { expect } from 'vitest'
import type { Drawn, Facts } from '../../../agent/test/support/fresh-probe.ts'
import { startWarm } from '../../vm/warm-start.ts'
import { askOverLines } from './lines.ts'
import { imageWithAgent } from './own-agent.ts'
import { makeOwnFolders } from './templates.ts'

const MIB = 1024 * 1024
/** What the guest's clock may be off. */
const CLOCK_MS = 50
const LATER_MS = 200

export interface DrawPlan {
  readonly clones: number
  /** Values of each way in the resumed process itself. */
  readonly values: number
  /** Values of each way in new and old threads and in other programs. */
  readonly valuesElsewhere: number
}

/**
 * Starts copies one after the other, from a template whose agent has drawn in every way that an agent may, and checks that no
 * value comes twice, none is one of the template's, and that the clock is right from the first moment on.
 */
export async function drawFromClones({ clones, values, valuesElsewhere }: DrawPlan): Promise<void> {
  using own = await makeOwnFolders()
  using built = await imageWithAgent('fresh-probe.ts')
  const options = { image: built.image, folders: own.folders, memoryBytes: 512 * MIB }
  const pile = new Pile()
  const deps = {
    warmUp: async (vm: Parameters<typeof askOverLines>[0]) => {
      const ask = askOverLines(vm)
      pile.add((await ask({ op: 'draw', count: 10, cached: false })) as Drawn)
      pile.add((await ask({ op: 'elsewhere', count: 2 })) as Drawn)
    },
  }
  const bootIds = new Set<string>()
  for (let index = 0; index < clones; index += 1) {
    await startWarm(options, deps, async ({ vm, cloned }) => {
      expect(cloned).toBe(true)
      const ask = askOverLines(vm)
      await vm.fresh
      const { machineId, bootId } = await checkClock(ask)
      expect(machineId).toBeNull()
      bootIds.add(bootId)
      pile.add((await ask({ op: 'draw', count: values, cached: true })) as Drawn)
      pile.add((await ask({ op: 'elsewhere', count: valuesElsewhere })) as Drawn)
      await new Promise((resolve) => setTimeout(resolve, LATER_MS))
      await checkClock(ask)
      await vm.stop()
    })
  }
  // The kernel draws it when it is first read.
  expect(bootIds.size).toBe(clones)
  for (const way of ['randomBytes', 'randomUUID', 'getRandomValues'])
    expect(pile.sizeOf(way)).toBe(clones * values + 10)
  for (const way of ['randomInt', 'cachedUUID']) expect(pile.sizeOf(way)).toBe(clones * values)
  for (const way of ['oldWorker', 'newWorker', 'node', 'python', 'shell'])
    expect(pile.sizeOf(way)).toBe(clones * valuesElsewhere + 2)
  expect(pile.sizeOf('ed25519')).toBe(clones + 1)
}

/** The guest read its clock between question and answer; both are the host's. */
async function checkClock(ask: ReturnType<typeof askOverLines>): Promise<Facts> {
  const askedAt = Date.now()
  const facts = (await ask({ op: 'facts' })) as Facts
  expect(facts.nowMs).toBeGreaterThanOrEqual(askedAt - CLOCK_MS)
  expect(facts.nowMs).toBeLessThanOrEqual(Date.now() + CLOCK_MS)
  return facts
}

/** All values seen so far, of whatever way and copy. */
class Pile {
  readonly #seen = new Set<string>()
  readonly #sizes = new Map<string, number>()

  add(drawn: Drawn): void {
    for (const [way, values] of Object.entries(drawn)) {
      for (const value of values) {
        expect(this.#seen.has(value), `${way} gave ${value} twice`).toBe(false)
        this.#seen.add(value)
      }
      this.#sizes.set(way, this.sizeOf(way) + values.length)
    }
  }

  sizeOf(way: string): number {
    return this.#sizes.get(way) ?? 0
  }
}
