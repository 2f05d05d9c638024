import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { resolveFolders } from '../../state/folders.ts'
import { VmPool, type VmPoolOptions } from '../../vm/vm-pool.ts'

const MIB = 1024 * 1024
const nothing = '/does/not/exist'

/** A pool of VMs with 512 MiB each, which begins with none where its bounds allow it. */
async function poolOf(options: VmPoolOptions): Promise<VmPool> {
  const image = { kernel: nothing, initramfs: nothing, root: nothing, agentDisk: nothing }
  const folders = resolveFolders({ CAISSON_HOME: await temporaryFolder('pool') })
  const warmUp = () => Promise.reject(new Error('nothing is started here'))
  return new VmPool({ image, folders, memoryBytes: 512 * MIB }, { warmUp }, options)
}

describe('the bounds of a pool of VMs', () => {
  it('are as many as fit into the memory that it may have, each counted whole, or fewer by number [V.01]', async () => {
    await expect(poolOf({ size: 3, maxMemoryBytes: 1535 * MIB })).rejects.toThrow(
      'a pool of 3 cannot be bounded to 2',
    )
    await expect(poolOf({ size: 3, maxMemoryBytes: 4096 * MIB, maxVms: 2 })).rejects.toThrow('bounded to 2')
    await expect(poolOf({ size: 0, maxMemoryBytes: 511 * MIB })).rejects.toThrow('bounded to 0')
    await using pool = await poolOf({ size: 0, maxMemoryBytes: 512 * MIB })
    expect(pool.counts).toEqual({ ready: 0, starting: 0, handedOut: 0, waiting: 0 })
  })
})
