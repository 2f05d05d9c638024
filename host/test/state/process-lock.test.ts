import { spawnSync } from 'node:child_process'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { ownIdentity } from '../../state/process-identity.ts'
import { takeProcessLock } from '../../state/process-lock.ts'
import { makeScratch } from '../image/support.ts'

it('lets one in at a time and leaves nothing behind [V.07]', async () => {
  await using scratch = await makeScratch()
  const file = path.join(scratch.folder, 'image.lock')
  let inside = 0
  let most = 0
  const visit = async () => {
    await using _lock = await takeProcessLock(file)
    most = Math.max(most, ++inside)
    await new Promise((resolve) => setTimeout(resolve, 5))
    inside -= 1
  }
  await Promise.all([visit(), visit(), visit(), visit()])
  expect(most).toBe(1)
  expect(await readdir(scratch.folder)).toEqual(['cache'])
})

it('tells who holds the lock, and ends the wait when asked [V.07]', async () => {
  await using scratch = await makeScratch()
  const file = path.join(scratch.folder, 'image.lock')
  await using _lock = await takeProcessLock(file)
  const stop = new AbortController()
  const holders: number[] = []
  const second = takeProcessLock(file, {
    signal: stop.signal,
    onWait: (pid) => {
      holders.push(pid)
      stop.abort()
    },
  })
  await expect(second).rejects.toMatchObject({ name: 'AbortError' })
  expect(holders).toEqual([process.pid])
  expect(await readdir(scratch.folder)).toEqual(['cache', 'image.lock'])
})

it.each([
  ['a process that ended', async () => ({ ...(await ownIdentity()), pid: endedPid(), token: 'x' })],
  [
    'a process whose number is another one today',
    async () => ({ ...(await ownIdentity()), born: '1', token: 'x' }),
  ],
  ['nobody who can be read', async () => 'not a lock'],
])('takes over the lock of %s [V.07]', async (_, holder) => {
  await using scratch = await makeScratch()
  const file = path.join(scratch.folder, 'image.lock')
  await writeFile(file, JSON.stringify(await holder()))
  await writeFile(
    `${file}.left-by-a-waiter`,
    JSON.stringify({ ...(await ownIdentity()), born: '1', token: 'y' }),
  )
  await (await takeProcessLock(file))[Symbol.asyncDispose]()
  expect(await readdir(scratch.folder)).toEqual(['cache'])
})

function endedPid(): number {
  return spawnSync('true').pid
}

it('says that a lock cannot be read, instead of trying for ever [V.07]', async () => {
  await using scratch = await makeScratch()
  const file = path.join(scratch.folder, 'image.lock')
  await mkdir(file)
  await expect(takeProcessLock(file)).rejects.toThrow(/EISDIR/)
  expect(await readdir(scratch.folder)).toEqual(['cache', 'image.lock'])
})
