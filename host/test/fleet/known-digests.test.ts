import { appendFile, rename, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { KnownDigests } from '../../fleet/known-digests.ts'

it('a file is read again when it changed, was replaced, or changed shortly before it was read', async () => {
  const folder = await temporaryFolder('digests')
  const file = path.join(folder, 'layer')
  await writeFile(file, 'content')
  const known = new KnownDigests()
  let reads = 0
  const look = async () => {
    let isKnown = true
    await known.of(file, async (before) => {
      isKnown = before !== undefined
      if (before !== undefined) return before
      reads += 1
      return { sha256: `${reads}`.padStart(64, '0'), bytes: 7 }
    })
    return isKnown
  }
  // It may change again within the same tick of its clock.
  expect([await look(), await look()]).toEqual([false, false])
  await sleep(2_100)
  expect([await look(), await look(), await look()]).toEqual([false, true, true])
  await appendFile(file, 'more')
  expect(await look()).toBe(false)
  await sleep(2_100)
  expect([await look(), await look()]).toEqual([false, true])
  // Of the same size, with the same time of its content.
  const other = path.join(folder, 'other')
  await writeFile(other, 'CONTENTmore')
  await utimes(other, 1, 1)
  await utimes(file, 1, 1)
  expect(await look()).toBe(false)
  await sleep(2_100)
  expect([await look(), await look()]).toEqual([false, true])
  await rename(other, file)
  expect(await look()).toBe(false)
})
