import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { writeDiskImage, writeRawDisk } from '../../image/disk-image.ts'
import type { Image } from '../../image/image.ts'
import { hashFile } from '../../image/verify.ts'
import { startVm } from '../../vm/vm.ts'
import { makeTestFolders } from '../support/vm.ts'
import { makeScratch, makeStandInImage, type Scratch } from './support.ts'

const MIB = 1024 * 1024
let scratch: Scratch
let image: Image

beforeAll(async () => {
  scratch = await makeScratch()
  image = await makeStandInImage(scratch.folder)
})
afterAll(async () => await scratch[Symbol.asyncDispose]())

it('is laid out the same every time [V.07]', async () => {
  const disks = [path.join(scratch.folder, 'a.raw'), path.join(scratch.folder, 'b.raw')]
  for (const out of disks) await writeRawDisk({ image, out })
  const [first, second] = await Promise.all(disks.map(hashFile))
  expect(second).toBe(first)
})

it('becomes a qcow2 by Packer that boots until init is ready [V.07]', async () => {
  const disk = path.join(scratch.folder, 'caisson.qcow2')
  await writeDiskImage({ image, out: disk })
  using home = makeTestFolders()
  await using vm = await startVm({
    image: { disk, format: 'qcow2' },
    folders: home.folders,
    memoryBytes: 512 * MIB,
  })
  expect(vm.console.text()).toContain('caisson: init ready')
})
