// The bounds on all runs of a user together.
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { requireRoomForRun } from '../../runs/storage-bounds.ts'

const MiB = 1024 ** 2

async function folderOf(count: number, bytes: number): Promise<string> {
  const runs = await temporaryFolder('kept-bounds')
  for (let number = 0; number < count; number += 1) {
    const run = path.join(runs, `run-${String(number).padStart(20, '0')}`)
    await mkdir(path.join(run, 'kept'), { recursive: true })
    await writeFile(path.join(run, 'journal.jsonl'), Buffer.alloc(bytes / 2, 1))
    await writeFile(path.join(run, 'kept', 'memory'), Buffer.alloc(bytes / 2, 1))
  }
  return runs
}

describe('all runs of a user together', () => {
  it('have a bound on their number, at which none begins and none is removed [V.07]', async () => {
    const runs = await folderOf(3, 0)
    await requireRoomForRun(runs, { maxRuns: 4, maxBytes: MiB * 100 })
    await expect(requireRoomForRun(runs, { maxRuns: 3, maxBytes: MiB * 100 })).rejects.toThrow(
      /3 runs are kept .*caisson clean --runs .*caisson runs rm .*kept\.maxRuns/,
    )
    expect(await readdir(runs)).toHaveLength(3)
  })

  it('have a bound on their bytes, saved VMs among them [V.07]', async () => {
    const runs = await folderOf(4, 2 * MiB)
    await requireRoomForRun(runs, { maxRuns: 10, maxBytes: 12 * MiB })
    const refused = requireRoomForRun(runs, { maxRuns: 10, maxBytes: 8 * MiB })
    await expect(refused).rejects.toMatchObject({ code: 'limit_reached' })
    await expect(refused).rejects.toThrow(/caisson clean --runs .*kept\.maxGiB/)
  })

  it('are none where there is no folder yet', async () => {
    await requireRoomForRun(path.join(await temporaryFolder('kept-bounds'), 'none'))
  })
})
