import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { GuestVm } from '../../../runs/guest/guest-vm.ts'
import type { VmExit } from '../../../vm/vm.ts'
import { makeTestFolders, waitUntilGone } from '../../support/vm.ts'
import { startWarmTestVm, testVmOptions } from '../../support/warm-vm.ts'

const home = makeTestFolders()
afterAll(() => home[Symbol.dispose]())

/** A VM as a run has it, that nobody speaks with. */
async function startGuestVm(signal?: AbortSignal) {
  const options = await testVmOptions(home.folders)
  const started = await startWarmTestVm({ ...options, ...(signal === undefined ? {} : { signal }) })
  started.link.close()
  const exits: VmExit[] = []
  const { workspaceDisk } = started.vm.plan.options
  const guest = new GuestVm(started.vm, workspaceDisk ?? '', {
    onExit: (exit) => exits.push(exit),
    onDiskFull: () => undefined,
  })
  return { vm: started.vm, guest, exits }
}

describe('the VM of a run', () => {
  it('is reported as lost when its process is killed while it is being saved [V.04]', async () => {
    const { vm, guest, exits } = await startGuestVm()
    const slept = guest.sleep(join(home.folders.home, 'hibernated'))
    process.kill(vm.pid, 'SIGKILL')
    await expect(slept).rejects.toMatchObject({ code: 'vm_failed' })
    expect(exits).toMatchObject([{ reason: 'killed' }])
    await guest.stop()
    expect((await readdir(home.folders.home)).filter((name) => name.startsWith('hibernated'))).toEqual([])
  })

  it('ends at once, saved or not, when the run is ended while it is being saved [V.04]', async () => {
    const stopper = new AbortController()
    const { vm, guest, exits } = await startGuestVm(stopper.signal)
    const slept = guest.sleep(join(home.folders.home, 'hibernated')).catch(() => undefined)
    stopper.abort(new Error('ended'))
    await slept
    expect(await waitUntilGone(vm.pid)).toBe(true)
    await guest.stop()
    expect(exits.length).toBeLessThan(2)
    expect((await readdir(home.folders.home)).filter((name) => name.startsWith('hibernated'))).toEqual([])
    expect(await readdir(home.folders.vms)).toEqual([])
  })

  it('leaves nothing when it is stopped in the middle of its waking up [V.04]', async () => {
    const { guest } = await startGuestVm()
    await guest.sleep(join(home.folders.home, 'hibernated'))
    const woken = guest.wake()
    await guest.stop()
    expect(await woken).toBeUndefined()
    await guest.stop()
    expect(await readdir(home.folders.vms)).toEqual([])
    expect((await readdir(home.folders.home)).filter((name) => name.startsWith('hibernated'))).toEqual([])
  })
})
