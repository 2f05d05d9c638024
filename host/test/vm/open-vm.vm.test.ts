import { readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { findProcessesByArgument } from '../../processes/process-identity.ts'
import { GuestUnresponsiveError, openVm, type StartedVm } from '../../vm/open-vm.ts'
import { sealTemplate } from '../../vm/template/template.ts'
import { TemplateFailures } from '../../vm/template/template-failures.ts'
import { type TemplateInfo, TemplateStore } from '../../vm/template/template-store.ts'
import type { StartVmOptions, Vm } from '../../vm/vm.ts'
import { processName } from '../../vm/vm-folder.ts'
import { awaitHello, makeOwnFolders, writeTemplate } from '../support/templates.ts'
import { isRunning, waitUntilGone } from '../support/vm.ts'
import { openTestLink, testVmOptions } from '../support/warm-vm.ts'

let own: Awaited<ReturnType<typeof makeOwnFolders>>
let options: StartVmOptions
let store: TemplateStore
beforeAll(async () => {
  own = await makeOwnFolders()
  options = await testVmOptions(own.folders)
  store = new TemplateStore(own.folders.cache)
})
afterAll(() => own[Symbol.dispose]())

/** Starts a VM, meets its agent, ends it; `during` runs when the VM runs and is not fresh yet. */
async function start(during: (vm: Vm) => unknown = () => undefined) {
  const told: string[] = []
  const deps = { warmUp: awaitHello, onProgress: (text: string) => void told.push(text) }
  const begun = await openVm(options, deps, async ({ vm, origin }: StartedVm) => {
    const { from, coldReason } = origin
    const cloned = from === 'template'
    await during(vm)
    const { link } = openTestLink(vm, cloned)
    const ready = await Promise.race([link.ready({ timeoutMs: 60_000 }), vm.fresh.then(() => undefined)])
    await vm.fresh
    const met = ready ?? (await link.ready({ timeoutMs: 60_000 }))
    link.close()
    if (!met.ok) throw new GuestUnresponsiveError(met.error.message)
    const { timings, pid } = vm
    await vm.stop()
    return { cloned, coldReason, timings, pid }
  })
  expect(await readdir(own.folders.vms)).toEqual([])
  return { ...begun, told }
}

async function onlyTemplate(): Promise<TemplateInfo> {
  const [template, ...more] = await store.list()
  if (template === undefined || more.length > 0) throw new Error(`${more.length} templates more`)
  expect(template.problem).toBeUndefined()
  return template
}

/** Progress of a template that is made. */
const making = [
  'template (made once, 1 of 3): booting a VM',
  'template (2 of 3): warming up its agent',
  'template (3 of 3): saving the VM',
]

describe('a warm start', () => {
  it('makes a template once, clears away one of long ago, and then begins from it with its memory mapped [V.01]', async () => {
    const { directory: old } = await writeTemplate(own.folders.cache, 'f'.repeat(32))
    const longAgo = new Date(Date.now() - 8 * 24 * 60 * 60 * 1000)
    await utimes(join(old, 'used'), longAgo, longAgo)
    const first = await start()
    expect(first).toMatchObject({ cloned: true, told: making })
    const { record } = await onlyTemplate()
    expect(record?.kind).toBe('mapped')
    const second = await start()
    expect(second).toMatchObject({ cloned: true, told: [] })
    expect(second.timings.loadMs).toBeGreaterThan(0)
    expect(second.timings.kernelMs).toBeUndefined()
    expect((await onlyTemplate()).record).toEqual(record)
    // Many times faster than what made it, unless the machine was at something else just then.
    const third = await start()
    const quickest = Math.min(second.timings.totalMs, third.timings.totalMs)
    expect(quickest * 4).toBeLessThan(record?.tookMs ?? 0)
  })

  it('continues from the same template when its QEMU is killed before the state is loaded [V.01 V.06]', async () => {
    const { record } = await onlyTemplate()
    let wasInTime = false
    for (let tries = 0; tries < 20 && !wasInTime; tries += 1) {
      const over = new AbortController()
      const killing = killNextVm(over.signal)
      const ran: string[] = []
      expect(await start((vm) => ran.push(vm.id))).toMatchObject({ cloned: true, told: [] })
      over.abort()
      const killed = await killing
      if (killed !== undefined) expect(await waitUntilGone(killed.pid)).toBe(true)
      expect((await onlyTemplate()).record).toEqual(record)
      wasInTime = killed !== undefined && !ran.includes(killed.id)
    }
    expect(wasInTime).toBe(true)
  })

  it('continues from the same template when its QEMU is killed before the guest is fresh [V.01 V.03 V.06]', async () => {
    const { record } = await onlyTemplate()
    const pids: number[] = []
    const begun = await start((vm) => {
      if (pids.push(vm.pid) === 1) process.kill(vm.pid, 'SIGKILL')
    })
    expect(begun).toMatchObject({ cloned: true, told: [] })
    expect(pids).toHaveLength(2)
    expect((await Promise.all(pids.map(isRunning))).includes(true)).toBe(false)
    expect((await onlyTemplate()).record).toEqual(record)
  })

  it('makes the template anew when QEMU cannot load what every check of files lets pass [V.01]', async () => {
    const { directory, record } = await onlyTemplate()
    if (record === undefined) throw new Error('no record')
    await writeFile(join(directory, 'state'), Buffer.alloc(400_000, 7))
    const { kind, qemuVersion, tookMs, memoryBytes } = record
    await sealTemplate(directory, { kind, qemuVersion, tookMs, memoryBytes })
    expect(await start()).toMatchObject({ cloned: true, told: making })
    expect(await store.failures()).toEqual([])
    const { directory: made } = await onlyTemplate()
    expect((await readFile(join(made, 'state'))).subarray(0, 4).toString()).toBe('QEVM')
  })

  it('loads the memory whole where mapping is known to fail, and boots where that fails too, with the reasons [V.01]', async () => {
    const { name } = await onlyTemplate()
    const notes = new TemplateFailures(join(own.folders.cache, 'templates'))
    await store.remove(name)
    await notes.note(name, 'mapped', 'no mapping here')
    expect(await start()).toMatchObject({ cloned: true, told: making })
    expect((await onlyTemplate()).record?.kind).toBe('plain')
    expect(await start()).toMatchObject({ cloned: true, told: [] })

    await notes.forget(true)
    expect(await start()).toMatchObject({ cloned: true, told: making })
    expect((await onlyTemplate()).record?.kind).toBe('mapped')

    await notes.note(name, 'mapped', 'no mapping here')
    await store.remove(name)
    await notes.note(name, 'plain', 'no loading here')
    const cold = await start()
    expect(cold).toMatchObject({ cloned: false, told: [] })
    expect(cold.coldReason).toBe('mapped memory: no mapping here; plain memory: no loading here')
    expect(cold.timings.kernelMs).toBeGreaterThan(0)
  })
})

/** Kills the QEMU of the next VM, or what stands in front of it, as soon as there is one; undefined when it came too late. */
async function killNextVm(over: AbortSignal): Promise<{ id: string; pid: number } | undefined> {
  for (; !over.aborted; await sleep(1)) {
    const [id] = (await readdir(own.folders.vms)).filter((name) => name.startsWith('vm-'))
    const [pid] = id === undefined ? [] : await findProcessesByArgument(processName(id))
    if (id === undefined || pid === undefined) continue
    try {
      process.kill(pid, 'SIGKILL')
      return { id, pid }
    } catch {
      // It ended by itself in between.
    }
  }
  return undefined
}
