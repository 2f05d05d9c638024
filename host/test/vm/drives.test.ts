import { type FileHandle, mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openDrives, type ScratchStart, WORKSPACE_DRIVE_BYTES } from '../../vm/drives.ts'
import { createVmFolder, type VmFolder } from '../../vm/vm-folder.ts'

let place: string
let folder: VmFolder
let opened: FileHandle[]
beforeEach(async () => {
  place = await mkdtemp(join(tmpdir(), 'caisson-drives-'))
  folder = await createVmFolder(place)
  opened = []
  for (const name of ['kernel', 'initramfs', 'root', 'agent', 'workspace'])
    await writeFile(join(place, name), name)
})
afterEach(async () => {
  await Promise.all(opened.map((handle) => handle.close()))
  await rm(place, { recursive: true, force: true })
})

function openTestDrives(start: ScratchStart) {
  const at = (name: string) => join(place, name)
  const image = { kernel: at('kernel'), initramfs: at('initramfs'), root: at('root'), agentDisk: at('agent') }
  return openDrives({ image, workspaceDisk: at('workspace') }, start, folder, async (path, flags) => {
    const handle = await open(path, flags)
    opened.push(handle)
    return handle.fd
  })
}

describe('openDrives', () => {
  it('makes a sparse scratch disk in the folder of the VM, which goes with it [V.06]', async () => {
    const { drives, scratch } = await openTestDrives({ kind: 'blank', bytes: 8 * 1024 ** 3 })
    expect(drives.map(({ serial, readOnly }) => [serial, readOnly])).toEqual([
      ['root', true],
      ['agent', true],
      ['workspace', true],
      ['scratch', false],
    ])
    expect(await stat(scratch.file)).toMatchObject({ size: 8 * 1024 ** 3, blocks: 0 })
    await folder.remove()
    await expect(stat(scratch.file)).rejects.toThrow('ENOENT')
  })

  it('makes every workspace drive equally long without taking space, and keeps its content [V.01]', async () => {
    await openTestDrives({ kind: 'blank', bytes: 1024 ** 2 })
    const { size, blocks } = await stat(join(place, 'workspace'))
    expect(size).toBe(WORKSPACE_DRIVE_BYTES)
    expect(blocks * 512).toBeLessThan(1024 ** 2)
    const [, , workspace] = opened
    const { buffer } = (await workspace?.read(Buffer.alloc(9), 0, 9, 0)) ?? {}
    expect(buffer?.toString()).toBe('workspace')
  })

  it('gives each VM a layer of its own over a frozen disk [V.01]', async () => {
    await writeFile(join(place, 'base'), 'base')
    await writeFile(join(place, 'empty'), 'empty')
    const start = { kind: 'overlay', base: join(place, 'base'), empty: join(place, 'empty') } as const
    const { drives, scratch } = await openTestDrives(start)
    expect(scratch).toMatchObject({ format: 'qcow2', base: join(folder.path, 'base.raw') })
    await rm(start.base)
    expect(await readFile(scratch.base ?? '', 'utf8')).toBe('base')
    expect(await readFile(scratch.file, 'utf8')).toBe('empty')
    expect(drives.at(-1)?.backings).toMatchObject([{ fd: expect.any(Number), format: 'raw' }])
    await writeFile(scratch.file, 'changed')
    expect(await readFile(start.empty, 'utf8')).toBe('empty')
  })

  it('moves the disk of a saved VM into its folder', async () => {
    await writeFile(join(place, 'saved.raw'), 'saved')
    const { scratch } = await openTestDrives({ kind: 'moved', file: join(place, 'saved.raw'), format: 'raw' })
    expect(await readFile(scratch.file, 'utf8')).toBe('saved')
    await expect(stat(join(place, 'saved.raw'))).rejects.toThrow('ENOENT')
  })
})
