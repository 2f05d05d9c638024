/**
 * Tar streams, every field hostile: read from the guest and from callers, and written for both. From the guest it refuses
 * what GNU tar does not write when it is asked for `--format=gnu`; from callers it also reads ustar and pax (POSIX.1-2017).
 */
import { CaissonError } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'

const blockBytes = 512
/** Names of one entry, with their NUL and padding. */
const longNameMaxBytes = 2 * limits.pathMaxBytes
/** Of the records of one extended header. */
const extendedMaxBytes = 64 * 1024
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

export interface TarOptions {
  /** Whether to read ustar and pax besides GNU's form. Absent: false. */
  readonly readsPax?: boolean
  /** Makes the error for an archive that cannot be read. Absent: `protocol_violation`, of the VM. */
  readonly refuse?: (what: string) => CaissonError
}

/** What an extended header says of the next entry. */
type Extended = Partial<Record<'path' | 'linkpath' | 'size', string>>

/** Reads one archive. Content that is not read is skipped. */
export class TarReader {
  readonly #readsPax: boolean
  readonly #refuse: (what: string) => CaissonError
  readonly #pieces: AsyncIterator<Uint8Array>
  #buffered: Buffer = Buffer.alloc(0)
  /** Content and padding of the current entry that were not read. */
  #contentBytes = 0
  #paddingBytes = 0

  constructor(pieces: AsyncIterable<Uint8Array>, { readsPax = false, refuse = broken }: TarOptions = {}) {
    this.#pieces = pieces[Symbol.asyncIterator]()
    this.#readsPax = readsPax
    this.#refuse = refuse
  }

  /** The next entry; null at the end, also of a stream without any byte. @throws {CaissonError} `protocol_violation` */
  async next(): Promise<TarEntry | null> {
    let path: string | undefined
    let target: string | undefined
    let extended: Extended = {}
    for (;;) {
      for await (const _ of this.content());
      await this.#skip(this.#paddingBytes)
      this.#paddingBytes = 0
      const header = await this.#header()
      if (header === null) return null
      const type = String.fromCharCode(header[156] ?? 0)
      const size = this.#sizeOf(header, extended.size)
      if (type === 'L' || type === 'K') {
        if ((type === 'L' ? path : target) !== undefined) throw this.#refuse('two long names of one entry')
        const name = await this.#longName(size)
        if (type === 'L') path = name
        else target = name
        continue
      }
      if (type === 'x' || type === 'g') {
        if (!this.#readsPax) throw this.#refuse(`an extended header of type ${type}`)
        const said = await this.#extended(size)
        if (type === 'x') extended = { ...extended, ...said }
        else if (Object.keys(said).length > 0) throw this.#refuse('a name or a size for all entries')
        continue
      }
      const name = extended.path ?? path ?? this.#nameOf(header)
      const kind = type !== '5' && kindOf(type) === 'file' && name.endsWith('/') ? 'directory' : kindOf(type)
      this.#contentBytes = kind === 'file' ? size : 0
      this.#paddingBytes = kind === 'file' ? paddingOf(size) : 0
      return {
        path: name,
        type: kind,
        mode: octalIn(header, 100, 8) & 0o777,
        mtimeMs: Math.min(numberIn(header, 136, 12) * 1000, 8.64e15),
        size: this.#contentBytes,
        target: extended.linkpath ?? target ?? nameIn(header, 157, 100),
      }
    }
  }

  /** Reads on behind the end: nothing but zeros may follow. @throws {CaissonError} */
  async end(): Promise<void> {
    while (this.#buffered.length > 0 || (await this.#fill())) {
      if (this.#buffered.some((byte) => byte !== 0)) throw this.#refuse('something behind its end')
      this.#buffered = Buffer.alloc(0)
    }
  }

  /** In ustar a long name is cut at a slash, with its beginning behind. */
  #nameOf(header: Buffer): string {
    const name = nameIn(header, 0, 100)
    if (!this.#readsPax || header.toString('latin1', 257, 263) !== 'ustar\0') return name
    const prefix = nameIn(header, 345, 155)
    return prefix === '' ? name : `${prefix}/${name}`
  }

  #sizeOf(header: Buffer, given: string | undefined): number {
    const size =
      given === undefined ? numberIn(header, 124, 12) : /^\d{1,16}$/.test(given) ? Number(given) : -1
    if (!Number.isSafeInteger(size) || size < 0) throw this.#refuse('a size that is no number of bytes')
    return size
  }

  /** Records `LENGTH KEY=VALUE` and a line end; keys that change nothing here are skipped. */
  async #extended(size: number): Promise<Extended> {
    if (size > extendedMaxBytes) throw this.#refuse(`an extended header of ${size} bytes`)
    const bytes = await this.#exactly(size)
    await this.#skip(paddingOf(size))
    const said: Extended = {}
    for (let at = 0; at < size; ) {
      const [digits = '', length = 0] = lengthAt(bytes, at)
      const record = bytes.toString('utf8', at + digits.length + 1, at + length - 1)
      const cut = record.indexOf('=')
      if (length < digits.length + 4 || at + length > size || bytes[at + length - 1] !== 0x0a || cut < 1)
        throw this.#refuse('an extended header that is none')
      at += length
      const key = record.slice(0, cut)
      if (key.startsWith('GNU.sparse.')) throw this.#refuse('a sparse file')
      if (key === 'path' || key === 'linkpath' || key === 'size') said[key] = record.slice(cut + 1)
    }
    return said
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
    if (sum !== octalIn(header, 148, 8)) throw this.#refuse('a header with a wrong checksum')
    return header
  }

  async #longName(size: number): Promise<string> {
    if (size > longNameMaxBytes) throw this.#refuse(`a name of ${size} bytes`)
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
    if (this.#buffered.length === 0 && !(await this.#fill()))
      throw this.#refuse('an end in the middle of an entry')
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

/** The decimal number at the beginning of a record, as text and value; up to a blank. */
function lengthAt(bytes: Buffer, at: number): [string, number] {
  const digits = /^\d{1,6}(?= )/.exec(bytes.toString('latin1', at, at + 8))?.[0] ?? ''
  return [digits, Number(digits)]
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
