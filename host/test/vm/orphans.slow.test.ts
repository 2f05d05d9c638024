import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { findProcessesByArgument } from '../../processes/process-identity.ts'
import { probeConfinement } from '../../vm/qemu/confinement.ts'
import { findQemu } from '../../vm/qemu/qemu-programs.ts'
import { processName, sweepDeadVms } from '../../vm/vm-folder.ts'
import type { StartingHostOrder } from '../support/starting-host.ts'
import { StartingHost } from '../support/starting-hosts.ts'
import { makeTestFolders, writeHangingKernel } from '../support/vm.ts'
import { startWarmTestVm, testVmOptions } from '../support/warm-vm.ts'

/** Hosts at once: on a machine that is busy each moment of a start lasts longer, and others lie between. */
const LANES = 5

interface Kill {
  readonly order: StartingHostOrder
  readonly env?: NodeJS.ProcessEnv
  /** After the host has begun. */
  readonly afterMs: number
}

async function killAll(kills: readonly Kill[]): Promise<void> {
  const queue = kills.values()
  const lane = async () => {
    for (const { order, env, afterMs } of queue) {
      const host = await StartingHost.spawn(order, env)
      await sleep(afterMs)
      await host.kill()
    }
  }
  await Promise.all(Array.from({ length: LANES }, lane))
}

/** How long a start takes from its beginning, with as many others as {@link killAll} has. */
async function measureStart(orders: readonly Omit<Kill, 'afterMs'>[]): Promise<number> {
  const times = orders.slice(0, LANES).map(async ({ order, env }) => {
    const host = await StartingHost.spawn(order, env)
    const begun = performance.now()
    await host.untilRunning()
    const took = performance.now() - begun
    await host.kill()
    return took
  })
  return Math.max(...(await Promise.all(times)))
}

/** Moments from the first to somewhat beyond the last of a start, most of them among its first, when processes begin. */
function spread<T extends object>(orders: readonly T[], spanMs: number): (T & { afterMs: number })[] {
  return orders.map((order, index) => ({ ...order, afterMs: 1.2 * spanMs * (index / orders.length) ** 3 }))
}

async function expectGone(names: readonly string[]): Promise<void> {
  const left = async () => (await Promise.all(names.map(findProcessesByArgument))).flat()
  try {
    await expect.poll(left).toEqual([])
  } finally {
    for (const pid of await left()) process.kill(pid, 'SIGKILL')
  }
}

it('leaves no process whenever the host is killed in the start of a QEMU, behind every launcher [V.06]', async () => {
  using home = makeTestFolders()
  const qemu = (await findQemu()) ?? ''
  const kernel = join(home.folders.home, 'hang.bin')
  await writeHangingKernel(kernel)
  const { launchers } = await probeConfinement(qemu)
  for (const [each, launcher] of [...launchers, { kind: 'bare' } as const].entries()) {
    const count = launcher.kind === 'bubblewrap' ? 45 : 15
    const orders = Array.from({ length: count }, (_, index) => {
      const name = `caisson-killed-${process.pid}-${each}-${index}`
      return { order: { kind: 'launcher', name, launcher, qemu, kernel } as const }
    })
    await killAll(spread(orders, await measureStart(orders)))
    await expectGone(orders.map(({ order }) => order.name))
  }
})

it('leaves no process, and folders only that the next start clears, whenever the host is killed in the start of a VM [V.06]', async () => {
  using template = makeTestFolders()
  await (await startWarmTestVm(await testVmOptions(template.folders))).vm.stop()
  await using homes = new AsyncDisposableStack()
  const orders = Array.from({ length: 40 }, () => {
    const { folders } = homes.use(makeTestFolders())
    return {
      folders,
      order: { kind: 'warm' } as const,
      env: { ...process.env, CAISSON_HOME: folders.home },
    }
  })
  await killAll(spread(orders, await measureStart(orders)))
  let begun = 0
  for (const { folders } of orders) {
    const ids = await readdir(folders.vms).catch(() => [])
    begun += ids.length
    await expectGone(ids.map(processName))
    await sweepDeadVms(folders.vms)
    // A folder without a record is one that was being made: of age it goes as well.
    expect((await readdir(folders.vms).catch(() => [])).filter((name) => !name.startsWith('.'))).toEqual([])
  }
  // On a busy machine many hosts are killed before they have a folder.
  expect(begun).toBeGreaterThan(orders.length / 5)
})
