// Extracts the guest's memory, page by page, from the stream in which QEMU sends a stopped machine. The remaining
// stream is valid and can be loaded over existing memory. The bytes come from a possibly compromised QEMU: every length
// and address is checked, and unknown content is refused. Format: QEMU, migration/savevm.c and migration/ram.c (stream
// version 3, section `ram` version 4); big-endian.
// https://www.qemu.org/docs/master/devel/migration/main.html#stream-structure

const MAGIC = 0x5145564d
const STREAM_VERSION = 3
const RAM_VERSION = 4
const PAGE_BYTES = 4096
const MEMORY_SECTION = 'ram'
/** Name of the guest's memory block: its backend in `qemu-args.ts`. */
const MEMORY_BLOCK = 'ram'
/** Firmware, tables and devices take about half a megabyte. */
const MAX_REST_BYTES = 64 * 1024 * 1024
const MAX_NAME_BYTES = 255
const ZEROS = Buffer.alloc(PAGE_BYTES)

/** Section types: one byte each. */
const CONFIGURATION = 0x07
const SECTION_START = 0x01
const SECTION_PART = 0x02
const SECTION_END = 0x03
const SECTION_FOOTER = 0x7e

/** Each record of the section starts with an address; its lowest bits are flags. */
const FLAG_BITS = 0xfff
const FLAG_ZERO = 0x02
const FLAG_SIZES = 0x04
const FLAG_PAGE = 0x08
const FLAG_END = 0x10
/** The page belongs to the same block as the previous one, whose name is omitted. */
const FLAG_SAME_BLOCK = 0x20

/** QEMU sent something other than a stopped machine in the known format. */
export class MachineStreamError extends Error {
  override readonly name = 'MachineStreamError'
}

/** A contiguous range of memory. */
interface MemoryRun {
  /** Offset in the memory, in bytes. */
  readonly at: number
  readonly bytes: Buffer[]
  /** Total length in bytes. */
  length: number
}

/** Content of a chunk. The buffers are views of the chunk. */
interface Taken {
  /** In order of arrival; a later write to the same place wins. Excludes zero pages. */
  readonly memory: readonly MemoryRun[]
  /** The stream without the memory. */
  readonly rest: readonly Buffer[]
}

/** Parses the item at `at` and returns the position after it, or nothing if it is incomplete. */
type Step = (bytes: Buffer, at: number) => number | undefined

/** Parses one stream chunk by chunk. */
export class MachineStream {
  readonly #memoryBytes: number
  /** One bit per page that arrived with content. */
  readonly #written: Uint8Array
  #step: Step = this.#readHead
  /** Start of an incomplete item. */
  #unread: Buffer = Buffer.alloc(0)
  #block = ''
  /** The section's last part ends the memory; a part of another kind follows. */
  #isLastPart = false
  #sectionId = 0
  /** Bytes of block sizes that are still missing. */
  #sizesLeft = 0
  #hasMemory = false
  /** Bytes missing of the current page. */
  #pageLeft = 0
  /** Offset of the page in the memory. Absent: the page is of another block. */
  #pageAt: number | undefined
  #isDone = false
  #restBytes = 0
  #memory: MemoryRun[] = []
  #rest: Buffer[] = []

  /** @param memoryBytes size of the guest's memory, in whole pages */
  constructor(memoryBytes: number) {
    this.#memoryBytes = memoryBytes
    this.#written = new Uint8Array(Math.ceil(memoryBytes / PAGE_BYTES / 8))
  }

  /** @throws {MachineStreamError} at the first invalid byte; the stream is then unusable */
  push(chunk: Buffer): Taken {
    const bytes = this.#unread.length === 0 ? chunk : Buffer.concat([this.#unread, chunk])
    this.#memory = []
    this.#rest = []
    let at = 0
    while (at < bytes.length) {
      const next = this.#isDone ? this.#keepRest(bytes, at, bytes.length) : this.#step(bytes, at)
      if (next === undefined) break
      at = next
    }
    this.#unread = bytes.subarray(at)
    return { memory: this.#memory, rest: this.#rest }
  }

  /** Whether the memory is complete; only QEMU knows where the rest ends. */
  get isWhole(): boolean {
    return this.#isDone
  }

  #readHead(bytes: Buffer, at: number): number | undefined {
    // Magic, version, type, length of the machine's name.
    const nameAt = at + 13
    if (bytes.length < nameAt) return undefined
    expectField('magic', bytes.readUInt32BE(at), MAGIC)
    expectField('version', bytes.readUInt32BE(at + 4), STREAM_VERSION)
    expectField('first part', bytes.readUInt8(at + 8), CONFIGURATION)
    const nameBytes = bytes.readUInt32BE(at + 9)
    if (nameBytes > MAX_NAME_BYTES) throw new MachineStreamError('the name of the machine is too long')
    if (bytes.length < nameAt + nameBytes) return undefined
    this.#step = this.#readStart
    return this.#keepRest(bytes, at, nameAt + nameBytes)
  }

  #readStart(bytes: Buffer, at: number): number | undefined {
    // Type, section, length of its name, name, instance, version.
    const nameAt = at + 6
    const behind = nameAt + MEMORY_SECTION.length + 8
    if (bytes.length < behind) return undefined
    expectField('part', bytes.readUInt8(at), SECTION_START)
    this.#sectionId = bytes.readUInt32BE(at + 1)
    if (readName(bytes, nameAt - 1) !== MEMORY_SECTION)
      throw new MachineStreamError('the memory is not what comes first')
    expectField('version of the memory', bytes.readUInt32BE(behind - 4), RAM_VERSION)
    this.#step = this.#readRecord
    return this.#keepRest(bytes, at, behind)
  }

  #readPart(bytes: Buffer, at: number): number | undefined {
    if (bytes.length < at + 5) return undefined
    const type = bytes.readUInt8(at)
    if (type !== SECTION_PART) expectField('part', type, SECTION_END)
    expectField('section', bytes.readUInt32BE(at + 1), this.#sectionId)
    this.#isLastPart = type === SECTION_END
    this.#step = this.#readRecord
    return this.#keepRest(bytes, at, at + 5)
  }

  #readFooter(bytes: Buffer, at: number): number | undefined {
    if (bytes.length < at + 5) return undefined
    expectField('footer', bytes.readUInt8(at), SECTION_FOOTER)
    expectField('section', bytes.readUInt32BE(at + 1), this.#sectionId)
    if (this.#isLastPart && !this.#hasMemory)
      throw new MachineStreamError('there was no memory of that length')
    this.#isDone = this.#isLastPart
    this.#step = this.#readPart
    return this.#keepRest(bytes, at, at + 5)
  }

  #readRecord(bytes: Buffer, at: number): number | undefined {
    if (bytes.length < at + 8) return undefined
    const high = bytes.readUInt32BE(at)
    const low = bytes.readUInt32BE(at + 4)
    const flags = low & FLAG_BITS
    const address = high * 2 ** 32 + (low - flags)
    if (flags === FLAG_END) {
      this.#step = this.#readFooter
      return this.#keepRest(bytes, at, at + 8)
    }
    if (flags === FLAG_SIZES) {
      this.#sizesLeft = high * 2 ** 32 + (low - flags)
      this.#step = this.#readSize
      return this.#keepRest(bytes, at, at + 8)
    }
    return this.#readPageHead(bytes, at, flags, address)
  }

  #readSize(bytes: Buffer, at: number): number | undefined {
    if (this.#sizesLeft < 0) throw new MachineStreamError('the blocks are longer than all of them')
    if (this.#sizesLeft === 0) {
      this.#step = this.#readRecord
      return at
    }
    const name = readName(bytes, at)
    if (name === undefined) return undefined
    const behind = at + 1 + name.length + 8
    if (bytes.length < behind) return undefined
    const length = bytes.readUInt32BE(behind - 8) * 2 ** 32 + bytes.readUInt32BE(behind - 4)
    if (name === MEMORY_BLOCK) expectField('length of the memory', length, this.#memoryBytes)
    if (name === MEMORY_BLOCK) this.#hasMemory = true
    this.#sizesLeft -= length
    return this.#keepRest(bytes, at, behind)
  }

  #readPageHead(bytes: Buffer, at: number, flags: number, address: number): number | undefined {
    let behind = at + 8
    if ((flags & FLAG_SAME_BLOCK) === 0) {
      const name = readName(bytes, behind)
      if (name === undefined) return undefined
      behind += 1 + name.length
      if (bytes.length <= behind) return undefined
      this.#block = name
    }
    if (bytes.length <= behind) return undefined
    const isMemory = this.#block === MEMORY_BLOCK
    if (isMemory && address >= this.#memoryBytes)
      throw new MachineStreamError('a page lies beyond the memory')
    const kind = flags & ~FLAG_SAME_BLOCK
    if (kind === FLAG_ZERO) {
      if (bytes.readUInt8(behind) !== 0) throw new MachineStreamError('a page of zeros is of something else')
      if (!isMemory) return this.#keepRest(bytes, at, behind + 1)
      if (this.#isWritten(address)) this.#acceptMemory(address, ZEROS)
      return behind + 1
    }
    expectField('kind of page', kind, FLAG_PAGE)
    this.#pageLeft = PAGE_BYTES
    this.#pageAt = isMemory ? address : undefined
    this.#step = this.#readPage
    if (!isMemory) return this.#keepRest(bytes, at, behind)
    this.#setWritten(address)
    return behind
  }

  /** Reads as much of the page as is available. */
  #readPage(bytes: Buffer, at: number): number {
    const behind = Math.min(bytes.length, at + this.#pageLeft)
    const length = behind - at
    if (this.#pageAt === undefined) this.#keepRest(bytes, at, behind)
    else {
      this.#acceptMemory(this.#pageAt, bytes.subarray(at, behind))
      this.#pageAt += length
    }
    this.#pageLeft -= length
    if (this.#pageLeft === 0) this.#step = this.#readRecord
    return behind
  }

  #acceptMemory(at: number, bytes: Buffer): void {
    const last = this.#memory.at(-1)
    if (last === undefined || last.at + last.length !== at) {
      this.#memory.push({ at, bytes: [bytes], length: bytes.length })
      return
    }
    last.bytes.push(bytes)
    last.length += bytes.length
  }

  /** @returns the position after it */
  #keepRest(bytes: Buffer, at: number, behind: number): number {
    this.#restBytes += behind - at
    if (this.#restBytes > MAX_REST_BYTES) throw new MachineStreamError('the devices have too much state')
    this.#rest.push(bytes.subarray(at, behind))
    return behind
  }

  #isWritten(address: number): boolean {
    const page = address / PAGE_BYTES
    return ((this.#written[page >> 3] ?? 0) & (1 << (page & 7))) !== 0
  }

  #setWritten(address: number): void {
    const page = address / PAGE_BYTES
    this.#written[page >> 3] = (this.#written[page >> 3] ?? 0) | (1 << (page & 7))
  }
}

/** A one-byte length, then the name; undefined while incomplete. */
function readName(bytes: Buffer, at: number): string | undefined {
  if (bytes.length <= at) return undefined
  const behind = at + 1 + bytes.readUInt8(at)
  return bytes.length < behind ? undefined : bytes.toString('latin1', at + 1, behind)
}

function expectField(what: string, seen: number, expected: number): void {
  if (seen !== expected) throw new MachineStreamError(`${what}: ${expected} was expected, ${seen} came`)
}
