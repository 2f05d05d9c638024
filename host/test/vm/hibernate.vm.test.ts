import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { findSavedVm, HibernationError, hibernateVm, prepareWake, wakeVm } from '../../vm/hibernate.ts'
import type { StartVmOptions, Vm } from '../../vm/vm.ts'
import { isRunning, makeTestFolders } from '../support/vm.ts'
import { type GuestLink, runInGuest, startWarmTestVm, testVmOptions } from '../support/warm-vm.ts'

const home = makeTestFolders()
let options: StartVmOptions
let vm: Vm
let guest: GuestLink
beforeAll(async () => {
  options = await testVmOptions(home.folders)
  const started = await startWarmTestVm(options)
  vm = started.vm
  guest = started
  const opened = await guest.link.request(workspaceOpen, {}, { timeoutMs: 30_000 })
  expect(opened).toMatchObject({ ok: true })
}, 120_000)
afterAll(async () => {
  guest.link.close()
  await vm.stop()
  home[Symbol.dispose]()
})

async function wake(directory: string): Promise<void> {
  const saved = await findSavedVm(directory)
  if (saved === undefined) throw new Error('nothing was saved')
  vm = await wakeVm({ ...options, workspaceDisk: workspaceOf() }, saved)
  await vm.fresh
  guest.link.attachPorts(vm.rpc, vm.http)
  expect(await guest.link.ready({ timeoutMs: 30_000 })).toMatchObject({ ok: true })
}

/** The drive of the VM that was saved: here a template's empty one. */
function workspaceOf(): string {
  const { workspaceDisk } = vm.plan.options
  if (workspaceDisk === undefined) throw new Error('the VM has no workspace drive')
  return workspaceDisk
}

/** Seconds since 1970 as the guest tells them, less the host's, at most its answer's way off. */
async function clockError(): Promise<number> {
  const seconds = Number(await runInGuest(guest, 'date +%s.%N'))
  return seconds - Date.now() / 1000
}

describe('a VM that is hibernated', () => {
  it.each([
    ['from the file it was saved to', false],
    ['from memory that was laid out meanwhile', true],
  ])(
    'goes on with memory, files and programs %s [V.04]',
    async (_, prepared) => {
      const directory = join(home.folders.home, `saved-${prepared}`)
      await runInGuest(guest, 'head -c 20000000 /dev/urandom >big; sha256sum big >sum; echo one >/tmp/note')
      const before = await guest.link.ready()
      guest.link.detachPorts()
      const { pid } = vm
      const saved = await hibernateVm(vm, directory)
      expect(await isRunning(pid)).toBe(false)
      expect(await readdir(home.folders.vms)).toEqual([])
      if (prepared) await prepareWake({ ...options, workspaceDisk: workspaceOf() }, saved)
      await wake(directory)
      expect(await runInGuest(guest, 'sha256sum -c sum; cat /tmp/note')).toBe('big: OK\none\n')
      expect(Math.abs(await clockError())).toBeLessThan(5)
      const after = await guest.link.ready()
      expect(before.ok && after.ok && after.value.processId === before.value.processId).toBe(true)
    },
    120_000,
  )

  it('runs on when it cannot be saved, and loses nothing [V.04]', async () => {
    await runInGuest(guest, 'echo before >kept')
    guest.link.detachPorts()
    const nowhere = join(home.folders.home, 'no', 'such', 'folder')
    await expect(hibernateVm(vm, nowhere)).rejects.toThrow(HibernationError)
    guest.link.attachPorts(vm.rpc, vm.http)
    expect(await runInGuest(guest, 'cat kept; echo after')).toBe('before\nafter\n')
  }, 60_000)
})
