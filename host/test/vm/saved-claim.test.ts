import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findSavedVm } from '../../vm/hibernate.ts'
import { giveBackSaved, markRan, SAVED_RECORD, takeSaved } from '../../vm/saved-claim.ts'

const claims = new URL('../../vm/saved-claim.ts', import.meta.url).href

/** What a save leaves, as far as claims look at it. */
async function saved(): Promise<string> {
  const directory = path.join(await temporaryFolder('saved'), 'vm')
  await mkdir(directory)
  const record = {
    version: 2,
    savedAtMs: 1,
    qemuVersion: '7.2.0',
    accelerator: 'tcg',
    memoryBytes: 1,
    cpus: 1,
    diskBytes: 1,
    scratchFormat: 'raw',
    hasBase: false,
    image: [],
  }
  await writeFile(path.join(directory, SAVED_RECORD), JSON.stringify(record))
  return directory
}

/** Another process does this, and is killed in the midst of its life. */
async function dyingAfter(work: string): Promise<void> {
  const code = `const { takeSaved, markRan } = await import(${JSON.stringify(claims)}); ${work}; console.log('done'); setInterval(() => {}, 60_000)`
  const child = spawn(
    process.execPath,
    ['--conditions=caisson-source', '--input-type=module-typescript', '-e', code],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const closed = once(child, 'close')
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  await closed
}

describe('a saved VM', () => {
  it('is found by nobody else while a process wakes it, and again when that gave it back [V.04]', async () => {
    const directory = await saved()
    expect(await findSavedVm(directory)).toMatchObject({ directory })
    await takeSaved(directory)
    expect(await findSavedVm(directory)).toBeUndefined()
    await expect(takeSaved(directory)).rejects.toThrow('ENOENT')
    await giveBackSaved(directory)
    expect(await findSavedVm(directory)).toMatchObject({ directory })
  })

  it('is found again when the process that woke it was killed before the guest ran [V.04 V.06]', async () => {
    const directory = await saved()
    await dyingAfter(`await takeSaved(${JSON.stringify(directory)})`)
    expect(await readdir(directory)).not.toContain(SAVED_RECORD)
    expect(await findSavedVm(directory)).toMatchObject({ directory })
    await takeSaved(directory)
    expect(await findSavedVm(directory)).toBeUndefined()
  })

  it('is good for no other wake once its guest has run, whoever died [V.04]', async () => {
    const [own, others] = [await saved(), await saved()]
    await takeSaved(own)
    await markRan(own)
    expect(await findSavedVm(own)).toBeUndefined()
    const name = JSON.stringify(others)
    await dyingAfter(`await takeSaved(${name}); await markRan(${name})`)
    expect(await findSavedVm(others)).toBeUndefined()
  })
})
