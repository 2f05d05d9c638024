// A port between the host's link and a VM, real or in memory, with faults at chosen bytes: cut, held back, doubled,
// changed, lost.
import { Duplex } from 'node:stream'
import { encodePreamble, PreambleHunter } from '#specs/node/preamble.ts'

export type Direction = 'to-host' | 'to-guest'

export interface Fault {
  readonly direction: Direction
  /** Number of bytes of that direction that pass before it. */
  readonly at: number
  /**
   * `cut`: everything behind is lost until the next preamble, and {@link FaultyPortOptions.onCut} is called. `stall`:
   * nothing passes for `ms`. The others apply to the next `length` bytes.
   */
  readonly kind: 'cut' | 'stall' | 'double' | 'change' | 'lose'
  readonly length?: number
  readonly ms?: number
}

export interface FaultyPortOptions {
  /** In the order of their positions. */
  readonly faults?: readonly Fault[]
  /** Sizes, in turn, into which what passes is split. Absent: as it comes. */
  readonly chunkSizes?: readonly number[]
  readonly onCut?: () => void
}

type Done = (error?: Error | null) => void

/** The host's end; wraps the host's end of the port itself, which it owns from then on. */
export class FaultyPort extends Duplex {
  readonly passed: Record<Direction, number> = { 'to-host': 0, 'to-guest': 0 }
  /** Faults that have come about. */
  readonly done: Fault[] = []
  readonly #inner: Duplex
  readonly #ways: Record<Direction, Way>

  constructor(inner: Duplex, options: FaultyPortOptions = {}) {
    super({ allowHalfOpen: false, readableHighWaterMark: 64 * 1024, writableHighWaterMark: 64 * 1024 })
    this.#inner = inner
    const way = (direction: Direction, pass: (bytes: Buffer) => boolean): Way =>
      new Way(direction, options, this, pass)
    this.#ways = {
      'to-host': way('to-host', (bytes) => this.push(bytes)),
      'to-guest': way('to-guest', (bytes) => inner.write(bytes)),
    }
    this.on('error', () => undefined)
    inner.on('error', (error: Error) => this.destroy(error))
    inner.on('close', () => this.destroy())
    inner.on('end', () => this.push(null))
    inner.on('data', (chunk: Buffer) => {
      inner.pause()
      this.#ways['to-host'].take(chunk, (hasRoom) => {
        if (hasRoom) inner.resume()
      })
    })
  }

  /** Adds a fault `bytes` ahead. */
  add(fault: Omit<Fault, 'at'>, bytes: number): void {
    const at = this.passed[fault.direction] + bytes
    this.#ways[fault.direction].add({ ...fault, at })
  }

  /** Whether a fault is still to come. */
  isWaiting(direction: Direction): boolean {
    return this.#ways[direction].isWaiting
  }

  override _read(): void {
    if (!this.#ways['to-host'].isBusy) this.#inner.resume()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: Done): void {
    this.#ways['to-guest'].take(chunk, (hasRoom) => {
      if (hasRoom || this.#inner.destroyed) callback()
      else {
        const go = (): void => {
          this.#inner.off('drain', go).off('close', go)
          callback()
        }
        this.#inner.on('drain', go).on('close', go)
      }
    })
  }

  override _destroy(error: Error | null, callback: Done): void {
    this.#inner.destroy()
    callback(error)
  }
}

/** One direction. */
class Way {
  isBusy = false
  readonly #direction: Direction
  readonly #options: FaultyPortOptions
  readonly #port: FaultyPort
  readonly #pass: (bytes: Buffer) => boolean
  readonly #faults: Fault[]
  #hunter: PreambleHunter | null = null
  #turn = 0

  constructor(
    direction: Direction,
    options: FaultyPortOptions,
    port: FaultyPort,
    pass: (bytes: Buffer) => boolean,
  ) {
    this.#direction = direction
    this.#options = options
    this.#port = port
    this.#pass = pass
    this.#faults = (options.faults ?? []).filter((fault) => fault.direction === direction)
  }

  get isWaiting(): boolean {
    return this.#faults.length > 0
  }

  add(fault: Fault): void {
    this.#faults.push(fault)
  }

  /** `done` says whether the other side has room for more. */
  take(chunk: Buffer, done: (hasRoom: boolean) => void): void {
    this.isBusy = true
    this.#go(chunk, true, (hasRoom) => {
      this.isBusy = false
      done(hasRoom)
    })
  }

  #go(chunk: Buffer, hasRoom: boolean, done: (hasRoom: boolean) => void): void {
    const bytes = this.#hunter === null ? chunk : this.#hunt(chunk)
    const [fault] = this.#faults
    const before = Math.max(0, (fault?.at ?? 0) - this.#port.passed[this.#direction])
    if (bytes.length === 0 || this.#port.destroyed) done(hasRoom)
    else if (fault === undefined || before >= bytes.length) done(this.#deliver(bytes))
    else {
      const room = before === 0 ? hasRoom : this.#deliver(bytes.subarray(0, before))
      this.#faults.shift()
      this.#port.done.push(fault)
      this.#apply(fault, bytes.subarray(before), room, done)
    }
  }

  /** What is left from the next preamble on. */
  #hunt(chunk: Buffer): Buffer {
    const found = this.#hunter?.push(chunk)
    if (found == null) return Buffer.alloc(0)
    this.#hunter = null
    return Buffer.concat([encodePreamble(found.session), found.rest])
  }

  #apply(fault: Fault, rest: Buffer, hasRoom: boolean, done: (hasRoom: boolean) => void): void {
    const piece = Buffer.from(rest.subarray(0, fault.length ?? 1))
    const behind = rest.subarray(piece.length)
    if (fault.kind === 'cut') {
      this.#hunter = new PreambleHunter()
      setImmediate(() => this.#options.onCut?.())
      done(hasRoom)
    } else if (fault.kind === 'stall') {
      setTimeout(() => this.#go(rest, hasRoom, done), fault.ms ?? 0)
    } else if (fault.kind === 'lose') {
      this.#go(behind, hasRoom, done)
    } else if (fault.kind === 'double') {
      this.#go(behind, this.#deliver(Buffer.concat([piece, piece])), done)
    } else {
      for (const [index, byte] of piece.entries()) piece[index] = byte ^ 0x15
      this.#go(behind, this.#deliver(piece), done)
    }
  }

  #deliver(bytes: Buffer): boolean {
    this.#port.passed[this.#direction] += bytes.length
    const sizes = this.#options.chunkSizes ?? []
    let room = true
    for (let offset = 0; offset < bytes.length; ) {
      const size = Math.max(1, sizes[this.#turn++ % Math.max(1, sizes.length)] ?? bytes.length)
      room = this.#pass(Buffer.from(bytes.subarray(offset, offset + size)))
      offset += size
    }
    return room
  }
}
