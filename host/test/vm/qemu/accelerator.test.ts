// An accelerator that somebody asks for and that cannot work here, with the real QEMU.
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../../host.ts'
import { searchProgram } from '../../../processes/programs.ts'
import { probeRequested } from '../../../vm/qemu/accelerator.ts'
import { QEMU } from '../../../vm/qemu/qemu-programs.ts'

describe('an accelerator that does not work here', () => {
  const other = process.platform === 'linux' ? 'hvf' : 'kvm'

  it('is refused before an image is built, with the reason and the remedy of doctor [V.02]', async () => {
    const home = await temporaryFolder('home')
    const env = { ...process.env, CAISSON_HOME: home, CAISSON_CACHE: path.join(home, 'cache') }
    await using host = new Host({ env })
    const progress: string[] = []
    const started = host.sandbox({
      vm: { accelerator: other },
      onProgress: (text) => void progress.push(text),
    })
    await expect(started).rejects.toMatchObject({
      code: 'vm_failed',
      message: expect.stringMatching(/no accelerator available to this user.*vm\.accelerator: tcg/),
    })
    expect(progress).toEqual([])
  })

  it('is refused where its trial fails, also one that failed before and is tried again [V.02]', async () => {
    const folder = await temporaryFolder('machine')
    const kernel = path.join(folder, 'kernel')
    await writeFile(kernel, 'no kernel at all')
    const qemu = (await searchProgram(QEMU)).path ?? ''
    const options = { qemu, kernel, cacheDirectory: folder, confine: 'auto' } as const
    for (const _ of ['first', 'again'])
      await expect(probeRequested('kvm', options)).rejects.toMatchObject({
        kind: 'accelerator_unavailable',
        seen: expect.stringMatching(/kvm was tried: QEMU ended at once|no accelerator available/),
      })
    expect((await probeRequested('tcg', options)).accelerator).toBe('tcg')
  })
})
