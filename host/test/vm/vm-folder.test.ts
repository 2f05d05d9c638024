import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { judgeProcess, ownIdentity } from '../../processes/process-identity.ts'
import { createVmFolder, listVmRecords, processName, sweepDeadVms } from '../../vm/vm-folder.ts'

let vms: string
beforeEach(async () => {
  vms = await mkdtemp(join(tmpdir(), 'caisson-vms-'))
})
afterEach(() => rm(vms, { recursive: true, force: true }))

/** A folder as a host process that is gone left it. */
async function leaveDeadFolder(id: string): Promise<void> {
  await mkdir(join(vms, id))
  const host = { ...(await ownIdentity()), born: '1' }
  await writeFile(join(vms, id, 'vm.json'), JSON.stringify({ id, createdAtMs: 0, host }))
}

describe('the folder of a VM', () => {
  it('is readable by its owner alone and removed as a whole', async () => {
    const folder = await createVmFolder(vms)
    expect((await stat(folder.path)).mode & 0o777).toBe(0o700)
    expect((await stat(join(folder.path, 'vm.json'))).mode & 0o777).toBe(0o600)
    expect((await listVmRecords(vms)).map(({ id }) => id)).toEqual([folder.id])
    await folder.remove()
    expect(await readdir(vms)).toEqual([])
  })
})

describe('sweepDeadVms', () => {
  it('clears what dead hosts left and leaves the VMs of living ones alone [V.06]', async () => {
    const living = await createVmFolder(vms)
    await leaveDeadFolder('vm-00000000dead')
    expect(await sweepDeadVms(vms)).toEqual(['vm-00000000dead'])
    expect(await readdir(vms)).toEqual([living.id])
  })

  it('ends a process of such a VM that lived on [V.06]', async () => {
    await leaveDeadFolder('vm-00000000beef')
    const orphan = spawn('/bin/sh', ['-c', 'read x', processName('vm-00000000beef')], { stdio: 'pipe' })
    const exited = once(orphan, 'exit')
    await once(orphan, 'spawn')
    await sweepDeadVms(vms)
    expect(await exited).toEqual([null, 'SIGKILL'])
  })

  it('clears half-made and damaged folders once they are old', async () => {
    await mkdir(join(vms, '.vm-111111111111'))
    await mkdir(join(vms, 'vm-222222222222'))
    await writeFile(join(vms, 'vm-222222222222', 'vm.json'), '{"id":"../../etc"}')
    expect(await sweepDeadVms(vms)).toEqual([])
    for (const name of await readdir(vms)) await utimes(join(vms, name), 1, 1)
    expect((await sweepDeadVms(vms)).sort()).toEqual(['.vm-111111111111', 'vm-222222222222'])
  })

  it('does nothing where there is no folder yet', async () => {
    expect(await sweepDeadVms(join(vms, 'none'))).toEqual([])
  })
})

describe('judgeProcess', () => {
  it('tells this process from an earlier one of the same number, and does not judge other containers', async () => {
    const own = await ownIdentity()
    expect(await judgeProcess(own)).toBe('alive')
    expect(await judgeProcess({ ...own, born: '1' })).toBe('dead')
    const [boot] = own.world.split('/')
    expect(await judgeProcess({ ...own, world: `${boot}/pid:[1]` })).toBe('unknown')
    expect(await judgeProcess({ ...own, world: 'another-boot/pid:[1]' })).toBe('dead')
  })
})
