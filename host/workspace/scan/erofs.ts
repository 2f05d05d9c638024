/**
 * Writes an uncompressed erofs image in one pass; the image contains exactly the given content. Knows nothing about
 * sources. Format: Linux, fs/erofs/erofs_fs.h and Documentation/filesystems/erofs.rst. Uses 4 KiB blocks, extended
 * (64-byte) inodes, FLAT_PLAIN and FLAT_INLINE data. Layout: block 0 is the superblock, then the table of directory
 * inodes, then data blocks and metadata blocks (file inodes with the tails of their content) in order of arrival.
 */
import { createHash } from 'node:crypto'
import { ftruncateSync, readSync, writeSync } from 'node:fs'

export const erofsBlockBytes = 4096
const INODE_BYTES = 64
const MAGIC = 0xe0f5e1e2
const SUPERBLOCK_OFFSET = 1024
/** EROFS_FEATURE_COMPAT_MTIME: times of inodes are mtimes. */
const COMPAT_MTIME = 2
const TABLE_OFFSET = erofsBlockBytes
const LAYOUT_PLAIN = 0
const LAYOUT_INLINE = 2
const TAIL_MAX = erofsBlockBytes - INODE_BYTES

const typeBits = { file: 0o100000, directory: 0o040000, link: 0o120000 } as const
const directoryTypes = { file: 1, directory: 2, link: 7 } as const

interface Attributes {
  /** Permission bits only. */
  readonly mode: number
  readonly mtimeNs: bigint
}

interface FileOwner {
  readonly uid: number
  readonly gid: number
}

/** Fields of a directory entry. */
export interface Child {
  /** Name in bytes. */
  readonly name: Buffer
  readonly kind: 'file' | 'directory' | 'link'
  /** Inode number, assigned by the writer. */
  readonly nid: number
}

export class ErofsWriter {
  readonly #fd: number
  readonly #owner: FileOwner
  readonly #table: Buffer
  #nextBlock: number
  /** The current metadata block. */
  readonly #meta = Buffer.alloc(erofsBlockBytes)
  #metaBlock = -1
  #metaUsed = erofsBlockBytes
  #inodes = 0

  /**
   * @param fd an empty or all-zero file, open for writing; the caller closes it
   * @param directories number of directories, including the root
   */
  constructor(fd: number, directories: number, owner: FileOwner) {
    this.#fd = fd
    this.#owner = owner
    this.#table = Buffer.alloc(Math.ceil((directories * INODE_BYTES) / erofsBlockBytes) * erofsBlockBytes)
    this.#nextBlock = (TABLE_OFFSET + this.#table.length) / erofsBlockBytes
  }

  /** Bytes written so far. */
  get size(): number {
    return this.#nextBlock * erofsBlockBytes
  }

  /** Inode number of directory `index`; the root is 0 and must be written too. */
  directoryNid(index: number): number {
    return (TABLE_OFFSET + index * INODE_BYTES) / 32
  }

  /** Starts a file; nothing else may be added until it ends. */
  beginFile(): ErofsFile {
    const first = this.#nextBlock
    let size = 0
    let tail = Buffer.alloc(0)
    return {
      write: (chunk) => {
        if (tail.length > 0) throw new TypeError('only the last chunk of a file may have a broken block')
        const whole = chunk.length - (chunk.length % erofsBlockBytes)
        if (whole > 0) this.#write(chunk.subarray(0, whole), first * erofsBlockBytes + size)
        tail = Buffer.from(chunk.subarray(whole))
        size += chunk.length
        this.#nextBlock += whole / erofsBlockBytes
      },
      end: (attributes) => this.#endNode('file', attributes, first, size, tail),
    }
  }

  addLink(target: Buffer, attributes: Attributes): number {
    return this.#endNode('link', attributes, this.#nextBlock, target.length, target)
  }

  /** Writes directory `index` with all its entries. */
  setDirectory(index: number, parentIndex: number, attributes: Attributes, children: readonly Child[]): void {
    const all: Child[] = [
      { name: Buffer.from('.'), kind: 'directory', nid: this.directoryNid(index) },
      { name: Buffer.from('..'), kind: 'directory', nid: this.directoryNid(parentIndex) },
      ...children,
    ]
    all.sort((a, b) => Buffer.compare(a.name, b.name))
    const { blocks, size } = encodeDirectory(all)
    const links = 2 + children.filter(({ kind }) => kind === 'directory').length
    const inode = this.#inode('directory', attributes, size, this.#nextBlock, LAYOUT_PLAIN, links)
    inode.copy(this.#table, index * INODE_BYTES)
    this.#write(blocks, this.size)
    this.#nextBlock += blocks.length / erofsBlockBytes
  }

  /**
   * Writes the buffered rest.
   * @param diskBytes size of the finished file, at least {@link size}; the rest is a hole
   * @param volumeName at most 15 ASCII characters; tells the guest what the root is
   */
  finish(diskBytes: number, volumeName: string): void {
    this.#flushMeta()
    this.#write(this.#table, TABLE_OFFSET)
    this.#write(this.#superblock(volumeName), SUPERBLOCK_OFFSET)
    ftruncateSync(this.#fd, Math.max(diskBytes, this.size))
  }

  #endNode(kind: 'file' | 'link', attributes: Attributes, first: number, size: number, tail: Buffer): number {
    const isInline = tail.length > 0 && tail.length <= TAIL_MAX
    if (tail.length > TAIL_MAX) {
      const block = Buffer.alloc(erofsBlockBytes)
      tail.copy(block)
      this.#write(block, this.size)
      this.#nextBlock++
    }
    const inode = this.#inode(kind, attributes, size, first, isInline ? LAYOUT_INLINE : LAYOUT_PLAIN, 1)
    return this.#place(isInline ? Buffer.concat([inode, tail]) : inode)
  }

  /** Places an inode with its tail in one block, as the format requires. */
  #place(bytes: Buffer): number {
    if (this.#metaUsed + bytes.length > erofsBlockBytes) {
      this.#flushMeta()
      this.#metaBlock = this.#nextBlock++
      this.#metaUsed = 0
    }
    bytes.copy(this.#meta, this.#metaUsed)
    const nid = (this.#metaBlock * erofsBlockBytes + this.#metaUsed) / 32
    this.#metaUsed = Math.ceil((this.#metaUsed + bytes.length) / 32) * 32
    return nid
  }

  #flushMeta(): void {
    if (this.#metaBlock < 0) return
    this.#write(this.#meta, this.#metaBlock * erofsBlockBytes)
    this.#meta.fill(0)
    this.#metaBlock = -1
    this.#metaUsed = erofsBlockBytes
  }

  #inode(
    kind: Child['kind'],
    attributes: Attributes,
    size: number,
    block: number,
    layout: number,
    links: number,
  ): Buffer {
    // Uses the buffer pool, unlike Buffer.alloc: there are many.
    const inode = Buffer.allocUnsafe(INODE_BYTES).fill(0)
    inode.writeUInt16LE(1 | (layout << 1), 0)
    inode.writeUInt16LE(typeBits[kind] | (attributes.mode & 0o7777), 4)
    inode.writeBigUInt64LE(BigInt(size), 8)
    inode.writeUInt32LE(block, 16)
    inode.writeUInt32LE(++this.#inodes, 20)
    inode.writeUInt32LE(this.#owner.uid, 24)
    inode.writeUInt32LE(this.#owner.gid, 28)
    const nanoseconds = ((attributes.mtimeNs % 1_000_000_000n) + 1_000_000_000n) % 1_000_000_000n
    inode.writeBigInt64LE((attributes.mtimeNs - nanoseconds) / 1_000_000_000n, 32)
    inode.writeUInt32LE(Number(nanoseconds), 40)
    inode.writeUInt32LE(links, 44)
    return inode
  }

  #superblock(volumeName: string): Buffer {
    const block = Buffer.alloc(128)
    block.writeUInt32LE(MAGIC, 0)
    block.writeUInt32LE(COMPAT_MTIME, 8)
    block.writeUInt8(12, 12)
    block.writeUInt16LE(this.directoryNid(0), 14)
    block.writeBigUInt64LE(BigInt(this.#inodes), 16)
    block.writeUInt32LE(this.#nextBlock, 36)
    block.write(volumeName, 64, 15, 'latin1')
    return block
  }

  #write(bytes: Buffer, position: number): void {
    let done = 0
    while (done < bytes.length) done += writeSync(this.#fd, bytes, done, bytes.length - done, position + done)
  }
}

interface ErofsFile {
  /** The next piece of content; all but the last are whole blocks. */
  write(chunk: Buffer): void
  /** Ends the file and returns its inode number. */
  end(attributes: Attributes): number
}

/** Directory blocks: 12 bytes per entry (inode number, name offset, type), then the names; sorted by bytes. */
function encodeDirectory(entries: readonly Child[]): { blocks: Buffer; size: number } {
  const blocks: Buffer[] = []
  let lastBytes = 0
  for (let from = 0; from < entries.length; ) {
    let to = from
    let used = 0
    for (
      let next = entries[to];
      next !== undefined && used + 12 + next.name.length <= erofsBlockBytes;
      next = entries[to]
    ) {
      used += 12 + next.name.length
      to++
    }
    const block = Buffer.alloc(erofsBlockBytes)
    let nameAt = (to - from) * 12
    entries.slice(from, to).forEach((entry, at) => {
      block.writeBigUInt64LE(BigInt(entry.nid), at * 12)
      block.writeUInt16LE(nameAt, at * 12 + 8)
      block.writeUInt8(directoryTypes[entry.kind], at * 12 + 10)
      entry.name.copy(block, nameAt)
      nameAt += entry.name.length
    })
    blocks.push(block)
    lastBytes = used
    from = to
  }
  return { blocks: Buffer.concat(blocks), size: (blocks.length - 1) * erofsBlockBytes + lastBytes }
}

/** Content of a file that {@link ErofsWriter} wrote, by its inode number. */
export function readErofsFile(fd: number, nid: number): Buffer {
  const inode = Buffer.alloc(INODE_BYTES)
  readSync(fd, inode, 0, INODE_BYTES, nid * 32)
  const content = Buffer.alloc(Number(inode.readBigUInt64LE(8)))
  const isInline = inode.readUInt16LE(0) >> 1 === LAYOUT_INLINE
  const whole = isInline ? content.length - (content.length % erofsBlockBytes) : content.length
  readSync(fd, content, 0, whole, inode.readUInt32LE(16) * erofsBlockBytes)
  readSync(fd, content, whole, content.length - whole, nid * 32 + INODE_BYTES)
  return content
}

/**
 * The digest of a file on a disk that nobody has checked. Undefined: it is no file of this size.
 * @throws the system's error
 */
export function digestErofsFile(fd: number, nid: number, bytes: number): string | undefined {
  const inode = Buffer.alloc(INODE_BYTES)
  if (readSync(fd, inode, 0, INODE_BYTES, nid * 32) < INODE_BYTES) return undefined
  if (inode.readBigUInt64LE(8) !== BigInt(bytes)) return undefined
  const hash = createHash('sha256')
  const piece = Buffer.allocUnsafe(DIGEST_PIECE_BYTES)
  const isInline = inode.readUInt16LE(0) >> 1 === LAYOUT_INLINE
  const whole = isInline ? bytes - (bytes % erofsBlockBytes) : bytes
  const start = inode.readUInt32LE(16) * erofsBlockBytes
  for (let at = 0; at < bytes; ) {
    const isTail = at >= whole
    const wanted = Math.min(piece.length, (isTail ? bytes : whole) - at)
    const from = isTail ? nid * 32 + INODE_BYTES + (at - whole) : start + at
    const read = readSync(fd, piece, 0, wanted, from)
    if (read === 0) return undefined
    hash.update(piece.subarray(0, read))
    at += read
  }
  return hash.digest('hex')
}

const DIGEST_PIECE_BYTES = 1024 * 1024
