// Takes the guest's memory out of the stream in which QEMU sends a stopped machine, page by page; what is left is a
// stream as well, that QEMU loads over memory which is there already. The bytes come from a QEMU that its guest may have
// taken over: every length and address is checked, and whatever this file does not know is refused.
// Format: QEMU, migration/savevm.c and migration/ram.c (stream version 3, section `ram` version 4); numbers big-endian.
// https://www.qemu.org/docs/master/devel/migration/main.html#stream-structure

const MAGIC = 0x5145564d
const STREAM_VERSION = 3
const RAM_VERSION = 4
const PAGE_BYTES = 4096
const MEMORY_SECTION = 'ram'
/** The block that is the guest's memory, by the name of its backend in `qemu-args.ts`. */
const MEMORY_BLOCK = 'ram'
/** Firmware, tables and devices take half a megabyte. */
const MAX_REST_BYTES = 64 * 1024 * 1024
const MAX_NAME_BYTES = 255
const ZEROS = Buffer.alloc(PAGE_BYTES)

/** Types of parts: one byte each. */
const CONFIGURATION = 0x07
const SECTION_START = 0x01
const SECTION_PART = 0x02
const SECTION_END = 0x03
const SECTION_FOOTER = 0x7e

/** A record of the section begins with an address, in whose lowest bits these stand. */
const FLAG_BITS = 0xfff
const FLAG_ZERO = 0x02
const FLAG_SIZES = 0x04
const FLAG_PAGE = 0x08
const FLAG_END = 0x10
/** The page is of the block that the one before it was of, which is not named again. */
const FLAG_SAME_BLOCK = 0x20

/** QEMU sent something else than a stopped machine in the form that is known. */
export class MachineStreamError extends Error {
  override readonly name = 'MachineStreamError'
}

/** Bytes of the memory that belong one behind the other. */
export interface MemoryRun {
  /** Offset in the memory. */
  readonly at: number
  readonly bytes: Buffer[]
  /** Of all of them. */
  length: number
}

/** What a chunk held. The buffers are parts of the chunk and of no other use of it. */
export interface Taken {
  /** In the order in which they came: a later one of the same place counts. Pages of zeros are left out. */
  readonly memory: readonly MemoryRun[]
  /** Of the stream without the memory. */
  readonly rest: readonly Buffer[]
}

/** Reads what is at the place in the bytes and returns the place behind it, or nothing when not all of it came yet. */
type Step = (bytes: Buffer, at: number) => number | undefined

/** One stream, chunk by chunk. */
export class MachineStream {
  readonly #memoryBytes: number
  /** One bit a page: such as came with content. */
  readonly #written: Uint8Array
  #step: Step = this.#readHead
  /** The beginning of something whose end has not come. */
  #unread: Buffer = Buffer.alloc(0)
  #block = ''
  /** The memory ends with the section's last part; a part of another kind follows. */
  #isLastPart = false
  #sectionId = 0
  /** Bytes of block sizes that are still to be told. */
  #sizesLeft = 0
  #hasMemory = false
  /** Of the page that is being read. */
  #pageLeft = 0
  /** Where it belongs in the memory; absent: it is of another block. */
  #pageAt: number | undefined
  #isDone = false
  #restBytes = 0
  #memory: MemoryRun[] = []
  #rest: Buffer[] = []

  /** @param memoryBytes the length of the guest's memory, in whole pages */
  constructor(memoryBytes: number) {
    this.#memoryBytes = memoryBytes
    this.#written = new Uint8Array(Math.ceil(memoryBytes / PAGE_BYTES / 8))
  }

  /** @throws {MachineStreamError} at the first byte that does not belong; the stream is then of no use */
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

  /** Whether the memory came to its end; of what follows QEMU alone knows where it ends. */
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

  /** As much of it as there is. */
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

  /** @returns the place behind it */
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

/** A length of one byte, then as many; undefined when they have not all come. */
function readName(bytes: Buffer, at: number): string | undefined {
  if (bytes.length <= at) return undefined
  const behind = at + 1 + bytes.readUInt8(at)
  return bytes.length < behind ? undefined : bytes.toString('latin1', at + 1, behind)
}

function expectField(what: string, seen: number, expected: number): void {
  if (seen !== expected) throw new MachineStreamError(`${what}: ${expected} was expected, ${seen} came`)
}
