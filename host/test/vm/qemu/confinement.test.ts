import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type ConfinementFacts, chooseLauncher } from '../../../vm/qemu/confinement.ts'
import type { Launcher } from '../../../vm/qemu/launcher.ts'
import { VM_USERS } from '../../../vm/qemu/vm-user.ts'
import { VmError } from '../../../vm/vm-error.ts'

const mapped: Launcher = { kind: 'bubblewrap', bwrap: '/usr/bin/bwrap' }
const dropping: Launcher = { ...mapped, drop: { uid: 65534, gid: 65534, setpriv: '/usr/bin/setpriv' } }
const bare: Launcher = { kind: 'bare' }
const all: ConfinementFacts = { launchers: [dropping, mapped, bare] }
const none: ConfinementFacts = { launchers: [bare], reason: 'bubblewrap is not installed' }

let folder: string
let kernel: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'caisson-confine-'))
  kernel = join(folder, 'vmlinuz')
  await writeFile(kernel, '')
  await chmod(kernel, 0o644)
})
afterEach(() => rm(folder, { recursive: true, force: true }))

function choose(
  facts: ConfinementFacts,
  mode: 'auto' | 'require' | 'off',
  seccomp = true,
): Promise<Launcher> {
  return chooseLauncher(facts, { mode, seccomp, files: [kernel], devices: [] })
}

describe('chooseLauncher', () => {
  it('takes the strictest launcher with which QEMU can still open its files [V.09]', async () => {
    expect(await choose(all, 'auto')).toMatchObject({
      kind: 'bubblewrap',
      drop: { setpriv: '/usr/bin/setpriv' },
    })
    await chmod(kernel, 0o600)
    expect(await choose(all, 'auto')).toEqual(mapped)
  })

  it('names a user for each VM that no process is [V.09]', async () => {
    const launchers = await Promise.all(Array.from({ length: 50 }, () => choose(all, 'auto')))
    const users = launchers.map((launcher) => ('drop' in launcher ? launcher.drop?.uid : undefined) ?? 0)
    expect(new Set(users).size).toBe(50)
    for (const user of users) {
      expect(user).toBeGreaterThanOrEqual(VM_USERS.first)
      expect(user).toBeLessThan(VM_USERS.first + VM_USERS.count)
    }
  })

  it('continues without bubblewrap unless it is required [V.09]', async () => {
    expect(await choose(none, 'auto')).toEqual(bare)
    const error = await choose(none, 'require').catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(VmError)
    expect(error).toMatchObject({ kind: 'confinement_unavailable', phase: 'prepare' })
    expect(String(error)).toContain('bubblewrap is not installed')
    expect(await choose(all, 'require')).toMatchObject({ kind: 'bubblewrap', drop: {} })
  })

  it('does not call it confined where QEMU has no seccomp sandbox [V.09]', async () => {
    await expect(choose(all, 'require', false)).rejects.toMatchObject({ kind: 'confinement_unavailable' })
  })

  it('leaves bubblewrap out on request [V.09]', async () => {
    expect(await choose(all, 'off')).toEqual(bare)
  })
})
