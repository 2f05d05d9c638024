/**
 * An in-memory virtio-serial port with its faults: one opener at a time in the guest, bytes lost with that opener,
 * bytes kept while it is closed, no acknowledgements, odd chunk sizes. Bounded, so that back-pressure is real.
 */
import { Duplex } from 'node:stream'

export interface PortFaults {
  /** Sizes, in turn, into which delivered data is split. */
  chunkSizes?: readonly number[]
}

export interface GuestFaults {
  /** Number of bytes from the guest that still arrive before its side closes, as by a kill. */
  cutAfterBytes?: number
}

type Done = (error?: Error | null) => void
type Chunks = Generator<Buffer, void, undefined>

/** Maximum bytes that the host may write while the guest's side is closed. */
const heldMaxBytes = 64 * 1024
const bufferBytes = 64 * 1024

export class LinkedPort {
  /** The host's side; lives as long as the VM. */
  readonly host: Duplex
  /** Whether a guest has written all that `cutAfterBytes` allowed. */
  wasCut = false
  readonly #faults: PortFaults
  #turn = 0
  #guest: Duplex | null = null
  #held: Buffer[] = []
  #heldBytes = 0
  /** Writers waiting for the other side to read. */
  #hostWrite: Done | null = null
  #guestWrite: Done | null = null

  constructor(faults: PortFaults = {}) {
    this.#faults = faults
    this.host = quiet(
      new Duplex({
        allowHalfOpen: false,
        readableHighWaterMark: bufferBytes,
        writableHighWaterMark: bufferBytes,
        read: () => this.#releaseGuestWrite(),
        write: (chunk: Buffer, _encoding, done) => void setImmediate(() => this.#toGuest(chunk, done)),
        destroy: (error, done) => {
          this.#guest?.push(null)
          done(error)
        },
      }),
    )
  }

  /** Opens the guest's side, replacing the previous opener, whose unread data is lost. */
  openGuest({ cutAfterBytes = Number.POSITIVE_INFINITY }: GuestFaults = {}): Duplex {
    this.#guest?.destroy()
    let left = cutAfterBytes
    const guest: Duplex = quiet(
      new Duplex({
        allowHalfOpen: false,
        readableHighWaterMark: bufferBytes,
        writableHighWaterMark: bufferBytes,
        read: () => this.#releaseHostWrite(),
        write: (chunk: Buffer, _encoding, done) =>
          void setImmediate(() => {
            if (this.#guest !== guest || this.host.destroyed) return done()
            const passing = chunk.subarray(0, left)
            left -= passing.length
            const room = this.#deliver(this.host, passing)
            if (left <= 0) {
              this.wasCut = true
              guest.destroy()
            }
            if (room || left <= 0) done()
            else this.#guestWrite = done
          }),
        destroy: (error, done) => {
          if (this.#guest === guest) this.#guest = null
          this.#releaseGuestWrite()
          done(error)
        },
      }),
    )
    this.#guest = guest
    this.#heldBytes = 0
    for (const chunk of this.#held.splice(0)) guest.push(chunk)
    this.#releaseHostWrite()
    return guest
  }

  /** Stale bytes of no active session, as a port may hold them. */
  injectToHost(bytes: Buffer): void {
    this.host.push(bytes)
  }

  injectToGuest(bytes: Buffer): void {
    this.#guest?.push(bytes)
  }

  #toGuest(chunk: Buffer, done: Done): void {
    if (this.#guest === null) {
      this.#held.push(chunk)
      this.#heldBytes += chunk.length
      if (this.#heldBytes > heldMaxBytes) this.#hostWrite = done
      else done()
    } else if (this.#deliver(this.#guest, chunk)) done()
    else this.#hostWrite = done
  }

  #deliver(to: Duplex, bytes: Buffer): boolean {
    let room = true
    for (const piece of this.#cut(bytes)) room = to.push(Buffer.from(piece))
    return room
  }

  *#cut(bytes: Buffer): Chunks {
    const sizes = this.#faults.chunkSizes ?? []
    for (let offset = 0; offset < bytes.length; ) {
      const size = Math.max(1, sizes[this.#turn++ % Math.max(1, sizes.length)] ?? bytes.length)
      yield bytes.subarray(offset, offset + size)
      offset += size
    }
  }

  #releaseHostWrite(): void {
    const done = this.#hostWrite
    this.#hostWrite = null
    done?.()
  }

  #releaseGuestWrite(): void {
    const done = this.#guestWrite
    this.#guestWrite = null
    done?.()
  }
}

function quiet(duplex: Duplex): Duplex {
  return duplex.on('error', () => {})
}
