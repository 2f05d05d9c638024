/**
 * Whether a qcow2 file is one as our VMs make it, before QEMU opens it: version 3, of the disk's size, without a name of
 * another file, an encryption or a snapshot, all its tables within it. Format: QEMU's docs/interop/qcow2.txt.
 */
import type { FileHandle } from 'node:fs/promises'
import { invalidArchive } from './format.ts'

const clusterBits = 16
const clusterBytes = 2 ** clusterBits
const headerBytes = 104
/** The names of features, for messages. Others name files or keys. */
const harmlessExtensions: ReadonlySet<number> = new Set([0x6803f857])
/** Unclosed after a kill. */
const dirtyBit = 1n
const offsetMask = 0x00ff_ffff_ffff_fe00n
const compressedBit = 1n << 62n

/** @throws {CaissonError} `invalid_archive` */
export async function checkQcow2(file: FileHandle, name: string, diskBytes: number): Promise<void> {
  const bad = (why: string) => invalidArchive(`${name} is no layer of a disk of ours: ${why}`)
  const { size } = await file.stat()
  const header = await readAt(file, 0, Math.min(size, clusterBytes))
  if (header.length < headerBytes || header.toString('latin1', 0, 4) !== 'QFI\u00fb')
    throw bad('it is not qcow2')
  const u32 = (at: number) => header.readUInt32BE(at)
  const u64 = (at: number) => header.readBigUInt64BE(at)
  if (u32(4) !== 3) throw bad(`version ${u32(4)}`)
  if (u64(8) !== 0n || u32(16) !== 0) throw bad('it names a file below it')
  if (u32(20) !== clusterBits) throw bad('another size of clusters')
  if (u64(24) !== BigInt(diskBytes)) throw bad(`a disk of ${u64(24)} bytes, expected ${diskBytes}`)
  if (u32(32) !== 0) throw bad('it is encrypted')
  if (u32(60) !== 0) throw bad('it has snapshots')
  if ((u64(72) & ~dirtyBit) !== 0n || u64(88) !== 0n) throw bad('features that we do not use')
  if (u32(96) !== 4) throw bad('other counts of references')
  const length = u32(100)
  if (length < headerBytes || length > 4_096) throw bad('a header of another length')
  if (length > headerBytes && header[headerBytes] !== 0) throw bad('another compression')
  checkExtensions(header, length, bad)
  const l1Entries = Math.ceil(diskBytes / (clusterBytes * (clusterBytes / 8)))
  if (u32(36) !== l1Entries) throw bad('a table of another size')
  const within = (offset: bigint, bytes: number) =>
    offset >= BigInt(clusterBytes) &&
    offset % BigInt(clusterBytes) === 0n &&
    offset + BigInt(bytes) <= BigInt(size)
  const table = u64(40)
  if (!within(table, l1Entries * 8)) throw bad('its table is not in it')
  if (!within(u64(48), u32(56) * clusterBytes) || u32(56) > 1_024) throw bad('its counts are not in it')
  await checkReferences(file, { at: Number(u64(48)), bytes: u32(56) * clusterBytes, within, bad })
  const l1 = await readAt(file, Number(table), l1Entries * 8)
  for (let entry = 0; entry < l1Entries; entry += 1) {
    const offset = l1.readBigUInt64BE(entry * 8) & offsetMask
    if (offset === 0n) continue
    if (!within(offset, clusterBytes)) throw bad('a table leads out of it')
    await checkClusters(file, Number(offset), size, bad)
  }
}

type Bad = (why: string) => Error

function checkExtensions(header: Buffer, from: number, bad: Bad): void {
  for (let at = from; at + 8 <= header.length; ) {
    const [type, bytes] = [header.readUInt32BE(at), header.readUInt32BE(at + 4)]
    if (type === 0) return
    if (!harmlessExtensions.has(type)) throw bad('its header has a part that we do not use')
    at += 8 + Math.ceil(bytes / 8) * 8
  }
  throw bad('its header has no end')
}

interface References {
  readonly at: number
  readonly bytes: number
  readonly within: (offset: bigint, bytes: number) => boolean
  readonly bad: Bad
}

async function checkReferences(file: FileHandle, { at, bytes, within, bad }: References): Promise<void> {
  const table = await readAt(file, at, bytes)
  for (let entry = 0; entry + 8 <= table.length; entry += 8) {
    const offset = table.readBigUInt64BE(entry)
    if (offset !== 0n && !within(offset, clusterBytes)) throw bad('its counts lead out of it')
  }
}

/** Each cluster of data lies in the file, whole but for the last one. */
async function checkClusters(file: FileHandle, table: number, size: number, bad: Bad): Promise<void> {
  const l2 = await readAt(file, table, clusterBytes)
  for (let entry = 0; entry < l2.length; entry += 8) {
    const value = l2.readBigUInt64BE(entry)
    if ((value & compressedBit) !== 0n) throw bad('it is compressed')
    const offset = value & offsetMask
    if (offset === 0n) continue
    if (offset % BigInt(clusterBytes) !== 0n || offset < BigInt(clusterBytes) || offset >= BigInt(size))
      throw bad('a cluster lies outside of it')
  }
}

async function readAt(file: FileHandle, at: number, bytes: number): Promise<Buffer> {
  const found = Buffer.alloc(bytes)
  const { bytesRead } = await file.read(found, 0, bytes, at)
  return found.subarray(0, bytesRead)
}
