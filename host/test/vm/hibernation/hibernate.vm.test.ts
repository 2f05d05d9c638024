import { readdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { findSavedVm, hibernateVm, isMemoryMapped, wakeVm } from '../../../vm/hibernation/hibernate.ts'
import { hashFile } from '../../../vm/hibernation/sparse-file.ts'
import type { StartVmOptions, Vm } from '../../../vm/vm.ts'
import { isRunning, makeTestFolders } from '../../support/vm.ts'
import { type GuestLink, runInGuest, startWarmTestVm, testVmOptions } from '../../support/warm-vm.ts'

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
})
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

/** QEMU then sends a section before the memory, which this host does not read. */
async function sendOtherForm(): Promise<void> {
  await vm.qmp.execute('migrate-set-capabilities', {
    capabilities: [{ capability: 'dirty-bitmaps', state: true }],
  })
}

/** Seconds since 1970 as the guest tells them, less the host's, at most its answer's way off. */
async function clockError(): Promise<number> {
  const seconds = Number(await runInGuest(guest, 'date +%s.%N'))
  return seconds - Date.now() / 1000
}

describe('a VM that is hibernated', () => {
  it.each([
    ['from memory that is mapped', true],
    ['from a state in a form that only QEMU knows', false],
  ])('continues with memory, files and programs %s [V.04]', async (_, isMapped) => {
    const directory = join(home.folders.home, `saved-${isMapped}`)
    if (!isMapped) await sendOtherForm()
    await runInGuest(guest, 'head -c 20000000 /dev/urandom >big; sha256sum big >sum; echo one >/tmp/note')
    const before = await guest.link.ready()
    await guest.link.park()
    const { pid } = vm
    const saved = await hibernateVm(vm, directory)
    expect(await isRunning(pid)).toBe(false)
    expect(await readdir(home.folders.vms)).toEqual([])
    expect(isMemoryMapped(saved.record)).toBe(isMapped)
    expect((await readdir(directory)).includes('memory')).toBe(isMapped)
    await wake(directory)
    expect(await runInGuest(guest, 'sha256sum -c sum; cat /tmp/note')).toBe('big: OK\none\n')
    expect(Math.abs(await clockError())).toBeLessThan(5)
    const after = await guest.link.ready()
    expect(before.ok && after.ok && after.value.processId === before.value.processId).toBe(true)
  })

  it('wakes later when a wake failed before it ran [V.04]', async () => {
    const directory = join(home.folders.home, 'saved-twice')
    await runInGuest(guest, 'echo still here >note')
    await guest.link.park()
    const saved = await hibernateVm(vm, directory)
    const again = { ...options, workspaceDisk: workspaceOf() }
    const other = { ...saved, record: { ...saved.record, qemuVersion: '1.0.0' } }
    await expect(wakeVm(again, other)).rejects.toThrow('saved by QEMU 1.0.0')
    const memory = join(directory, 'memory')
    await rename(memory, `${memory}.whole`)
    await writeFile(memory, 'short')
    await expect(wakeVm(again, saved)).rejects.toThrow('bytes were saved, 5 are there')
    await rename(`${memory}.whole`, memory)
    const scratch = join(directory, 'scratch')
    await rename(scratch, `${scratch}.whole`)
    await writeFile(scratch, 'short')
    await expect(wakeVm(again, saved)).rejects.toThrow('bytes were saved, 5 are there')
    await rename(`${scratch}.whole`, scratch)
    const state = join(directory, 'state')
    await rename(state, `${state}.whole`)
    await writeFile(state, (await readFile(`${state}.whole`)).subarray(0, 100_000))
    await expect(wakeVm(again, saved)).rejects.toThrow('not the one that was written')
    // One that only QEMU can find wrong.
    const believed = { ...saved, record: { ...saved.record, stateSha256: await hashFile(state) } }
    await expect(wakeVm(again, believed)).rejects.toThrow('phase load')
    expect(await readdir(home.folders.vms)).toEqual([])
    await rename(`${state}.whole`, state)
    await wake(directory)
    expect(await runInGuest(guest, 'cat note')).toBe('still here\n')
    // Its disk has moved on: it is not to be found a second time.
    expect(await findSavedVm(directory)).toBeUndefined()
  })

  it('runs on with the time of now when saving breaks off while it stands still [V.04]', async () => {
    const { plan } = vm
    await guest.link.park()
    const folder = { ...plan.folder, sockets: join(home.folders.home, 'gone') }
    const unsaved = hibernateVm({ ...vm, plan: { ...plan, folder } }, join(home.folders.home, 'unsaved'))
    await expect(unsaved).rejects.toThrow('VM could not be saved')
    guest.link.attachPorts(vm.rpc, vm.http)
    expect(await runInGuest(guest, 'cat note')).toBe('still here\n')
    expect(await readdir(home.folders.home)).not.toContain('unsaved.draft')
  })

  it('runs on when it cannot be saved, and loses nothing [V.04]', async () => {
    await runInGuest(guest, 'echo before >kept')
    await guest.link.park()
    const nowhere = join(home.folders.home, 'no', 'such', 'folder')
    await expect(hibernateVm(vm, nowhere)).rejects.toMatchObject({ code: 'vm_failed' })
    guest.link.attachPorts(vm.rpc, vm.http)
    expect(await runInGuest(guest, 'cat kept; echo after')).toBe('before\nafter\n')
  })
})
