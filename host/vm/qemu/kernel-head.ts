// The beginning of a Linux kernel's image, for a VM that is resumed. QEMU wants the kernel that the VM was booted with,
// so that it has the same devices, and keeps all of it in memory of its own; yet only a boot reads what is behind the
// header, and a resumed VM never boots (it ends where it would).
// Format: Linux, Documentation/arch/x86/boot.rst.

import { open, writeFile } from 'node:fs/promises'

const SECTOR_BYTES = 512
/** Length of the real-mode part behind the first sector, in sectors; 0 means 4. */
const SETUP_SECTORS_OFFSET = 0x1f1
const MAGIC_OFFSET = 0x202
const MAGIC = 'HdrS'
/** Of the part behind, which QEMU expects to be there. */
const REST_BYTES = 4096

/** Writes the head to `file`, which must not exist; readable to all, as QEMU may be another user. False: it has no such form. */
export async function writeKernelHead(kernel: string, file: string): Promise<boolean> {
  const handle = await open(kernel)
  try {
    const header = Buffer.alloc(2 * SECTOR_BYTES)
    await handle.read(header, 0, header.length, 0)
    if (header.toString('latin1', MAGIC_OFFSET, MAGIC_OFFSET + MAGIC.length) !== MAGIC) return false
    const sectors = header.readUInt8(SETUP_SECTORS_OFFSET) || 4
    const head = Buffer.alloc((sectors + 1) * SECTOR_BYTES + REST_BYTES)
    const { bytesRead } = await handle.read(head, 0, head.length, 0)
    if (bytesRead < head.length) return false
    await writeFile(file, head, { flag: 'wx', mode: 0o644 })
    return true
  } finally {
    await handle.close()
  }
}
