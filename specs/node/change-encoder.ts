/**
 * Encodes a change set to bytes (format: specs/protocol/change.ts; decoder: change-stream.ts). Throws for anything
 * that the decoder would refuse.
 */
import type { ChangeEntry } from '#specs/protocol/change.ts'
import { comparePaths } from './path-text.ts'

/** Bytes to buffer before writing. */
const CHUNK_BYTES = 256 * 1024

/** An entry with a path: any but `end`. */
export type PathChange = Exclude<ChangeEntry, { kind: 'end' }>

/**
 * Buffers entries into large chunks. `write` takes a chunk and resolves when it is done with it: the next one reuses
 * the memory, since fresh memory is expensive in an emulated guest. Exactly `size` bytes of {@link content} must
 * follow a `file` entry. A wrong size or paths out of order are misuse and throw.
 */
export class ChangeEncoder {
  readonly #write: (chunk: Buffer) => Promise<void>
  readonly #chunk = Buffer.allocUnsafeSlow(CHUNK_BYTES)
  #used = 0
  #owed = 0
  #lastPath = ''
  #entries = 0
  #contentBytes = 0

  constructor(write: (chunk: Buffer) => Promise<void>) {
    this.#write = write
  }

  /** Entries so far. */
  get entries(): number {
    return this.#entries
  }

  /** Content bytes so far. */
  get contentBytes(): number {
    return this.#contentBytes
  }

  /**
   * Adds an entry; returns a promise only when the caller must wait.
   * @param content complete content of a small `file`; absent: it follows by {@link content}
   */
  entry(entry: PathChange, content?: Buffer): Promise<void> | undefined {
    if (this.#owed > 0) throw new Error(`the content of "${this.#lastPath}" is ${this.#owed} bytes short`)
    if (comparePaths(this.#lastPath, entry.path) >= 0 && this.#entries > 0) {
      throw new Error(`"${entry.path}" is out of order after "${this.#lastPath}"`)
    }
    this.#lastPath = entry.path
    this.#entries++
    if (entry.kind === 'file') this.#owed = entry.size
    const wait = this.#header(entry)
    if (content === undefined) return wait
    return wait === undefined ? this.content(content) : wait.then(() => this.content(content))
  }

  /** Adds content of the last `file`. The buffer may be reused after the promise resolves. */
  content(bytes: Buffer): Promise<void> | undefined {
    if (bytes.length > this.#owed) throw new Error(`the content of "${this.#lastPath}" is too long`)
    this.#owed -= bytes.length
    this.#contentBytes += bytes.length
    return this.#append(bytes)
  }

  /** Ends the stream. */
  async end(): Promise<void> {
    if (this.#owed > 0) throw new Error(`the content of "${this.#lastPath}" is ${this.#owed} bytes short`)
    await this.#header({ kind: 'end', entries: this.#entries, contentBytes: this.#contentBytes })
    await this.#flush()
  }

  #header(entry: ChangeEntry): Promise<void> | undefined {
    const json = JSON.stringify(entry)
    // A character takes at most three bytes of UTF-8; well-formed JSON has no lone surrogate.
    const room = 4 + json.length * 3
    if (this.#used + room <= CHUNK_BYTES) {
      this.#putHeader(json)
      return undefined
    }
    if (room > CHUNK_BYTES) throw new Error(`the header of "${this.#lastPath}" is too long`)
    return this.#flush().then(() => this.#putHeader(json))
  }

  #putHeader(json: string): void {
    const length = this.#chunk.write(json, this.#used + 4, 'utf8')
    this.#chunk.writeUInt32BE(length, this.#used)
    this.#used += 4 + length
  }

  #append(bytes: Buffer): Promise<void> | undefined {
    if (this.#used + bytes.length <= CHUNK_BYTES) {
      bytes.copy(this.#chunk, this.#used)
      this.#used += bytes.length
      return undefined
    }
    return this.#flush().then(() =>
      bytes.length > CHUNK_BYTES / 4 ? this.#write(bytes) : this.#append(bytes),
    )
  }

  async #flush(): Promise<void> {
    if (this.#used === 0) return
    await this.#write(this.#chunk.subarray(0, this.#used))
    this.#used = 0
  }
}

/** Encodes `changes` as chunks; for tests and small change sets, since it buffers whole entries. */
export async function* encodeChanges(
  changes:
    | Iterable<{ entry: PathChange; content?: Buffer }>
    | AsyncIterable<{ entry: PathChange; content?: Buffer }>,
): AsyncGenerator<Buffer, void, undefined> {
  const chunks: Buffer[] = []
  const encoder = new ChangeEncoder(async (chunk) => {
    chunks.push(Buffer.from(chunk))
  })
  for await (const { entry, content } of changes) {
    await encoder.entry(entry)
    if (content !== undefined) await encoder.content(content)
    yield* chunks.splice(0)
  }
  await encoder.end()
  yield* chunks.splice(0)
}
