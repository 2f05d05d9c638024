import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, readdir, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { afterEach, describe, expect, it } from 'vitest'
import { findProcessesByArgument } from '../../processes/process-identity.ts'
import { probeConfinement } from '../../vm/qemu/confinement.ts'
import type { Launcher } from '../../vm/qemu/launcher.ts'
import { findQemu } from '../../vm/qemu/qemu-programs.ts'
import { StartingHost } from '../support/starting-hosts.ts'
import {
  getTestImage,
  isRunning,
  makeTestFolders,
  startTestVm,
  waitUntilGone,
  writeHangingKernel,
} from '../support/vm.ts'
import type { VmHostOrder } from '../support/vm-host.ts'

const PROGRAM = fileURLToPath(new URL('../support/vm-host.ts', import.meta.url))
const hosts: ChildProcess[] = []
afterEach(() => {
  for (const host of hosts.splice(0)) host.kill('SIGKILL')
})

/** Starts a host process in a process group of its own, and gives it with the pid of its QEMU. */
async function startHost(order: VmHostOrder, env: NodeJS.ProcessEnv = process.env) {
  const host = spawn(process.execPath, ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)], {
    detached: true,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  hosts.push(host)
  if (!host.stdout) throw new Error('no stdout')
  const [line] = (await once(createInterface(host.stdout), 'line')) as [string]
  return { host, pid: (JSON.parse(line) as { pid: number }).pid }
}

/** Every launcher this machine has, and the portable one. */
async function listLaunchers(qemu: string): Promise<Launcher[]> {
  return [...(await probeConfinement(qemu)).launchers, { kind: 'bare' }]
}

describe('a QEMU whose host process dies', () => {
  it('ends with it, behind every launcher [V.06]', async () => {
    using home = makeTestFolders()
    const qemu = (await findQemu()) ?? ''
    const kernel = join(home.folders.home, 'hang.bin')
    await writeHangingKernel(kernel)
    const launchers = await listLaunchers(qemu)
    expect(launchers.length).toBeGreaterThan(0)
    for (const launcher of launchers) {
      const { host, pid } = await startHost({ kind: 'launcher', launcher, qemu, kernel })
      expect(await isRunning(pid), JSON.stringify(launcher)).toBe(true)
      host.kill('SIGKILL')
      expect(await waitUntilGone(pid), JSON.stringify(launcher)).toBe(true)
    }
  })

  it.each([
    ['before bubblewrap has begun', 'sleep 1; exec BWRAP "$@"'],
    [
      'while bubblewrap makes the sandbox',
      'mkfifo "$0.never"; exec 9<>"$0.never"; exec BWRAP --block-fd 9 "$@"',
    ],
  ])('ends with a host that dies %s [V.06]', async (_, script) => {
    using home = makeTestFolders()
    const real = (await listLaunchers((await findQemu()) ?? '')).find(({ kind }) => kind === 'bubblewrap')
    if (real?.kind !== 'bubblewrap') throw new Error('this machine has no bubblewrap that works')
    const kernel = join(home.folders.home, 'hang.bin')
    await writeHangingKernel(kernel)
    // A moment of a start, made as long as one likes.
    const bwrap = join(home.folders.home, 'bwrap')
    await writeFile(bwrap, `#!/bin/sh\n: >"$0.reached"\n${script.replace('BWRAP', real.bwrap)}\n`)
    await chmod(bwrap, 0o755)
    const name = `caisson-${basename(home.folders.home)}`.toLowerCase().replace(/[^a-z0-9-]/g, '')
    const qemu = (await findQemu()) ?? ''
    const host = await StartingHost.spawn({
      kind: 'launcher',
      name,
      launcher: { ...real, bwrap },
      qemu,
      kernel,
    })
    await expect.poll(() => existsSync(`${bwrap}.reached`), { timeout: 60_000 }).toBe(true)
    await sleep(300)
    await host.kill()
    await expect.poll(() => findProcessesByArgument(name), { timeout: 60_000 }).toEqual([])
  })

  it('leaves a folder at most, which the next start clears [V.06]', async () => {
    using home = makeTestFolders()
    await getTestImage()
    const { host, pid } = await startHost({ kind: 'vm' }, { ...process.env, CAISSON_HOME: home.folders.home })
    const [left] = await readdir(home.folders.vms)
    const closed = once(host, 'close')
    host.kill('SIGKILL')
    expect(await waitUntilGone(pid)).toBe(true)
    await closed
    await using vm = await startTestVm(home)
    const names = await readdir(home.folders.vms)
    expect(names).toEqual([vm.id])
    expect(names).not.toContain(left)
  })

  it("does not end by the terminal's Ctrl-C, which is for the host to handle", async () => {
    using home = makeTestFolders()
    const { host, pid } = await startHost({ kind: 'vm' }, { ...process.env, CAISSON_HOME: home.folders.home })
    // What a terminal does: the signal goes to every process of the foreground group.
    process.kill(-(host.pid ?? 0), 'SIGINT')
    expect(await waitUntilGone(pid, 500)).toBe(false)
    host.kill('SIGKILL')
    expect(await waitUntilGone(pid)).toBe(true)
  })
})
