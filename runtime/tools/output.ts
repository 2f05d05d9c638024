/**
 * Keeps the beginning and end of a program's output in bounded memory; counts and drops the middle and replaces
 * invalid UTF-8. Never refuses output.
 */
import { Buffer } from 'node:buffer'

export interface OutputBounds {
  /** Bytes kept of the beginning. */
  readonly headBytes: number
  /** Bytes kept of the end. */
  readonly tailBytes: number
}

export class OutputKeeper {
  readonly #bounds: OutputBounds
  readonly #head: Buffer[] = []
  #headFill = 0
  #tail: Buffer[] = []
  #tailFill = 0
  #total = 0

  constructor(bounds: OutputBounds) {
    this.#bounds = bounds
  }

  /** Appends bytes; they are copied. */
  take(bytes: Uint8Array): void {
    this.#total += bytes.length
    const forHead = Math.min(bytes.length, this.#bounds.headBytes - this.#headFill)
    if (forHead > 0) {
      this.#head.push(Buffer.from(bytes.subarray(0, forHead)))
      this.#headFill += forHead
    }
    if (forHead === bytes.length) return
    const rest = bytes.subarray(Math.max(forHead, bytes.length - this.#bounds.tailBytes))
    this.#tail.push(Buffer.from(rest))
    this.#tailFill += rest.length
    // Joined occasionally, so that many small pieces cost no more than a few large ones.
    if (this.#tailFill > 2 * this.#bounds.tailBytes || this.#tail.length > 256) this.#trimTail()
  }

  /** Total number of bytes. */
  get totalBytes(): number {
    return this.#total
  }

  /** Whether nothing was dropped. */
  get isWhole(): boolean {
    return this.#total <= this.#bounds.headBytes + this.#bounds.tailBytes
  }

  /** The text, with a note where bytes were dropped. */
  text(): string {
    this.#trimTail()
    const head = Buffer.concat(this.#head)
    const tail = Buffer.concat(this.#tail)
    if (this.#total === head.length + tail.length) return decode(Buffer.concat([head, tail]))
    const first = head.subarray(0, wholeCharacters(head))
    const last = tail.subarray(firstCharacter(tail))
    const cut = this.#total - first.length - last.length
    return `${decode(first)}\n[… ${cut} bytes cut …]\n${decode(last)}`
  }

  #trimTail(): void {
    const joined = Buffer.concat(this.#tail)
    const kept = joined.subarray(Math.max(0, joined.length - this.#bounds.tailBytes))
    this.#tail = kept.length > 0 ? [Buffer.from(kept)] : []
    this.#tailFill = kept.length
  }
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
}

/** End of the last complete character. */
function wholeCharacters(bytes: Buffer): number {
  let start = bytes.length
  while (start > 0 && bytes.length - start < 3 && isContinuation(bytes[start - 1])) start--
  const lead = bytes[start - 1]
  if (lead === undefined || lead < 0xc0) return bytes.length
  const size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2
  return start - 1 + size > bytes.length ? start - 1 : bytes.length
}

/** Start of the first character with a lead byte. */
function firstCharacter(bytes: Buffer): number {
  let start = 0
  while (start < 3 && isContinuation(bytes[start])) start++
  return start
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80
}
