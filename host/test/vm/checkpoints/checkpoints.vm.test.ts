// Checkpoints of real VMs' disks: made while the guest works, opened after QEMU was killed, merged, and without an end.
import { rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { workspaceOpen } from '#specs/protocol/methods.ts'
import { CheckpointDisk } from '../../../vm/checkpoints/checkpoint-disk.ts'
import type { Checkpoints } from '../../../vm/checkpoints/checkpoints.ts'
import { findSavedVm, hibernateVm, wakeVm } from '../../../vm/hibernation/hibernate.ts'
import type { Vm } from '../../../vm/vm.ts'
import { makeTestFolders } from '../../support/vm.ts'
import { openTestLink, runInGuest, startWarmTestVm, testVmOptions } from '../../support/warm-vm.ts'

const home = makeTestFolders()
afterAll(() => home[Symbol.dispose]())

interface Opened {
  readonly vm: Vm
  readonly checkpoints: Checkpoints
  sh(script: string): Promise<string>
  kill(): Promise<void>
  /** Closes the link before the VM is saved. */
  park(): Promise<void>
}

/** A warm VM over the disk, with its workspace open. */
async function open(checkpointDisk: CheckpointDisk): Promise<Opened> {
  const options = await testVmOptions(home.folders)
  const { vm, ...guest } = await startWarmTestVm({ ...options, checkpointDisk })
  return await opened(vm, true, guest)
}

async function opened(vm: Vm, cloned: boolean, guest = openTestLink(vm, cloned)): Promise<Opened> {
  const { link } = guest
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
    park: async () => {
      await link.park()
      link.close()
    },
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
    const writing = sh('until [ -e stop ]; do echo $((++n)) >>log; sync log; sleep 0.4; done; echo end')
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
    const second = await open(await first.checkpoints.fork(diskAt('forked-2'), 'base'))
    await Promise.all([first.sh('echo a >>shared.txt'), second.sh('echo b >>shared.txt')])
    expect(await first.sh('cat shared.txt')).toBe('shared\na\n')
    expect(await second.sh('cat shared.txt')).toBe('shared\nb\n')
    // What the fork shares is neither merged nor used again when the first gives it up.
    for (const id of ['c1', 'c2', 'c3']) {
      await first.sh(`head -c 3000000 /dev/urandom >${id}`)
      await first.checkpoints.make(id)
    }
    await first.checkpoints.drop(new Set(['base', 'c1', 'c2']))
    expect(first.checkpoints.list).toEqual(['c3'])
    await first.sh('sync; head -c 3000000 /dev/urandom >more')
    await first.checkpoints.make('c4')
    await second.checkpoints.make('mine')
    await second.kill()
    const third = await open(await CheckpointDisk.open(diskAt('forked-2')))
    expect(await third.sh('ls; cat shared.txt')).toBe('shared.txt\nshared\nb\n')
    expect(await first.sh('ls; cat shared.txt')).toBe('c1\nc2\nc3\nmore\nshared.txt\nshared\na\n')
  }, 240_000)

  it('stays when the VM is saved and continues, there or with the disk of another folder [V.04 W.04]', async () => {
    const directory = diskAt('saved')
    const options = await testVmOptions(home.folders)
    const disk = await CheckpointDisk.create(directory)
    const first = await open(disk)
    const { workspaceDisk = '' } = first.vm.plan.options
    await first.sh('echo one >one')
    await first.checkpoints.make('one')
    await first.sh('echo two >two')
    await first.park()
    const place = path.join(home.folders.home, 'saved-vm')
    await hibernateVm(first.vm, place)
    const wake = async (checkpointDisk: CheckpointDisk): Promise<Opened> => {
      const saved = await findSavedVm(place)
      if (saved === undefined) throw new Error('nothing was saved')
      const vm = await wakeVm({ ...options, workspaceDisk, checkpointDisk }, saved)
      await rm(place, { recursive: true })
      await vm.fresh
      return await opened(vm, false)
    }
    const again = await wake(disk)
    expect(again.checkpoints.list).toEqual(['one'])
    expect(await again.sh('cat one two')).toBe('one\ntwo\n')
    await again.checkpoints.make('two')
    await again.park()
    await hibernateVm(again.vm, place)

    const elsewhere = await wake(await CheckpointDisk.create(diskAt('saved-2')))
    await elsewhere.sh('echo three >three')
    await elsewhere.checkpoints.make('three')
    expect(elsewhere.checkpoints.list).toEqual(['one', 'two', 'three'])
    await elsewhere.kill()
    for (const [at, id, files] of [
      ['saved-2', 'three', 'one\nthree\ntwo\n'],
      ['saved', 'one', 'one\n'],
    ] as const) {
      const { sh, kill } = await open(await CheckpointDisk.open(diskAt(at), id))
      expect(await sh('ls')).toBe(files)
      await kill()
    }
  }, 400_000)

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
