// Copies of runs of other hosts give way: in real folders, by their own times and sizes.
import { existsSync } from 'node:fs'
import { mkdir, readdir, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeEach, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { removeOldCopies } from '../../fleet-runs/copy-bounds.ts'
import { newRunId } from '../../journal/run-store.ts'
import { RunLock } from '../../workspace/run-lock.ts'

const hour = 60 * 60_000
const now = Date.UTC(2026, 0, 2)
const none = { isHere: () => false }
const many = { maxRuns: 100, maxBytes: 1024 ** 3 }
let folders: { readonly runs: string; readonly locks: string }

beforeEach(async () => {
  const home = await temporaryFolder('copies')
  folders = { runs: path.join(home, 'runs'), locks: path.join(home, 'locks') }
  await mkdir(folders.runs)
  await mkdir(folders.locks)
})

/** A copy that was used so many hours ago. */
async function makeCopy(hoursAgo: number, bytes = 1_000, files: readonly string[] = []): Promise<string> {
  const runId = newRunId()
  const directory = path.join(folders.runs, runId)
  await mkdir(directory)
  await writeFile(path.join(directory, 'journal.jsonl'), Buffer.alloc(bytes, 'x'))
  for (const file of files) await writeFile(path.join(directory, file), '{\n')
  const marker = path.join(directory, 'fleet.json')
  await writeFile(marker, '{"fleet":""}')
  const at = new Date(now - hoursAgo * hour)
  await utimes(marker, at, at)
  return runId
}

const has = (runId: string) => existsSync(path.join(folders.runs, runId))

it('within the bounds every copy stays', async () => {
  await makeCopy(48)
  expect(await removeOldCopies(folders, many, none, now)).toEqual([])
})

it('beyond the number, the copies that nobody used for the longest time are removed, and no run of this machine', async () => {
  const own = newRunId()
  await mkdir(path.join(folders.runs, own))
  const [oldest, middle, newest] = [await makeCopy(5), await makeCopy(4), await makeCopy(3)]
  expect(await removeOldCopies(folders, { ...many, maxRuns: 3 }, none, now)).toEqual([oldest, middle])
  expect([has(own), has(newest)]).toEqual([true, true])
})

it('beyond the bytes, as many copies are removed as these need', async () => {
  const [oldest] = [await makeCopy(9, 300_000), await makeCopy(8, 300_000), await makeCopy(7, 300_000)]
  expect(await removeOldCopies(folders, { ...many, maxBytes: 800_000 }, none, now)).toEqual([oldest])
})

it('a copy that was read a moment ago, is worked on, carried out here, or holds what undo needs, stays', async () => {
  await makeCopy(0.01)
  const [locked, here, applied] = [
    await makeCopy(9),
    await makeCopy(8),
    await makeCopy(7, 1_000, ['apply.jsonl']),
  ]
  await using _ = await RunLock.take(folders.locks, locked)
  const isHere = { isHere: (runId: string) => runId === here }
  expect(await removeOldCopies(folders, { ...many, maxRuns: 1 }, isHere, now)).toEqual([])
  expect(await readdir(folders.runs)).toHaveLength(4)
  expect(has(applied)).toBe(true)
})
