/** An empty qcow2 file. Format: version 3 in QEMU's docs/interop/qcow2.txt; all numbers are big-endian. */
import { open } from 'node:fs/promises'

const CLUSTER_BITS = 16
const CLUSTER_BYTES = 2 ** CLUSTER_BITS
/** An entry of the L1 table leads to one cluster of 8-byte entries, each for a cluster of data. */
const L1_ENTRY_BYTES = CLUSTER_BYTES * (CLUSTER_BYTES / 8)
const HEADER_BYTES = 104
const SECTOR_BYTES = 512
/** Header, table of reference counts, one block of them, L1 table: a cluster each. */
const CLUSTERS = { refcountTable: 1, refcountBlock: 2, l1Table: 3, count: 4 }

/**
 * Makes an existing file a qcow2 disk without content and without a name of a file below it. It takes a few blocks.
 * @param diskBytes a multiple of 512, at most 4 TiB
 */
export async function writeEmptyQcow2(file: string, diskBytes: number): Promise<void> {
  const l1Entries = Math.ceil(diskBytes / L1_ENTRY_BYTES)
  if (!Number.isSafeInteger(diskBytes / SECTOR_BYTES) || diskBytes < 1 || l1Entries * 8 > CLUSTER_BYTES)
    throw new TypeError(`no qcow2 file of ${diskBytes} bytes`)
  await using handle = await open(file, 'r+')
  await handle.truncate(0)
  await handle.truncate(CLUSTERS.count * CLUSTER_BYTES)
  await handle.write(encodeHeader(diskBytes, l1Entries), 0, undefined, 0)
  const block = Buffer.alloc(8)
  block.writeBigUInt64BE(offsetOf(CLUSTERS.refcountBlock))
  await handle.write(block, 0, undefined, CLUSTERS.refcountTable * CLUSTER_BYTES)
  const counts = Buffer.alloc(2 * CLUSTERS.count)
  for (let cluster = 0; cluster < CLUSTERS.count; cluster++) counts.writeUInt16BE(1, 2 * cluster)
  await handle.write(counts, 0, undefined, CLUSTERS.refcountBlock * CLUSTER_BYTES)
}

function encodeHeader(diskBytes: number, l1Entries: number): Buffer {
  // The last 8 bytes end the header's extensions.
  const header = Buffer.alloc(HEADER_BYTES + 8)
  header.write('QFI\u00fb', 0, 'latin1')
  header.writeUInt32BE(3, 4)
  header.writeUInt32BE(CLUSTER_BITS, 20)
  header.writeBigUInt64BE(BigInt(diskBytes), 24)
  header.writeUInt32BE(l1Entries, 36)
  header.writeBigUInt64BE(offsetOf(CLUSTERS.l1Table), 40)
  header.writeBigUInt64BE(offsetOf(CLUSTERS.refcountTable), 48)
  header.writeUInt32BE(1, 56)
  // Counts of 16 bits.
  header.writeUInt32BE(4, 96)
  header.writeUInt32BE(HEADER_BYTES, 100)
  return header
}

function offsetOf(cluster: number): bigint {
  return BigInt(cluster * CLUSTER_BYTES)
}
