// Opens the files of a VM's drives, which QEMU inherits, and creates the scratch disk. Extends the workspace file to
// the drive size that a template's guest expects.

import { constants, copyFile, link, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { CheckpointDisk, type PreparedDisk, type SealedLayer } from './checkpoints/checkpoint-disk.ts'
import { makeSparseFile } from './hibernation/sparse-file.ts'
import type { BackingSpec, LayerSpec } from './qemu/qemu-args.ts'
import type { DrivePlan } from './qemu/qemu-process.ts'
import type { VmFolder } from './vm-folder.ts'

/** Absolute paths of an image's files. */
export interface VmImage {
  readonly kernel: string
  readonly initramfs: string
  /** erofs image of the drive `root`. */
  readonly root: string
  /** erofs image of the drive `agent`. */
  readonly agentDisk: string
}

/** One bootable disk with kernel, root and agent, as Packer builds it. */
export interface VmDiskImage {
  readonly disk: string
  readonly format: 'qcow2' | 'raw'
}

/**
 * Size of every workspace drive, sparse. A guest restored from a template does not read its drive's size again. A VM
 * could not work with a larger workspace anyway.
 */
export const WORKSPACE_DRIVE_BYTES = 256 * 1024 ** 3

/** Initial state of a VM's scratch disk. */
export type ScratchStart =
  /** `file`: path of the new disk. Absent: in the VM's folder. */
  | { readonly kind: 'blank'; readonly bytes: number; readonly file?: string }
  /** An empty qcow2 file is copied and used as an overlay on a read-only raw file. */
  | { readonly kind: 'overlay'; readonly base: string; readonly empty: string }
  /** The disk of a saved VM and its base, if any; both are moved to the new VM. */
  | {
      readonly kind: 'moved'
      readonly file: string
      readonly format: 'raw' | 'qcow2'
      readonly base?: string
      /** Layers between base and file, which are in this folder. */
      readonly layers?: { readonly sealed: readonly SealedLayer[]; readonly directory: string }
    }

interface OpenDrives {
  readonly drives: readonly DrivePlan[]
  readonly scratch: ScratchFile
  /** Empty files for further layers of the scratch disk. */
  readonly layers: readonly LayerSpec[]
  /** Absent: the scratch disk can have no checkpoints. */
  readonly checkpoints?: { readonly disk: CheckpointDisk; readonly prepared: PreparedDisk }
}

type OpenFile = (path: string, flags: 'r' | 'r+') => Promise<number>

/** Name of the scratch disk's file in the VM's folder. */
export interface ScratchFile {
  readonly file: string
  readonly format: 'raw' | 'qcow2'
  readonly base?: string
}

export interface DriveOptions {
  readonly image: VmImage | VmDiskImage
  /** erofs file of the drive `workspace`. Absent: no such drive. */
  readonly workspaceDisk?: string
  /** Instead of `workspaceDisk`: an empty file, {@link ownWorkspace}, which is written before the guest mounts it. */
  readonly hasOwnWorkspace?: boolean
  /** Where the scratch disk lies, so that it can have checkpoints. Absent: in the VM's folder, without checkpoints. */
  readonly checkpointDisk?: CheckpointDisk
  /** Instead of `checkpointDisk`: one in the VM's folder, which may be moved to its run. */
  readonly hasOwnCheckpoints?: boolean
}

/** Opens all drives; `openFile` keeps the descriptors until the spawn. */
export async function openDrives(
  { image, workspaceDisk, hasOwnWorkspace, checkpointDisk, hasOwnCheckpoints = false }: DriveOptions,
  start: ScratchStart,
  folder: VmFolder,
  openFile: OpenFile,
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
  const disk = hasOwnCheckpoints ? await CheckpointDisk.create(join(folder.path, 'scratch')) : checkpointDisk
  const prepared = disk && (await prepareLayers(disk, start))
  if (disk !== undefined && prepared !== undefined)
    return { ...(await openLayers(prepared, drives, openFile)), checkpoints: { disk, prepared } }
  const scratch = await makeScratch(start, folder)
  const fd = await openFile(scratch.file, 'r+')
  const below =
    scratch.base === undefined
      ? {}
      : { backings: [{ fd: await openFile(scratch.base, 'r'), format: 'raw' as const }] }
  drives.push({ serial: 'scratch', format: scratch.format, readOnly: false, fd, ...below })
  return { drives, scratch, layers: [] }
}

/** Undefined for the raw disk of a saved VM, which can have no checkpoints. */
async function prepareLayers(disk: CheckpointDisk, start: ScratchStart): Promise<PreparedDisk | undefined> {
  if (start.kind !== 'moved') return await disk.prepare(start)
  const { file: top, base, format, layers } = start
  if (base === undefined || format === 'raw') return undefined
  return await disk.adopt({ top, base, sealed: layers?.sealed ?? [], directory: layers?.directory ?? '' })
}

async function openLayers(
  prepared: PreparedDisk,
  drives: readonly DrivePlan[],
  openFile: OpenFile,
): Promise<OpenDrives> {
  const { base, sealed, top, spares } = prepared
  const backings: BackingSpec[] = []
  for (const file of sealed.toReversed()) backings.push({ fd: await openFile(file, 'r'), format: 'qcow2' })
  backings.push({ fd: await openFile(base, 'r'), format: 'raw' })
  const fd = await openFile(top, 'r+')
  const readerFd = await openFile(top, 'r')
  const layers: LayerSpec[] = []
  for (const file of spares)
    layers.push({ fd: await openFile(file, 'r+'), readerFd: await openFile(file, 'r') })
  const scratch = { serial: 'scratch', format: 'qcow2', readOnly: false, fd, readerFd, backings } as const
  return { drives: [...drives, scratch], scratch: { file: top, format: 'qcow2', base }, layers }
}

/** File of the drive `workspace` of a VM started with `hasOwnWorkspace`; removed with the VM's folder. */
export function ownWorkspace(folder: Pick<VmFolder, 'path'>): string {
  return join(folder.path, 'workspace.erofs')
}

async function makeOwnWorkspace(folder: VmFolder): Promise<string> {
  const file = ownWorkspace(folder)
  await (await open(file, 'wx', 0o600)).close()
  return file
}

/** Extends the file to the size of every workspace drive; the extension takes no disk space. */
async function extendWorkspace(file: string): Promise<void> {
  const handle = await open(file, 'r+')
  try {
    if ((await handle.stat()).size < WORKSPACE_DRIVE_BYTES) await handle.truncate(WORKSPACE_DRIVE_BYTES)
  } finally {
    await handle.close()
  }
}

async function makeScratch(start: ScratchStart, folder: VmFolder): Promise<ScratchFile> {
  if (start.kind === 'moved') {
    if (start.layers !== undefined) throw new TypeError('a disk with layers needs a folder for them')
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
    // A hard link: the template may be removed while this VM lives, and the VM saved later.
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
