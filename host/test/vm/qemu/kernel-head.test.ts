import { readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { writeKernelHead } from '../../../vm/vm-command.ts'

async function headOf(kernel: Buffer) {
  const folder = await temporaryFolder('kernel')
  const [whole, head] = [path.join(folder, 'vmlinuz'), path.join(folder, 'head')]
  await writeFile(whole, kernel)
  return { isWritten: await writeKernelHead(whole, head), head }
}

function makeKernel(setupSectors: number, bytes: number): Buffer {
  const kernel = Buffer.alloc(bytes, 7)
  kernel.writeUInt8(setupSectors, 0x1f1)
  kernel.write('HdrS', 0x202, 'latin1')
  return kernel
}

describe('writeKernelHead', () => {
  it('keeps what QEMU reads of a kernel, and a little of what the guest would [V.01]', async () => {
    for (const [sectors, expected] of [
      [39, 39],
      [0, 4],
      [255, 255],
    ] as const) {
      const kernel = makeKernel(sectors, 1024 * 1024)
      const { isWritten, head } = await headOf(kernel)
      expect(isWritten).toBe(true)
      const written = await readFile(head)
      expect(written.length).toBe((expected + 1) * 512 + 4096)
      expect(written.equals(kernel.subarray(0, written.length))).toBe(true)
      expect((await stat(head)).mode & 0o777).toBe(0o644)
    }
  })

  it('leaves alone what is no such kernel, or shorter than it says [V.01]', async () => {
    for (const kernel of [
      Buffer.alloc(0),
      Buffer.alloc(100_000, 1),
      makeKernel(39, 1_000),
      makeKernel(39, 20_480),
    ]) {
      const { isWritten, head } = await headOf(kernel)
      expect(isWritten).toBe(false)
      await expect(stat(head)).rejects.toThrow('ENOENT')
    }
  })
})
