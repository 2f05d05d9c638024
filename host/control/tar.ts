/**
 * Tar streams, as GNU tar writes them: read from the guest, whose every field is hostile, and written for it. Refuses
 * what the guest's tar does not write when it is asked for `--format=gnu`.
 */
import { CaissonError } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'

const blockBytes = 512
/** Names of one entry, with their NUL and padding. */
const longNameMaxBytes = 2 * limits.pathMaxBytes
const endBlocks = Buffer.alloc(2 * blockBytes)

export interface TarEntry {
  /** As the stream has it; not yet checked. */
  readonly path: string
  readonly type: 'file' | 'directory' | 'link' | 'other'
  /** Permission bits. */
  readonly mode: number
  readonly mtimeMs: number
  /** Of a file its bytes, else 0. */
  readonly size: number
  /** What a link leads to. */
  readonly target: string
}

/** Reads one archive. Content that is not read is skipped. */
export class TarReader {
  readonly #pieces: AsyncIterator<Uint8Array>
  #buffered: Buffer = Buffer.alloc(0)
  /** Content and padding of the current entry that were not read. */
  #contentBytes = 0
  #paddingBytes = 0

  constructor(pieces: AsyncIterable<Uint8Array>) {
    this.#pieces = pieces[Symbol.asyncIterator]()
  }

  /** The next entry; null at the end, also of a stream without any byte. @throws {CaissonError} `protocol_violation` */
  async next(): Promise<TarEntry | null> {
    let path: string | undefined
    let target: string | undefined
    for (;;) {
      for await (const _ of this.content());
      await this.#skip(this.#paddingBytes)
      this.#paddingBytes = 0
      const header = await this.#header()
      if (header === null) return null
      const type = String.fromCharCode(header[156] ?? 0)
      const size = sizeIn(header)
      if (type === 'L' || type === 'K') {
        if ((type === 'L' ? path : target) !== undefined) throw broken('two long names of one entry')
        const name = await this.#longName(size)
        if (type === 'L') path = name
        else target = name
        continue
      }
      if (type === 'x' || type === 'g') throw broken(`an extended header of type ${type}`)
      const kind = kindOf(type)
      this.#contentBytes = kind === 'file' ? size : 0
      this.#paddingBytes = kind === 'file' ? paddingOf(size) : 0
      return {
        path: path ?? nameIn(header, 0, 100),
        type: kind,
        mode: octalIn(header, 100, 8) & 0o777,
        mtimeMs: Math.min(numberIn(header, 136, 12) * 1000, 8.64e15),
        size: this.#contentBytes,
        target: target ?? nameIn(header, 157, 100),
      }
    }
  }

  /** What is left of the current entry's content. @throws {CaissonError} `protocol_violation` where the stream ends */
  async *content(): AsyncGenerator<Buffer> {
    while (this.#contentBytes > 0) {
      const piece = await this.#some(this.#contentBytes)
      this.#contentBytes -= piece.length
      yield piece
    }
  }

  /** The next header; null where the archive ends. */
  async #header(): Promise<Buffer | null> {
    if (this.#buffered.length === 0 && !(await this.#fill())) return null
    const header = await this.#exactly(blockBytes)
    if (header.every((byte) => byte === 0)) return null
    let sum = 0
    for (const [at, byte] of header.entries()) sum += at >= 148 && at < 156 ? 0x20 : byte
    if (sum !== octalIn(header, 148, 8)) throw broken('a header with a wrong checksum')
    return header
  }

  async #longName(size: number): Promise<string> {
    if (size > longNameMaxBytes) throw broken(`a name of ${size} bytes`)
    const bytes = await this.#exactly(size)
    await this.#skip(paddingOf(size))
    return nameIn(bytes, 0, size)
  }

  async #exactly(size: number): Promise<Buffer> {
    const pieces: Buffer[] = []
    for (let left = size; left > 0; left -= pieces.at(-1)?.length ?? 0) pieces.push(await this.#some(left))
    return Buffer.concat(pieces)
  }

  async #skip(size: number): Promise<void> {
    for (let left = size; left > 0; ) left -= (await this.#some(left)).length
  }

  /** At least one byte, at most `max`. */
  async #some(max: number): Promise<Buffer> {
    if (this.#buffered.length === 0 && !(await this.#fill())) throw broken('an end in the middle of an entry')
    const piece = this.#buffered.subarray(0, max)
    this.#buffered = this.#buffered.subarray(piece.length)
    return piece
  }

  async #fill(): Promise<boolean> {
    while (this.#buffered.length === 0) {
      const { done, value } = await this.#pieces.next()
      if (done === true) return false
      this.#buffered = Buffer.from(value.buffer, value.byteOffset, value.byteLength)
    }
    return true
  }
}

/** The header of an entry, with what comes before it for a long name. */
export function encodeEntry({ path, type, mode, mtimeMs, size, target }: TarEntry): Buffer {
  const flag = { file: '0', directory: '5', link: '2', other: '0' }[type]
  return Buffer.concat([
    longName('L', path),
    longName('K', target),
    header({ path, flag, mode, mtimeMs, size, target }),
  ])
}

/** The zeros after the content of an entry. */
export function encodePadding(size: number): Buffer {
  return Buffer.alloc(paddingOf(size))
}

export function encodeEnd(): Buffer {
  return endBlocks
}

function longName(flag: 'L' | 'K', name: string): Buffer {
  const bytes = Buffer.from(`${name}\0`)
  if (bytes.length <= 100) return Buffer.alloc(0)
  const fields = { path: '././@LongLink', flag, mode: 0o644, mtimeMs: 0, size: bytes.length, target: '' }
  return Buffer.concat([header(fields), bytes, encodePadding(bytes.length)])
}

function header(fields: Omit<TarEntry, 'type'> & { readonly flag: string }): Buffer {
  const block = Buffer.alloc(blockBytes)
  Buffer.from(fields.path).copy(block, 0, 0, 99)
  writeNumber(block, fields.mode, 100, 8)
  writeNumber(block, 0, 108, 8)
  writeNumber(block, 0, 116, 8)
  writeNumber(block, fields.size, 124, 12)
  writeNumber(block, Math.max(0, Math.floor(fields.mtimeMs / 1000)), 136, 12)
  block.write(fields.flag, 156, 'latin1')
  Buffer.from(fields.target).copy(block, 157, 0, 99)
  block.write('ustar  \0', 257, 'latin1')
  block.fill(0x20, 148, 156)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return block
}

/** Octal, or base 256 where that has too few digits. */
function writeNumber(block: Buffer, value: number, at: number, width: number): void {
  const digits = value.toString(8)
  if (digits.length < width) {
    block.write(`${digits.padStart(width - 1, '0')}\0`, at, 'latin1')
    return
  }
  block[at] = 0x80
  block.writeUIntBE(value, at + width - 6, 6)
}

function kindOf(type: string): TarEntry['type'] {
  if (type === '0' || type === '\0' || type === '7') return 'file'
  if (type === '5') return 'directory'
  return type === '2' ? 'link' : 'other'
}

function sizeIn(block: Buffer): number {
  const size = numberIn(block, 124, 12)
  if (!Number.isSafeInteger(size)) throw broken('a size that is no number of bytes')
  return size
}

function numberIn(block: Buffer, at: number, width: number): number {
  if ((block[at] ?? 0) < 0x80) return octalIn(block, at, width)
  // Negative, or more than a file can have.
  if (block[at] !== 0x80 || block.subarray(at + 1, at + width - 6).some((byte) => byte !== 0))
    return Number.NaN
  return block.readUIntBE(at + width - 6, 6)
}

function octalIn(block: Buffer, at: number, width: number): number {
  const text = block
    .toString('latin1', at, at + width)
    .replace(/[\0 ]+$/, '')
    .trimStart()
  return /^[0-7]*$/.test(text) ? Number.parseInt(text || '0', 8) : Number.NaN
}

/** Up to the first NUL. Bytes that are no UTF-8 become U+FFFD, which {@link isPlainName} refuses. */
function nameIn(block: Buffer, at: number, width: number): string {
  const end = block.subarray(at, at + width).indexOf(0)
  return block.toString('utf8', at, end < 0 ? at + width : at + end)
}

/** Whether a terminal and every program of the host can show and use the name: UTF-8 without control characters. */
export function isPlainName(name: string): boolean {
  return !/[\p{Cc}\u{fffd}]/u.test(name)
}

function paddingOf(size: number): number {
  return (blockBytes - (size % blockBytes)) % blockBytes
}

function broken(what: string): CaissonError {
  return new CaissonError('protocol_violation', `the VM sent an archive that cannot be read: it has ${what}`)
}
