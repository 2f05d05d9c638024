import { once } from 'node:events'
import { readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { startVm, type Vm } from '../../vm/vm.ts'
import { prepareMachine } from '../../vm/vm-command.ts'
import { VmError } from '../../vm/vm-error.ts'
import { getTestImage, isRunning, makeTestFolders, startTestVm, waitUntilGone } from '../support/vm.ts'

/** The error with which a start failed. */
async function failureOf(start: Promise<Vm>): Promise<VmError> {
  const error = await start.then(
    (vm) => vm.stop(),
    (reason: unknown) => reason,
  )
  expect(error).toBeInstanceOf(VmError)
  return error as VmError
}

describe('startVm', () => {
  it('boots to init, times every phase, and leaves nothing after its end [V.01] [V.06]', async () => {
    using home = makeTestFolders()
    const vm = await startTestVm(home)
    const { totalMs, guestUptimeMs, ...phases } = vm.timings
    expect(Object.keys(phases)).toEqual(['prepareMs', 'spawnMs', 'qmpMs', 'kernelMs', 'initMs', 'freshMs'])
    for (const duration of Object.values(phases)) expect(duration).toBeGreaterThan(0)
    expect(Object.values(phases).reduce((sum, duration) => sum + duration)).toBeCloseTo(totalMs, 3)
    expect(guestUptimeMs).toBeGreaterThan(0)
    expect(await readdir(home.folders.vms)).toEqual([vm.id])
    expect(await vm.qmp.execute('query-status')).toMatchObject({ running: true })

    const exit = await vm.stop()
    expect(exit.reason).toBe('stopped')
    expect(await vm.stop()).toBe(exit)
    expect(await isRunning(vm.pid)).toBe(false)
    expect(await readdir(home.folders.vms)).toEqual([])
    expect(vm.rpc.destroyed && vm.http.destroyed).toBe(true)
  })

  it('runs two VMs at once, each with processes, ports and folder of its own; says that one was killed, ends its ports, and clears up [V.06]', async () => {
    using home = makeTestFolders()
    const [killed, other] = await Promise.all([startTestVm(home), startTestVm(home)])
    expect(killed.pid).not.toBe(other.pid)
    expect((await readdir(home.folders.vms)).sort()).toEqual([killed.id, other.id].sort())
    killed.rpc.resume()
    const ended = once(killed.rpc, 'end')
    process.kill(killed.pid, 'SIGKILL')
    expect(await killed.exited).toMatchObject({ reason: 'killed', signal: 'SIGKILL' })
    await ended
    expect(await readdir(home.folders.vms)).toEqual([other.id])
    expect(await isRunning(other.pid)).toBe(true)
    await other.stop()
  })

  it('tells a guest that ended itself from a QEMU that died', async () => {
    using home = makeTestFolders()
    // An init that does not exist: the guest's first line shall count as ready, and then it gives up by itself.
    const request = { ...home, guestOptions: { init: '/does/not/exist' }, readyMarker: '' }
    await using vm = await startTestVm(request)
    expect(await vm.exited).toMatchObject({
      reason: 'guest-ended',
      detail: 'guest-reset',
      code: 0,
      signal: null,
    })
  })

  it('shows phase, remedy and console of a guest that does not come up [V.01]', async () => {
    using home = makeTestFolders()
    const error = await failureOf(
      startTestVm({ ...home, guestOptions: { init: '/does/not/exist' }, deadlineMs: 60_000 }),
    )
    expect(error.kind).toBe('guest_failed')
    expect(['kernel', 'init']).toContain(error.phase)
    expect(error.consoleTail).not.toBe('')
    expect(error.message).not.toContain(error.consoleTail)
    expect(await readdir(home.folders.vms)).toEqual([])
  })

  it("shows QEMU's own words when it refuses to start [V.01]", async () => {
    using home = makeTestFolders()
    const kernel = join(home.folders.home, 'no-kernel')
    await writeFile(kernel, 'this is text')
    const error = await failureOf(startTestVm({ ...home, image: { ...(await getTestImage()), kernel } }))
    expect(error.kind).toBe('qemu_failed')
    expect(error.stderrTail).toMatch(/kernel/)
    expect(await readdir(home.folders.vms)).toEqual([])
  })

  it('names the file of the image that is missing, before anything starts [V.01]', async () => {
    using home = makeTestFolders()
    const image = { ...(await getTestImage()), root: '/does/not/exist/root.erofs' }
    const error = await failureOf(startVm({ image, folders: home.folders }))
    expect(error).toMatchObject({ kind: 'image_unreadable', phase: 'prepare' })
    expect(error.message).toContain('/does/not/exist/root.erofs')
    expect(error.message).toContain('caisson image build')
  })

  it('gives up when asked to, and when the deadline passes, without leaving a process', async () => {
    using home = makeTestFolders()
    const controller = new AbortController()
    const start = startTestVm({ ...home, signal: controller.signal })
    for (let count = 0; count < 500 && (await findPids(home.folders.vms)).length === 0; count++)
      await sleep(10)
    const [pid] = await findPids(home.folders.vms)
    controller.abort()
    expect((await failureOf(start)).code).toBe('cancelled')
    expect(await waitUntilGone(pid ?? 0)).toBe(true)
    expect((await failureOf(startTestVm({ ...home, deadlineMs: 150 }))).kind).toBe('deadline_exceeded')
    expect(await readdir(home.folders.vms)).toEqual([])
  })
})

describe.runIf(process.platform === 'linux')('the confinement of QEMU', () => {
  it('leaves it no privileges, environment, network or file outside of /usr [V.09]', async () => {
    using home = makeTestFolders()
    await using vm = await startTestVm({ ...home, confine: 'require' })
    expect(vm.confinement).toBe('bubblewrap+seccomp')
    const proc = `/proc/${vm.pid}`
    const status = await readFile(`${proc}/status`, 'utf8')
    expect(status).toMatch(/^NoNewPrivs:\t1$/m)
    expect(status).toMatch(/^Seccomp:\t2$/m)
    expect(status).toMatch(/^CapEff:\t0+$/m)
    expect(await readFile(`${proc}/environ`, 'utf8')).not.toMatch(/HOME|KEY|PATH/)
    expect((await readdir(`${proc}/root`)).sort()).toEqual(
      ['bin', 'dev', 'etc', 'lib', 'lib64', 'nix', 'usr', 'vm'].sort(),
    )
    expect(await readlink(`${proc}/ns/net`)).not.toBe(await readlink('/proc/self/ns/net'))
    const interfaces = (await readFile(`${proc}/net/dev`, 'utf8')).match(/^\s*\w+:/gm)
    expect(interfaces?.map((name) => name.trim())).toEqual(['lo:'])
    const mounts = await readFile(`${proc}/mountinfo`, 'utf8')
    for (const path of ['/usr', '/vm/0', '/vm/1']) expect(mounts).toMatch(new RegExp(` ${path} ro,`, 'm'))
  })

  it('finds out again what this machine can do when what it remembered fails [V.02]', async () => {
    using home = makeTestFolders()
    const folders = { ...home.folders, cache: join(home.folders.home, 'cache') }
    await prepareMachine({ folders, image: await getTestImage() }, false)
    const machines = join(folders.cache, 'machines')
    const [name = ''] = await readdir(machines)
    const record = JSON.parse(await readFile(join(machines, name), 'utf8'))
    record.confinement = { launchers: [{ kind: 'bubblewrap', bwrap: '/does/not/exist/bwrap' }] }
    await writeFile(join(machines, name), JSON.stringify(record))
    await using vm = await startTestVm({ folders })
    expect(vm.confinement).toBe('bubblewrap+seccomp')
    expect(await readFile(join(machines, name), 'utf8')).not.toContain('/does/not/exist')
    expect(await readdir(folders.vms)).toEqual([vm.id])
  })

  it('continues with the seccomp sandbox alone where bubblewrap is not wanted, and says so [V.09]', async () => {
    using home = makeTestFolders()
    await using vm = await startTestVm({ ...home, confine: 'off' })
    expect(vm.confinement).toBe('seccomp')
    expect(await readFile(`/proc/${vm.pid}/status`, 'utf8')).toMatch(/^Seccomp:\t2$/m)
  })
})

/** Pids of the QEMUs whose VMs have a folder here. */
async function findPids(vms: string): Promise<number[]> {
  const names = (await readdir(vms).catch(() => [])).map((id) => `caisson-${id}`)
  const found: number[] = []
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0')
    if (words[0]?.includes('qemu-system') && names.some((name) => words.includes(name)))
      found.push(Number(pid))
  }
  return found
}
