import { describe, expect, it } from 'vitest'
import { resolveFolders } from '../../state/folders.ts'
import type { Machine } from '../../vm/qemu/accelerator.ts'
import { planVm } from '../../vm/vm-command.ts'

const machine: Machine = {
  qemu: '/usr/bin/qemu-system-x86_64',
  qemuVersion: '7.2.0',
  seccomp: false,
  accelerator: 'tcg',
  trials: [],
  confinement: { launchers: [{ kind: 'bare' }] },
}
// A file system without free blocks, in which nothing can be made either.
const folders = { ...resolveFolders({ HOME: '/nowhere' }), vms: '/proc' }
const options = { image: { disk: '/nowhere/disk', format: 'raw' }, folders, accelerator: 'tcg' } as const

describe('the preparation of a start', () => {
  it('refuses a new VM on a full disk, and lets a saved one try, whose disk is there already [V.04 V.06]', async () => {
    await expect(planVm(options, machine)).rejects.toMatchObject({ kind: 'disk_short', phase: 'prepare' })
    const scratch = { kind: 'moved', file: '/nowhere/scratch', format: 'raw' } as const
    await expect(planVm(options, machine, { scratch })).rejects.toMatchObject({ code: 'ENOENT' })
  })
})
