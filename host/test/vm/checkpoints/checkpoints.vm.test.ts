// Checkpoints of real VMs' disks: made while the guest works, opened after QEMU was killed, merged, and without an end.
import { cp, stat } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { CheckpointDisk } from '../../../vm/checkpoints/checkpoint-disk.ts'
import type { Checkpoints } from '../../../vm/checkpoints/checkpoints.ts'
import type { Vm } from '../../../vm/vm.ts'
import { makeTestFolders } from '../../support/vm.ts'
import { type GuestLink, runInGuest, startWarmTestVm, testVmOptions } from '../../support/warm-vm.ts'

const home = makeTestFolders()
afterAll(() => home[Symbol.dispose]())

interface Opened {
  readonly vm: Vm
  readonly checkpoints: Checkpoints
  sh(script: string): Promise<string>
  kill(): Promise<void>
}

/** A warm VM over the disk, with its workspace open. */
async function open(checkpointDisk: CheckpointDisk): Promise<Opened> {
  const options = await testVmOptions(home.folders)
  const guest: GuestLink & { vm: Vm } = await startWarmTestVm({ ...options, checkpointDisk })
  const { vm, link } = guest
  onTestFinished(async () => {
    link.close()
    await vm.stop()
  })
  expect(await link.request(workspaceOpen, {}, { timeoutMs: 60_000 })).toMatchObject({ ok: true })
  if (vm.checkpoints === undefined) throw new Error('no checkpoints')
  return {
    vm,
    checkpoints: vm.checkpoints,
    sh: (script) => runInGuest(guest, script),
    kill: async () => {
      process.kill(vm.pid, 'SIGKILL')
      await vm.exited
      link.close()
    },
  }
}

const diskAt = (name: string): string => path.join(home.folders.home, name)

describe('a checkpoint of a disk', () => {
  it('holds all that was written until then, also after QEMU was killed, and nothing later [W.04]', async () => {
    const directory = diskAt('killed')
    const first = await open(await CheckpointDisk.create(directory))
    await first.sh('mkdir src; echo one >src/a.txt; git init -q .; echo note >/tmp/note; echo home >~/file')
    await first.checkpoints.make('one')
    await first.sh('rm -r src; head -c 3000000 /dev/urandom >big; sha256sum big >sum; git add .')
    await first.checkpoints.make('two')
    await first.sh('echo lost >lost.txt; rm big')
    await first.kill()

    const again = await open(await CheckpointDisk.open(directory))
    expect(again.checkpoints.list).toEqual(['one', 'two'])
    expect(await again.sh('sha256sum -c sum; ls; cat /tmp/note ~/file; git status --short')).toBe(
      'big: OK\nbig\nsum\nnote\nhome\nA  big\nA  sum\n',
    )
    await again.sh('echo three >three.txt')
    await again.checkpoints.make('three')
    await again.kill()

    const rewound = await open(await CheckpointDisk.open(directory, 'one'))
    expect(rewound.checkpoints.list).toEqual(['one'])
    expect(await rewound.sh('cat src/a.txt; ls')).toBe('one\nsrc\n')
    await expect(CheckpointDisk.open(directory, 'two')).rejects.toMatchObject({ code: 'state_corrupted' })
  }, 240_000)

  it('is one of many while the guest writes; dropped ones are merged, and their files used again [W.04]', async () => {
    const directory = diskAt('merged')
    const { checkpoints, sh, kill } = await open(await CheckpointDisk.create(directory))
    const writing = sh('until [ -e stop ]; do echo $((++n)) >>log; sync log; sleep 0.05; done; echo end')
    // More than a VM has files for.
    for (let at = 0; at < 30; at++) {
      await sh(`echo ${at} >step; head -c 200000 /dev/urandom >f${at % 7}; sha256sum f? >sums`)
      await checkpoints.make(`c${at}`)
      if (at % 10 === 9)
        await checkpoints.drop(new Set(Array.from({ length: 9 }, (_, back) => `c${at - 9 + back}`)))
    }
    await sh('touch stop')
    expect(await writing).toBe('end\n')
    expect(checkpoints.list).toEqual(['c9', 'c19', 'c29'])
    await kill()
    for (const at of [29, 9]) {
      const { sh: shell, kill: end } = await open(await CheckpointDisk.open(directory, `c${at}`))
      expect(await shell('cat step; sha256sum -c --quiet sums; sort -nc log; wc -l <log')).toMatch(
        new RegExp(`^${at}\n\\d+\n$`),
      )
      await end()
    }
  }, 400_000)

  it('opens in copies at the same time, each with its own continuation [W.04]', async () => {
    const directory = diskAt('forked')
    const first = await open(await CheckpointDisk.create(directory))
    await first.sh('echo shared >shared.txt')
    await first.checkpoints.make('base')
    await cp(directory, diskAt('forked-2'), { recursive: true })
    const second = await open(await CheckpointDisk.open(diskAt('forked-2'), 'base'))
    await Promise.all([first.sh('echo a >>shared.txt'), second.sh('echo b >>shared.txt')])
    expect(await first.sh('cat shared.txt')).toBe('shared\na\n')
    expect(await second.sh('cat shared.txt')).toBe('shared\nb\n')
  }, 240_000)

  it('takes little room, and a failure leaves VM and earlier checkpoints as they were [W.04]', async () => {
    const directory = diskAt('failed')
    const { vm, checkpoints, sh } = await open(await CheckpointDisk.create(directory))
    await sh('echo one >one')
    await checkpoints.make('one')
    const { blocks } = await stat(path.join(directory, 'layer-0.qcow2'))
    expect(blocks * 512).toBeLessThan(8 * 1024 ** 2)
    await expect(checkpoints.make('one')).rejects.toThrow('bad name')
    vm.root.flush = () => Promise.reject(new Error('flush failed'))
    await expect(checkpoints.make('two')).rejects.toThrow('flush failed')
    expect(checkpoints.list).toEqual(['one'])
    expect(await sh('echo two >two; cat one two')).toBe('one\ntwo\n')
  }, 240_000)
})
