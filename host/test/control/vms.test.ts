// The VMs of this user by their names: real folders and sockets, only the VMs behind them are missing.
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ControlServer, controlSocketName } from '../../control/server.ts'
import { VmDirectory } from '../../control/vms.ts'
import { createVmFolder } from '../../vm/vm-folder.ts'
import { details, info } from './support.ts'

async function runningVm(vms: string, createdAtMs: number, runId: string | null = null): Promise<string> {
  const { id, path: folder } = await createVmFolder(vms)
  const refused = async () => ({ ok: false, error: { code: 'unavailable', message: 'not here' } }) as const
  const server = await ControlServer.open(path.join(folder, controlSocketName), {
    vm: {
      describe: () => ({ ...info, id, runId, createdAtMs }),
      inspect: async () => ({ ...details, id, runId, createdAtMs }),
      console: { text: () => '', onData: () => () => undefined },
      stop: () => undefined,
      setPaused: async () => undefined,
      access: { openShell: refused, openForward: refused },
    },
  })
  onTestFinished(() => server[Symbol.asyncDispose]())
  return id
}

describe('a VM', () => {
  it('is found by its id, its run, the beginning of either, or as the last that began [V.08]', async () => {
    const vms = await temporaryFolder('vms')
    const directory = new VmDirectory({ vms })
    await expect(directory.find('last')).rejects.toThrow('no VM is running')
    const runId = 'run-ffff0000000000000000'
    const [, second] = [
      await runningVm(vms, 1_000),
      await runningVm(vms, 3_000, runId),
      await runningVm(vms, 2_000),
    ]
    for (const name of ['last', second, second.slice(0, 14), runId, 'run-ffff', 'ffff00'])
      expect((await directory.find(name)).info.id).toBe(second)
    expect(await (await directory.find(second)).inspect()).toEqual({
      ...details,
      id: second,
      runId,
      createdAtMs: 3_000,
    })
    await expect(directory.find('vm-')).rejects.toThrow('matches 3 VMs')
  })

  it('is described with its usage among all others; one that does not answer is left out [V.08]', async () => {
    const vms = await temporaryFolder('vms')
    const directory = new VmDirectory({ vms })
    expect(await directory.inspectAll()).toEqual([])
    const [late, early] = [await runningVm(vms, 3_000), await runningVm(vms, 1_000)]
    await createVmFolder(vms)
    expect(await directory.inspectAll()).toMatchObject([
      { id: early, usage: details.usage },
      { id: late, usage: details.usage },
    ])
  })
})
