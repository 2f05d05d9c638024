import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { findCandidates, probeMachine, tryAccelerator } from '../../vm/qemu/accelerator.ts'
import { probeConfinement } from '../../vm/qemu/confinement.ts'
import { spawnQemu } from '../../vm/qemu/qemu-process.ts'
import { findQemu } from '../../vm/qemu/qemu-programs.ts'
import { Qmp } from '../../vm/qemu/qmp.ts'
import { getTestImage, makeTestFolders, writeHangingKernel } from '../support/vm.ts'

async function requireQemu(): Promise<string> {
  const qemu = await findQemu()
  if (qemu === undefined) throw new Error('QEMU is not installed')
  return qemu
}

describe('QMP of a real QEMU', () => {
  it('negotiates, answers, refuses, reports its end, and closes', async () => {
    using home = makeTestFolders()
    const qemu = await requireQemu()
    const kernel = join(home.folders.home, 'hang.bin')
    await writeHangingKernel(kernel)
    const [launcher] = (await probeConfinement(qemu)).launchers
    if (!launcher) throw new Error('no launcher')
    const running = spawnQemu({
      name: 'caisson-qmp-test',
      qemu,
      launcher,
      seccomp: process.platform === 'linux',
      accelerator: 'tcg',
      cpus: 1,
      memoryBytes: 64 * 1024 * 1024,
      boot: { kind: 'kernel', kernel, cmdline: '' },
      drives: [],
      ports: [],
    })
    const qmp = await Qmp.connect(running.qmp)
    expect(qmp.version).toMatch(/^\d+\.\d+\.\d+$/)
    expect(await qmp.execute('query-status')).toMatchObject({ running: true })
    await expect(qmp.execute('no-such-command')).rejects.toMatchObject({ kind: 'refused' })
    const shutdown = new Promise((resolve) =>
      qmp.onEvent(({ name, data }) => name === 'SHUTDOWN' && resolve(data)),
    )
    await qmp.execute('quit')
    expect(await shutdown).toMatchObject({ reason: 'host-qmp-quit' })
    expect(await running.exited).toEqual({ code: 0, signal: null })
    await expect(qmp.execute('query-status')).rejects.toMatchObject({ kind: 'closed' })
  })
})

describe('the trial of an accelerator', () => {
  it('passes where the kernel boots, and remembers that for the next start [V.02]', async () => {
    using home = makeTestFolders()
    const { kernel } = await getTestImage()
    const options = {
      qemu: await requireQemu(),
      kernel,
      cacheDirectory: home.folders.home,
      confine: 'auto',
    } as const
    const confinement = await probeConfinement(options.qemu)
    expect(await tryAccelerator('tcg', confinement, { ...options, deadlineMs: 60_000 })).toMatchObject({
      works: true,
    })
    const machine = await probeMachine(options)
    expect(machine.trials.map((trial) => trial.accelerator)).toEqual(await findCandidates())
    const working = machine.trials.find((trial) => trial.works)
    expect(machine.accelerator).toBe(working?.accelerator ?? 'tcg')
    // A kernel that cannot pass a trial shows that none was made.
    expect(await probeMachine({ ...options, kernel: '/dev/null' })).toEqual(machine)
  })

  it('fails by its deadline where the guest hangs before its first word [V.02]', async () => {
    using home = makeTestFolders()
    const qemu = await requireQemu()
    const kernel = join(home.folders.home, 'hang.bin')
    await writeHangingKernel(kernel)
    const trial = await tryAccelerator('tcg', await probeConfinement(qemu), {
      qemu,
      kernel,
      confine: 'auto',
      deadlineMs: 1500,
    })
    expect(trial).toMatchObject({ works: false, seen: 'the kernel did not boot within 1.5 s' })
  })

  it('fails at once where QEMU aborts at its start, and tells the cause [V.02]', async () => {
    using home = makeTestFolders()
    const { kernel } = await getTestImage()
    const qemu = join(home.folders.home, 'qemu')
    await writeFile(qemu, '#!/bin/sh\necho "error: failed to set MSR 0x10a" >&2\nkill -ABRT $$\n')
    await chmod(qemu, 0o755)
    const trial = await tryAccelerator(
      'tcg',
      { launchers: [{ kind: 'bare' }] },
      { qemu, kernel, confine: 'auto' },
    )
    expect(trial.works).toBe(false)
    expect(trial.seen).toContain('SIGABRT')
    expect(trial.seen).toContain('failed to set MSR 0x10a')
  })
})
