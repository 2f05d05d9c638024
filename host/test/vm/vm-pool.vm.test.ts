import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { findProcessesByArgument } from '../../processes/process-identity.ts'
import { warmUp } from '../../runs/guest/warm-up.ts'
import { prepareTemplate } from '../../vm/open-vm.ts'
import { processName } from '../../vm/vm-folder.ts'
import { VmPool } from '../../vm/vm-pool.ts'
import { finish, writeFiles } from '../support/runs.ts'
import { makeTestFolders, waitUntilGone } from '../support/vm.ts'
import type { VmHostOrder } from '../support/vm-host.ts'
import { openTestLink, runInGuest, testVmOptions } from '../support/warm-vm.ts'

const MIB = 1024 * 1024
const PROGRAM = fileURLToPath(new URL('../support/vm-host.ts', import.meta.url))
const vm = { memoryBytes: 512 * MIB }
const hosts: ChildProcess[] = []
// The first use of a cache makes image and template, which takes a minute.
beforeAll(async () => {
  using home = makeTestFolders()
  await prepareTemplate(await testVmOptions(home.folders), { warmUp })
})
afterEach(() => {
  for (const host of hosts.splice(0)) host.kill('SIGKILL')
})

/** A run on files of its own, and what it wrote into `seen.txt`. */
async function runOn(host: Host, files: Readonly<Record<string, string>>, command: string) {
  const workspace = await temporaryFolder('workspace')
  await writeFiles(workspace, files)
  const prompt = `Run the command \`${command}\``
  const finished = await finish(await host.run({ prompt, workspace, approvals: { interactive: false }, vm }))
  expect(finished.state.end, JSON.stringify(finished.state.end)).toMatchObject({ outcome: 'completed' })
  await (await host.changes(finished.run.id)).apply('all')
  const ready = finished.events.find(({ type }) => type === 'vm-ready')
  return {
    seen: (await readFile(path.join(workspace, 'seen.txt'), 'utf8')).trimEnd().split('\n'),
    isPooled: ready?.type === 'vm-ready' && ready.phasesMs.pool !== undefined,
  }
}

async function idsOf(home: { readonly vms: string }): Promise<string[]> {
  return await readdir(home.vms)
}

/** Of each thread of the VMs: how often it was given a processor so far, and for how many milliseconds in all. */
async function processorUse(home: { readonly vms: string }) {
  const pids = await Promise.all((await idsOf(home)).map((id) => findProcessesByArgument(processName(id))))
  const uses = new Map<string, { readonly times: number; readonly ms: number }>()
  for (const pid of pids.flat()) {
    for (const thread of await readdir(`/proc/${pid}/task`)) {
      // Nanoseconds on a processor, nanoseconds of waiting for one, times; nothing of a thread that just ended.
      const text = await readFile(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').catch(() => '')
      const [ns = 0, , times = 0] = text.split(' ').map(Number)
      uses.set(thread, { times, ms: ns / 1e6 })
    }
  }
  return uses
}

/** What the VMs have taken of the processors in `ms`. */
async function processorUseIn(ms: number, home: { readonly vms: string }) {
  const before = await processorUse(home)
  await sleep(ms)
  const used = { times: 0, ms: 0 }
  for (const [thread, after] of await processorUse(home)) {
    used.times += after.times - (before.get(thread)?.times ?? 0)
    used.ms += after.ms - (before.get(thread)?.ms ?? 0)
  }
  return used
}

describe('a host with a pool', () => {
  it('gives runs VMs that wait, each with its own files, replaces them, and boots one for a run that asks for it [V.01 W.02]', async () => {
    const home = await temporaryFolder('home')
    await using host = new Host({ env: { ...process.env, CAISSON_HOME: home }, pool: { size: 2, vm } })
    await host.warm()
    const waiting = await idsOf(host.folders)
    expect(waiting).toHaveLength(2)
    expect((await host.vms.list()).map(({ id, state }) => [id, state]).sort()).toEqual(
      waiting.sort().map((id) => [id, 'waiting']),
    )
    const command = 'cat who.txt > seen.txt && ls -d only-* >> seen.txt'
    const ran = await Promise.all(
      ['one', 'two', 'three'].map((name) =>
        runOn(host, { 'who.txt': `${name}\n`, [`only-${name}/x.txt`]: 'x\n' }, command),
      ),
    )
    expect(ran).toEqual(
      ['one', 'two', 'three'].map((name) => ({ seen: [name, `only-${name}`], isPooled: true })),
    )
    await host.warm()
    const now = await idsOf(host.folders)
    expect(now).toHaveLength(2)
    expect(now.filter((id) => waiting.includes(id))).toEqual([])

    const workspace = await temporaryFolder('workspace')
    const other = { ...vm, start: 'cold' } as const
    const finished = await finish(
      await host.run({
        prompt: 'Run the command `true`',
        workspace,
        approvals: { interactive: false },
        vm: other,
      }),
    )
    expect(finished.state.end).toMatchObject({ outcome: 'completed' })
    const ready = finished.events.find(({ type }) => type === 'vm-ready')
    expect(ready?.type === 'vm-ready' && ready.phasesMs.pool).toBeUndefined()

    await host.close()
    expect(await idsOf(host.folders)).toEqual([])
    await expect(host.run({ prompt: 'x', workspace })).rejects.toMatchObject({ code: 'not_possible_now' })
  })

  it('gives a run a VM that sleeps and wakes with the same files while a person thinks [V.01 V.04]', async () => {
    const home = await temporaryFolder('home')
    const workspace = await temporaryFolder('workspace')
    await writeFiles(workspace, { 'old.txt': 'old\n', 'keep.txt': 'keep\n' })
    await using host = new Host({ env: { ...process.env, CAISSON_HOME: home }, pool: { size: 1, vm } })
    await host.warm()
    const run = await host.run({
      prompt: 'Delete old.txt',
      workspace,
      approvals: { interactive: true },
      vm: { ...vm, hibernateAfterMs: 100 },
    })
    const types: string[] = []
    let asked = ''
    for await (const item of run.watch()) {
      if (item.source === 'delta') continue
      types.push(item.event.type)
      if (item.event.type === 'approval-request') asked = item.event.request.approvalId
      if (item.event.type === 'vm-sleep') await run.answer(asked, { decision: 'allow', scope: 'once' })
    }
    expect((await run.ended).end).toMatchObject({ outcome: 'completed' })
    expect(types).toContain('vm-wake')
    const changes = await host.changes(run.id)
    expect((await changes.review()).map(({ path: name, change }) => [name, change])).toEqual([
      ['old.txt', 'deleted'],
    ])
  })
})

describe('a pool of VMs', () => {
  it('hands a VM out that has the time of now and its own randomness, and takes no processor time while it waits [V.01 V.03 V.06]', async () => {
    using home = makeTestFolders()
    await using pool = new VmPool(await testVmOptions(home.folders), { warmUp }, { size: 2 })
    await pool.whenFull()
    // At rest soon: QEMU's own timers end within a second of the guest's stop, threads that wrote to a disk after ten
    // seconds without work. A guest that ran never would be: idle, two wake a thousand times, for two hundred milliseconds.
    await expect
      .poll(() => processorUseIn(5_000, home.folders), { timeout: 60_000 })
      .toSatisfy(({ times, ms }) => times < 20 && ms < 5)
    const drawn: string[] = []
    for (const name of ['a', 'b']) {
      const { vm: taken, origin } = await pool.take({ workspaceDisk: path.join(home.folders.home, name) })
      const guest = openTestLink(taken, origin.from === 'template')
      await using _link = guest.link
      expect(await guest.link.ready({ timeoutMs: 30_000 })).toMatchObject({ ok: true })
      expect(await guest.link.request(workspaceOpen, {}, { timeoutMs: 30_000 })).toMatchObject({ ok: true })
      const askedAt = Date.now()
      const [now, random = ''] = (await runInGuest(guest, 'date +%s%3N; od -An -tx8 -N8 /dev/urandom')).split(
        '\n',
      )
      expect(Number(now)).toBeGreaterThan(askedAt - 50)
      expect(Number(now)).toBeLessThan(Date.now() + 50)
      drawn.push(random)
    }
    expect(new Set(drawn).size).toBe(2)
  })

  it('notices that a VM died while it waited, and starts another [V.01]', async () => {
    using home = makeTestFolders()
    await using pool = new VmPool(await testVmOptions(home.folders), { warmUp }, { size: 1, maxVms: 1 })
    await pool.whenFull()
    const [dead = ''] = await idsOf(home.folders)
    // Whichever of its processes it is: the others end with it.
    const [pid] = await findProcessesByArgument(processName(dead))
    if (pid === undefined) throw new Error(`no process of ${dead}`)
    process.kill(pid, 'SIGKILL')
    while (pool.counts.ready > 0) await sleep(1)
    while (pool.counts.ready === 0) await sleep(10)
    const [next] = await idsOf(home.folders)
    expect(next).not.toBe(dead)
    const taken = await pool.take({ workspaceDisk: path.join(home.folders.home, 'disk') })
    expect(taken.vm.id).toBe(next)
  })

  it('leaves no process behind when its host is killed, and the next start clears the rest [V.06]', async () => {
    using home = makeTestFolders()
    const order: VmHostOrder = { kind: 'pool', size: 3 }
    const host = spawn(process.execPath, ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)], {
      env: { ...process.env, CAISSON_HOME: home.folders.home },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    hosts.push(host)
    await once(createInterface(host.stdout), 'line')
    const ids = await idsOf(home.folders)
    expect(ids).toHaveLength(3)
    const pids = (await Promise.all(ids.map((id) => findProcessesByArgument(processName(id))))).flat()
    expect(pids.length).toBeGreaterThanOrEqual(3)
    const closed = once(host, 'close')
    host.kill('SIGKILL')
    expect(await Promise.all(pids.map((pid) => waitUntilGone(pid)))).toEqual(pids.map(() => true))
    await closed
    await using pool = new VmPool(await testVmOptions(home.folders), { warmUp }, { size: 1 })
    await pool.whenFull()
    const left = await idsOf(home.folders)
    expect(left).toHaveLength(1)
    expect(left.filter((id) => ids.includes(id))).toEqual([])
  })
})
