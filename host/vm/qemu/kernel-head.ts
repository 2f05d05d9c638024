// Copies the beginning of a Linux kernel image for a VM that is restored. QEMU needs the kernel that the VM was booted
// with for identical devices, and keeps it in its memory. But only a boot reads past the header, and a restored VM
// never boots (it ends instead). Format: Linux, Documentation/arch/x86/boot.rst.

import { open, writeFile } from 'node:fs/promises'

const SECTOR_BYTES = 512
/** Length of the real-mode part after the first sector, in sectors; 0 means 4. */
const SETUP_SECTORS_OFFSET = 0x1f1
const MAGIC_OFFSET = 0x202
const MAGIC = 'HdrS'
/** Bytes after that part, which QEMU expects. */
const REST_BYTES = 4096

/**
 * Writes the head to `file`, which must not exist; world-readable, since QEMU may run as another user. False if the
 * kernel has another format.
 */
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
