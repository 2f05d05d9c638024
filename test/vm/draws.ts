// Copies of one template draw random values in every way there is, and none may come twice.

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect } from 'vitest'
import { askOverLines } from '../../host/test/support/lines.ts'
import { makeOwnFolders } from '../../host/test/support/templates.ts'
import { hibernateVm, wakeVm } from '../../host/vm/hibernation/hibernate.ts'
import { openVm } from '../../host/vm/open-vm.ts'
import type { Vm } from '../../host/vm/vm.ts'
import type { Drawn, Facts } from './agents/fresh-probe.ts'
import { imageWithAgent } from './own-agent.ts'

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
 * value comes twice, none is one of the template's, and that the clock is right from the first moment on. Each copy is then
 * saved and woken, and draws as much again.
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
    await openVm(options, deps, async ({ vm, origin }) => {
      const cloned = origin.from === 'template'
      expect(cloned).toBe(true)
      const ask = askOverLines(vm)
      await vm.fresh
      const { machineId, bootId } = await checkClock(ask)
      expect(machineId).toBeNull()
      bootIds.add(bootId)
      await pile.draw(ask, { values, valuesElsewhere })
      await sleep(LATER_MS)
      await checkClock(ask)
      await using woken = await hibernateAndWake(vm, join(own.folders.home, 'saved'))
      const askAgain = askOverLines(woken)
      await woken.fresh
      expect(await checkClock(askAgain)).toMatchObject({ bootId })
      await pile.draw(askAgain, { values, valuesElsewhere })
    })
  }
  // The kernel draws it when it is first read.
  expect(bootIds.size).toBe(clones)
  const draws = clones * 2
  for (const way of ['randomBytes', 'randomUUID', 'getRandomValues'])
    expect(pile.sizeOf(way)).toBe(draws * values + 10)
  for (const way of ['randomInt', 'cachedUUID']) expect(pile.sizeOf(way)).toBe(draws * values)
  for (const way of ['oldWorker', 'newWorker', 'node', 'python', 'shell'])
    expect(pile.sizeOf(way)).toBe(draws * valuesElsewhere + 2)
  expect(pile.sizeOf('ed25519')).toBe(draws + 1)
}

async function hibernateAndWake(vm: Vm, directory: string): Promise<Vm> {
  const { hasOwnWorkspace: _, ...options } = vm.plan.options
  const saved = await hibernateVm(vm, directory)
  await sleep(LATER_MS)
  const woken = await wakeVm(options, saved)
  await rm(directory, { recursive: true })
  return woken
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

  async draw(ask: ReturnType<typeof askOverLines>, counts: Omit<DrawPlan, 'clones'>): Promise<void> {
    this.add((await ask({ op: 'draw', count: counts.values, cached: true })) as Drawn)
    this.add((await ask({ op: 'elsewhere', count: counts.valuesElsewhere })) as Drawn)
  }

  sizeOf(way: string): number {
    return this.#sizes.get(way) ?? 0
  }
}
