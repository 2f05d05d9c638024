// Real VMs for tests: the image through the host's own builder, folders of the test's own, and what is needed to
// see whether anything was left behind. The image lies in the user's cache, so that all tests share one.

import { mkdtempSync, rmSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { ensureImage } from '../../image/image.ts'
import { type Folders, prepareFolders, resolveFolders } from '../../state/folders.ts'
import { type StartVmOptions, startVm, type Vm, type VmImage } from '../../vm/vm.ts'

const MIB = 1024 * 1024

let image: Promise<VmImage> | undefined

/** The image and agent of this checkout, built when they are not in the cache yet. */
export function getTestImage(): Promise<VmImage> {
  image ??= (async () => {
    using home = makeTestFolders()
    await prepareFolders(home.folders)
    return await ensureImage({ cacheDir: home.folders.cache })
  })()
  return image
}

/** State folders of one test and the cache of the user; disposing removes the state. */
export function makeTestFolders(): { readonly folders: Folders } & Disposable {
  const home = mkdtempSync(join(tmpdir(), 'caisson-home-'))
  const folders = resolveFolders({ ...process.env, CAISSON_HOME: home })
  return { folders, [Symbol.dispose]: () => rmSync(home, { recursive: true, force: true }) }
}

/** Starts a VM with the test image and, unless given, 512 MiB; the caller disposes it. */
export async function startTestVm(
  options: { readonly folders: Folders } & Partial<StartVmOptions>,
): Promise<Vm> {
  return startVm({ image: await getTestImage(), memoryBytes: 512 * MIB, ...options })
}

/** Whether the process runs; one that only waits to be reaped does not. */
export async function isRunning(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  if (process.platform !== 'linux') return true
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  return stat !== '' && !/\) [ZX] /.test(stat)
}

/** Waits until the process is gone; false when it is still there after `deadlineMs`. */
export async function waitUntilGone(pid: number, deadlineMs = 60_000): Promise<boolean> {
  for (const end = performance.now() + deadlineMs; performance.now() < end; await sleep(10)) {
    if (!(await isRunning(pid))) return true
  }
  return false
}

/** Writes a kernel that does nothing forever, as a guest looks that hangs before its first word. */
export async function writeHangingKernel(path: string): Promise<void> {
  // Multiboot 1 with the address fields (flag 16), as QEMU's -kernel loads it; then `jmp .`
  const [magic, flags, address] = [0x1badb002, 0x10000, 0x100000]
  const header = [magic, flags, -(magic + flags) >>> 0, address, address, 0, 0, address + 32]
  const bytes = Buffer.alloc(4096)
  for (const [index, word] of header.entries()) bytes.writeUInt32LE(word, index * 4)
  bytes.set([0xeb, 0xfe], 32)
  await writeFile(path, bytes, { mode: 0o644 })
}
