// Where the host is root: what other processes can see of a VM's memory.
import { spawnSync } from 'node:child_process'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { GuestVm } from '../../../runs/guest/guest-vm.ts'
import { VM_USERS } from '../../../vm/qemu/vm-user.ts'
import { makeTestFolders } from '../../support/vm.ts'
import { startWarmTestVm, testVmOptions } from '../../support/warm-vm.ts'

const home = makeTestFolders()
afterAll(() => home[Symbol.dispose]())

const nobody = 65_534

async function userOf(pid: number): Promise<number> {
  const [, user] = /^Uid:\t(\d+)/m.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(user)
}

/** What a process of this user gets of another's memory and open files. */
async function lookAs(user: number, pid: number): Promise<string> {
  const [first = ''] = (await readFile(`/proc/${pid}/maps`, 'utf8')).split('-')
  const page = BigInt(`0x${first}`) / 4096n
  const script = `dd if=/proc/${pid}/mem bs=4096 count=1 skip=${page} 2>&1 >/dev/null; ls /proc/${pid}/fd 2>&1 | head -1`
  const args = ['--reuid', String(user), '--regid', String(user), '--clear-groups', '/bin/sh', '-c', script]
  return spawnSync('setpriv', args, { encoding: 'utf8', env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' } }).stdout
}

describe.runIf(process.getuid?.() === 0)('the memory of a VM whose host is root', () => {
  it('is no other process’s to read, nor another VM’s, nor nobody’s; its file is 0600 [V.09]', async () => {
    const options = await testVmOptions(home.folders)
    const vms = [await startWarmTestVm(options), await startWarmTestVm(options)]
    try {
      expect(vms.map(({ cloned }) => cloned)).toEqual([true, true])
      const users = await Promise.all(vms.map(({ vm }) => userOf(vm.pid)))
      expect(new Set(users).size).toBe(2)
      for (const user of users) expect(user - VM_USERS.first).toBeGreaterThanOrEqual(0)
      const [one = 0, other = 0] = vms.map(({ vm }) => vm.pid)
      // The look itself works: who has that user sees both.
      expect(await lookAs(users[0] ?? 0, one)).toMatch(/4096 bytes[\s\S]*\n0\n/)
      expect(await userOf(other)).toBe(users[1])
      for (const user of [nobody, users[1] ?? 0]) {
        const seen = await lookAs(user, one)
        expect(seen.match(/Permission denied/g)).toHaveLength(2)
        expect(seen).not.toContain('bytes')
      }
      const template = vms[0]?.vm.plan.qemu.memory?.path ?? ''
      expect((await stat(template)).mode & 0o007).toBe(0)
    } finally {
      for (const { vm, link } of vms) {
        link.close()
        await vm.stop()
      }
    }
  })

  it('is saved to a file of mode 0600, and wakes as another user [V.04, V.09]', async () => {
    const started = await startWarmTestVm(await testVmOptions(home.folders))
    started.link.close()
    const stops = { onExit: () => undefined, onDiskFull: () => undefined }
    const guest = new GuestVm(started.vm, started.vm.plan.options.workspaceDisk ?? '', stops)
    const before = await userOf(started.vm.pid)
    const directory = join(home.folders.home, 'hibernated')
    await guest.sleep(directory)
    expect((await stat(join(directory, 'memory'))).mode & 0o777).toBe(0o600)
    try {
      expect(await guest.wake()).toEqual({ prepared: true })
      expect(await userOf(guest.current.pid)).not.toBe(before)
    } finally {
      await guest.stop()
    }
  })
})
