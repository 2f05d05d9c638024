import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { warmUp } from '../../host/runs/guest/warm-up.ts'
import { makeOwnFolders } from '../../host/test/support/templates.ts'
import { openTestLink } from '../../host/test/support/warm-vm.ts'
import { openVm } from '../../host/vm/open-vm.ts'
import type { Vm } from '../../host/vm/vm.ts'
import type { DrawCounts } from './agents/count-draws.ts'
import { imageWithAgent } from './own-agent.ts'

const MIB = 1024 * 1024

describe('copies of one template', () => {
  it('run an agent that draws nothing before they are fresh, and never from what stays the same [V.03]', async () => {
    using own = await makeOwnFolders()
    using built = await imageWithAgent('counting-main.ts')
    const options = { image: built.image, folders: own.folders, memoryBytes: 512 * MIB }
    const template: Awaited<ReturnType<typeof meetAgent>>[] = []
    const deps = {
      warmUp: async (vm: Vm) => {
        await warmUp(vm)
        template.push(await meetAgent(vm, false))
        vm.rpc.resume()
        await once(vm.rpc, 'data')
        await sleep(300)
      },
    }
    const [first, second] = [await meetClone(options, deps), await meetClone(options, deps)]
    const [{ processId, counts } = { processId: '', counts: undefined }] = template
    // The template's agent has drawn its first identity: the counting works.
    expect(counts?.ever.randomBytes).toBeGreaterThan(0)
    for (const clone of [first, second]) {
      expect(clone.early.counts.stale).toEqual(counts?.stale)
      expect(clone.late.counts.stale).toEqual(counts?.stale)
      for (const way of ['Math.random', 'randomUUID', 'randomInt'])
        expect(Object.keys(clone.late.counts.ever)).not.toContain(way)
      expect(clone.late.processId).toBe(clone.early.processId)
    }
    expect(new Set([processId, first.early.processId, second.early.processId]).size).toBe(3)
  })
})

/** What the agent of a copy says of itself in its first session, and in one after it is fresh. */
async function meetClone(
  options: Parameters<typeof openVm>[0],
  deps: Parameters<typeof openVm>[1],
): Promise<Record<'early' | 'late', Awaited<ReturnType<typeof meetAgent>>>> {
  return await openVm(options, deps, async ({ vm, origin }) => {
    const cloned = origin.from === 'template'
    expect(cloned).toBe(true)
    const early = await meetAgent(vm, true)
    await vm.fresh
    const late = await meetAgent(vm, false)
    await vm.stop()
    return { early, late }
  })
}

async function meetAgent(vm: Vm, cloned: boolean) {
  const { link } = openTestLink(vm, cloned)
  const ready = await link.ready({ timeoutMs: 60_000 })
  link.close()
  if (!ready.ok) throw new Error(ready.error.message)
  const { processId, lastExit = '' } = ready.value
  return { processId, counts: JSON.parse(lastExit.slice(lastExit.indexOf('{'))) as DrawCounts }
}
