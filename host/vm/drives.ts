// The drives of a VM: opens every file that QEMU inherits, and makes the scratch disk. The workspace's file is made as
// long as the guest of a template believes its drive to be.

import { constants, copyFile, link, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { makeSparseFile } from './hibernation/sparse-file.ts'
import type { DrivePlan } from './qemu/qemu-process.ts'
import type { VmFolder } from './vm-folder.ts'

/** The files of an image: absolute paths. */
export interface VmImage {
  readonly kernel: string
  readonly initramfs: string
  /** erofs; the drive `root`. */
  readonly root: string
  /** erofs; the drive `agent`. */
  readonly agentDisk: string
}

/** One bootable disk that holds kernel, root and agent, as Packer makes it. */
export interface VmDiskImage {
  readonly disk: string
  readonly format: 'qcow2' | 'raw'
}

/**
 * Size of every workspace drive, sparse: a guest that is resumed from a template does not ask anew how long its drive
 * is. More than fits on it could not be worked on in a VM either.
 */
export const WORKSPACE_DRIVE_BYTES = 256 * 1024 ** 3

/** How a VM's scratch disk begins. */
export type ScratchStart =
  /** `file`: where it is made; absent: in the VM's folder. */
  | { readonly kind: 'blank'; readonly bytes: number; readonly file?: string }
  /** An empty qcow2 file is copied and laid over a frozen raw one. */
  | { readonly kind: 'overlay'; readonly base: string; readonly empty: string }
  /** The disk of a saved VM, and what lies below it, if anything: both are moved to this one. */
  | {
      readonly kind: 'moved'
      readonly file: string
      readonly format: 'raw' | 'qcow2'
      readonly base?: string
    }

export interface OpenDrives {
  readonly drives: readonly DrivePlan[]
  readonly scratch: ScratchFile
}

/** The scratch disk's file in the VM's folder. */
export interface ScratchFile {
  readonly file: string
  readonly format: 'raw' | 'qcow2'
  readonly base?: string
}

export interface DriveOptions {
  readonly image: VmImage | VmDiskImage
  /** An erofs file for the drive `workspace`; absent means that there is no such drive. */
  readonly workspaceDisk?: string
  /** In the place of `workspaceDisk` an empty file, {@link ownWorkspace}, to be written before the guest mounts it. */
  readonly hasOwnWorkspace?: boolean
}

/** Opens all drives; `openFile` keeps what it opened until the spawn. */
export async function openDrives(
  { image, workspaceDisk, hasOwnWorkspace }: DriveOptions,
  start: ScratchStart,
  folder: VmFolder,
  openFile: (path: string, flags: 'r' | 'r+') => Promise<number>,
): Promise<OpenDrives> {
  const drives: DrivePlan[] = []
  const addReadOnly = async (serial: string, path: string) => {
    drives.push({ serial, format: 'raw', readOnly: true, fd: await openFile(path, 'r') })
  }
  if ('disk' in image) {
    const fd = await openFile(image.disk, 'r')
    drives.push({ serial: 'disk', format: image.format, readOnly: true, bootable: true, fd })
  } else {
    await addReadOnly('root', image.root)
    await addReadOnly('agent', image.agentDisk)
  }
  const workspace = hasOwnWorkspace === true ? await makeOwnWorkspace(folder) : workspaceDisk
  if (workspace !== undefined) {
    await extendWorkspace(workspace)
    await addReadOnly('workspace', workspace)
  }
  const scratch = await makeScratch(start, folder)
  const fd = await openFile(scratch.file, 'r+')
  const below = scratch.base === undefined ? {} : { backingFd: await openFile(scratch.base, 'r') }
  drives.push({ serial: 'scratch', format: scratch.format, readOnly: false, fd, ...below })
  return { drives, scratch }
}

/** The file behind the drive `workspace` of a VM that was started with `hasOwnWorkspace`; goes with the VM's folder. */
export function ownWorkspace(folder: Pick<VmFolder, 'path'>): string {
  return join(folder.path, 'workspace.erofs')
}

async function makeOwnWorkspace(folder: VmFolder): Promise<string> {
  const file = ownWorkspace(folder)
  await (await open(file, 'wx', 0o600)).close()
  return file
}

/** Makes the file as long as every workspace drive is; what is beyond its content takes no space. */
export async function extendWorkspace(file: string): Promise<void> {
  const handle = await open(file, 'r+')
  try {
    if ((await handle.stat()).size < WORKSPACE_DRIVE_BYTES) await handle.truncate(WORKSPACE_DRIVE_BYTES)
  } finally {
    await handle.close()
  }
}

async function makeScratch(start: ScratchStart, folder: VmFolder): Promise<ScratchFile> {
  if (start.kind === 'moved') {
    const file = join(folder.path, `scratch.${start.format}`)
    await rename(start.file, file)
    if (start.base === undefined) return { file, format: start.format }
    const base = join(folder.path, 'base.raw')
    await rename(start.base, base)
    return { file, format: start.format, base }
  }
  if (start.kind === 'overlay') {
    const file = join(folder.path, 'scratch.qcow2')
    await copyFile(start.empty, file, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE)
    // A second name for it: the template may be removed while this VM lives, and the VM saved later.
    const base = join(folder.path, 'base.raw')
    const isLinked = await link(start.base, base).then(
      () => true,
      () => false,
    )
    return { file, format: 'qcow2', base: isLinked ? base : start.base }
  }
  const file = start.file ?? join(folder.path, 'scratch.raw')
  await makeSparseFile(file, start.bytes)
  return { file, format: 'raw' }
}
