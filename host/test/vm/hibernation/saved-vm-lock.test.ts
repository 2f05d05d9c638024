import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findSavedVm } from '../../../vm/hibernation/hibernate.ts'
import { claimSavedVm, removeSaved, SAVED_RECORD } from '../../../vm/hibernation/saved-vm-lock.ts'

const claims = new URL('../../../vm/hibernation/saved-vm-lock.ts', import.meta.url).href

/** What a save leaves, as far as claims look at it. */
async function saved(): Promise<string> {
  const directory = path.join(await temporaryFolder('saved'), 'vm')
  await mkdir(directory)
  const record = {
    version: 3,
    savedAtMs: 1,
    qemuVersion: '7.2.0',
    accelerator: 'tcg',
    memoryBytes: 1,
    cpus: 1,
    diskBytes: 1,
    scratchFormat: 'raw',
    hasBase: false,
    image: [],
    samples: { scratch: { bytes: 1, sha256: '' } },
  }
  await writeFile(path.join(directory, SAVED_RECORD), JSON.stringify(record))
  return directory
}

/** A process of its own that does this and then lives until it is killed. */
async function startTaker(work: string): Promise<ChildProcess> {
  const code = `const { claimSavedVm } = await import(${JSON.stringify(claims)}); ${work}; console.log('done'); setInterval(() => {}, 60_000)`
  const child = spawn(
    process.execPath,
    ['--conditions=caisson-source', '--input-type=module-typescript', '-e', code],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  return child
}

async function kill(child: ChildProcess): Promise<void> {
  const closed = once(child, 'close')
  child.kill('SIGKILL')
  await closed
}

const dyingAfter = async (work: string) => await kill(await startTaker(work))

describe('a saved VM', () => {
  it('is found by nobody else while a process wakes it, and again when that gave it back [V.04]', async () => {
    const directory = await saved()
    expect(await findSavedVm(directory)).toMatchObject({ directory })
    const claim = await claimSavedVm(directory)
    expect(await findSavedVm(directory)).toBeUndefined()
    await expect(claimSavedVm(directory)).rejects.toThrow('holds the lock')
    await claim.giveBack()
    expect(await findSavedVm(directory)).toMatchObject({ directory })
    expect(await readdir(directory)).toEqual([SAVED_RECORD])
  })

  it('stays with the process that wakes it when another one tries the same and is killed [V.04 R.05]', async () => {
    const directory = await saved()
    const claim = await claimSavedVm(directory)
    await dyingAfter(`await claimSavedVm(${JSON.stringify(directory)}).catch(() => undefined)`)
    expect(await findSavedVm(directory)).toBeUndefined()
    await removeSaved(directory)
    await claim.consumeSavedVm()
    expect(await readdir(directory)).toEqual(['ran.json'])
    await removeSaved(directory)
    await expect(readdir(directory)).rejects.toThrow('ENOENT')
  })

  it('stays with a process that is stopped, and is found once that was killed [V.04 V.06 R.05]', async () => {
    const directory = await saved()
    const taker = await startTaker(`await claimSavedVm(${JSON.stringify(directory)})`)
    taker.kill('SIGSTOP')
    expect(await findSavedVm(directory)).toBeUndefined()
    await kill(taker)
    expect(await readdir(directory)).not.toContain(SAVED_RECORD)
    expect(await findSavedVm(directory)).toMatchObject({ directory })
  })

  it('goes to one of many that want what a killed process had taken [V.04 R.05]', async () => {
    const directory = await saved()
    await dyingAfter(`await claimSavedVm(${JSON.stringify(directory)})`)
    const found = await Promise.all(
      Array.from({ length: 8 }, async () => {
        await findSavedVm(directory)
        return await claimSavedVm(directory).catch(() => undefined)
      }),
    )
    expect(found.filter((claim) => claim !== undefined)).toHaveLength(1)
  })

  it('is good for no other wake once its guest has run, whoever died [V.04]', async () => {
    const [own, others] = [await saved(), await saved()]
    const claim = await claimSavedVm(own)
    // A wake that is late gives it back while it is being marked.
    await Promise.all([claim.consumeSavedVm(), claim.giveBack()])
    expect(await findSavedVm(own)).toBeUndefined()
    await dyingAfter(`await (await claimSavedVm(${JSON.stringify(others)})).consumeSavedVm()`)
    expect(await findSavedVm(others)).toBeUndefined()
  })
})
