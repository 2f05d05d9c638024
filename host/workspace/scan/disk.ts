/**
 * Builds the read-only disk of a scanned workspace and its manifest. The same disk holds added folders; no manifest does.
 */
import { closeSync, constants, fstatSync, openSync, rmSync, statfsSync } from 'node:fs'
import path from 'node:path'
import { encodePath } from '#specs/node/path-text.ts'
import type { Manifest } from '../manifest.ts'
import { failureOf, WorkspaceFailure, type WorkspaceResult, workspaceSuccess } from '../workspace-error.ts'
import { type CopiedFolder, grewTooLarge, Tree, Turns } from './disk-tree.ts'
import { ErofsWriter, erofsBlockBytes } from './erofs.ts'
import type { Scan } from './scan.ts'

/**
 * Fixed size of every workspace disk in bytes, so that a VM restored from a template finds the expected disk. The file
 * is sparse.
 */
const workspaceDiskBytes = 16 * 1024 ** 3

/** Owner of all files in the VM: the user `work`. */
const GUEST_OWNER = { uid: 1000, gid: 1000 }
const OPEN_IN_PLACE = constants.O_RDWR | constants.O_NOFOLLOW

/** A folder beside the workspace. */
interface FolderScan {
  /** Its name in the VM; unique among the folders. */
  readonly name: string
  readonly scan: Scan
}

interface DiskOptions {
  readonly scan: Scan
  /** Absent or empty: the disk's root is the workspace. */
  readonly folders?: readonly FolderScan[]
  /** Path of the disk; must not exist, is removed on failure. Mode 0600. */
  readonly file: string
  /** The file exists with only zeros and must be neither replaced nor truncated: a VM has opened it. */
  readonly isInPlace?: boolean
  /** Absent: {@link workspaceDiskBytes}. */
  readonly diskBytes?: number
  readonly signal?: AbortSignal
}

interface Disk {
  readonly manifest: Manifest
  /** Inode numbers of the workspace's files, by path. */
  readonly fileNids: ReadonlyMap<string, number>
  /** What went in of each folder, in the order of the options. */
  readonly folders: readonly CopiedFolder[]
  /** Bytes used by the image. */
  readonly usedBytes: number
}

/** Volume names, by which the guest knows what the root of the disk is. */
const volumeNames = { workspace: 'caisson-work', withFolders: 'caisson-folders' } as const

/** Writes the disk. Failures: `too_large`, `no_space`, `cancelled`, `unreadable`, `internal`. */
export async function buildDisk(options: DiskOptions): Promise<WorkspaceResult<Disk>> {
  let fd: number | undefined
  try {
    checkSpace(options)
    const flags = options.isInPlace === true ? OPEN_IN_PLACE : 'wx'
    fd = openSync(options.file, flags, 0o600)
    return workspaceSuccess(await new Builder(options, fd).run())
  } catch (thrown) {
    if (fd !== undefined) rmSync(options.file, { force: true })
    return failureOf('writing the workspace disk', thrown)
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** Maximum disk size of scans, in bytes. */
function estimateDiskBytes(scans: readonly Scan[]): number {
  const blocks = (bytes: number) => Math.ceil(bytes / erofsBlockBytes) * erofsBlockBytes
  let total = 4 * erofsBlockBytes
  for (const entry of scans.flatMap(({ entries }) => entries)) {
    // A 64-byte inode and its tail share a block with others, or use one of their own.
    total += blocks(entry.size) + erofsBlockBytes
    // A directory uses a block, and each entry a share of its parent's blocks.
    total += 300
  }
  return total
}

function checkSpace({ scan, folders = [], file, diskBytes = workspaceDiskBytes }: DiskOptions): void {
  const needed = estimateDiskBytes([scan, ...folders.map((folder) => folder.scan)])
  if (needed > diskBytes) {
    throw new WorkspaceFailure(
      'too_large',
      `the workspace needs a disk of up to ${needed} bytes, but one has at most ${diskBytes}; list what is not needed in .caissonignore`,
    )
  }
  const { bavail, bsize } = statfsSync(path.dirname(file))
  if (bavail * bsize < needed) {
    throw new WorkspaceFailure(
      'no_space',
      `the workspace disk needs up to ${needed} bytes in ${path.dirname(file)}, but ${bavail * bsize} are free; free some, or set CAISSON_HOME to a larger disk`,
    )
  }
}

/** Writes the scans in order; with folders, the root holds `workspace` and `folders`, which holds them by name. */
class Builder {
  readonly #options: DiskOptions
  readonly #writer: ErofsWriter
  readonly #diskBytes: number
  readonly #fd: number

  constructor(options: DiskOptions, fd: number) {
    this.#options = options
    this.#fd = fd
    this.#diskBytes = options.diskBytes ?? workspaceDiskBytes
    const folders = options.folders ?? []
    const own = folders.length === 0 ? 0 : 2
    const directories = [options.scan, ...folders.map(({ scan }) => scan)].reduce(
      (sum, { entries }) => sum + 1 + entries.filter(({ kind }) => kind === 'directory').length,
      own,
    )
    this.#writer = new ErofsWriter(fd, directories, GUEST_OWNER)
  }

  async run(): Promise<Disk> {
    const { scan, folders = [], signal } = this.#options
    const hasFolders = folders.length > 0
    const shared = { writer: this.#writer, diskBytes: this.#diskBytes, turns: new Turns(signal) }
    const workspace = new Tree(scan, { ...shared, firstIndex: hasFolders ? 2 : 0, parentIndex: 0 })
    await workspace.write()
    const trees: Tree[] = []
    for (const folder of folders) {
      const firstIndex = (trees.at(-1) ?? workspace).nextIndex
      const tree = new Tree(folder.scan, { ...shared, firstIndex, parentIndex: 1 })
      await tree.write()
      trees.push(tree)
    }
    if (hasFolders) {
      const attributes = { mode: 0o755, mtimeNs: 0n }
      const nid = (index: number) => this.#writer.directoryNid(index)
      this.#writer.setDirectory(0, 0, attributes, [
        { name: Buffer.from('folders'), kind: 'directory', nid: nid(1) },
        { name: Buffer.from('workspace'), kind: 'directory', nid: nid(2) },
      ])
      const inside = folders.map(({ name }, at) => ({
        name: encodePath(name),
        kind: 'directory' as const,
        nid: nid(trees[at]?.firstIndex ?? 0),
      }))
      this.#writer.setDirectory(1, 0, attributes, inside)
    }
    const volumeName = hasFolders ? volumeNames.withFolders : volumeNames.workspace
    this.#writer.finish(Math.max(this.#diskBytes, fstatSync(this.#fd).size), volumeName)
    if (this.#writer.size > this.#diskBytes) throw grewTooLarge(this.#diskBytes)
    const copied = folders.map(({ name }, at) => ({ name, ...(trees[at] ?? workspace).copied() }))
    return {
      manifest: workspace.manifest(),
      fileNids: workspace.fileNids,
      folders: copied,
      usedBytes: this.#writer.size,
    }
  }
}
