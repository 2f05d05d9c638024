import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const program = fileURLToPath(new URL('../support/on-full-disk.ts', import.meta.url))

/** On a disk of 8 MiB that is full until somebody who is asked frees most of it. */
async function onFullDisk(what: string, waits: 'waits' | 'refuses'): Promise<unknown> {
  const folder = await temporaryFolder('full')
  const node = [process.execPath, '--conditions=caisson-source', program, folder, what, waits]
  const { stdout } = await promisify(execFile)('unshare', ['--map-root-user', '--mount', ...node])
  return JSON.parse(stdout)
}

describe.runIf(process.platform === 'linux')('on a full disk', () => {
  it('a change set waits in the middle of a file and is whole once there is room [W.05]', async () => {
    expect(await onFullDisk('changes', 'waits')).toEqual({
      entries: 501,
      bytes: 5 * 1024 * 1024,
      asked: 1,
      left: ['changes.bin', 'changes.jsonl'],
    })
  })

  it('a change set is refused for want of space where nobody waits, and leaves nothing [W.05]', async () => {
    expect(await onFullDisk('changes', 'refuses')).toEqual({ code: 'no_space', asked: 0, left: ['filler'] })
  })

  it('the journal waits, and then has every line, in order [W.05]', async () => {
    expect(await onFullDisk('journal', 'waits')).toMatchObject({
      said: ['written'],
      later: 'written',
      isWhole: true,
      asked: 1,
    })
  })

  it('a journal that nobody waits for says so, stays whole, and continues when there is space [W.05]', async () => {
    expect(await onFullDisk('journal', 'refuses')).toMatchObject({
      said: ['ENOSPC', 'written'],
      later: 'written',
      isWhole: true,
    })
  })

  it('a recording waits, and without anybody waiting ends with a whole line [W.05]', async () => {
    expect(await onFullDisk('recording', 'waits')).toMatchObject({ isWhole: true, asked: 1 })
    expect(await onFullDisk('recording', 'refuses')).toMatchObject({ isCut: true, asked: 0 })
  })
})
