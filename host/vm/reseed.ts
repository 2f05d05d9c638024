// Gives a restored guest its own identity: random bytes for its kernel, then the time. Talks to a thread of the guest's
// init over its own port; format in vm-image/guest/fresh.py. The clock jump also makes OpenSSL in running programs
// reseed, since its reseed interval has passed: templates are taken with the clock of a day long ago.

import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import { AwakeLimit } from '#specs/node/awake-timer.ts'

/** Name of the port; QEMU attaches it before the others, and the guest relies on that. */
export const ROOT_PORT = 'caisson.root'
/** The guest's clock in a template, decades before any restore: 2001-01-01T00:00:00Z in milliseconds. */
export const TEMPLATE_EPOCH_MS = 978_307_200_000

const MAGIC = Buffer.from('CAISSONF', 'latin1')
const FLUSH = Buffer.from('CAISSONC', 'latin1')
const magics = [MAGIC, FLUSH]
const unanswered = new Map([
  [MAGIC, 'the guest took neither random bytes nor the time'],
  [FLUSH, 'the guest did not flush its disk in time'],
])
/** Set in the answer to a flush that failed. */
const FAILED = 1n << 63n
const MESSAGE_BYTES = 80
const ANSWER_BYTES = 16
const SEED_BYTES = 64
/** Bytes kept of the guest's output: some late answers, and the current one. */
const MAX_UNREAD_BYTES = 64 * ANSWER_BYTES
const SETTLE_TRIES = 3
/** Includes the transfer time of the answer. */
const SETTLED_MS = 5
/** Maximum clock error, reported by the guest, before any request is sent to it. */
const NEAR_MS = 40
const NEAR_TRIES = 6

/** The guest did not answer in time, or in an unknown form. */
export class ReseedError extends Error {
  override readonly name: string = 'ReseedError'
}

/** The host's end of the port closed, as it does with QEMU alone. */
export class PortClosedError extends ReseedError {
  override readonly name = 'PortClosedError'
}

interface ReseedOptions {
  /** Milliseconds since 1970; absent: now. */
  readonly epochMs?: number
  /** Whether to send random bytes too; otherwise only the time. Default true. */
  readonly entropy?: boolean
  readonly deadlineMs: number
}

/** The host's end of the port: one request at a time. The caller closes the stream. */
export class PrivilegedPort {
  readonly #port: Duplex
  #unread = Buffer.alloc(0)
  #last: Promise<unknown> = Promise.resolve()
  #wake: () => void = () => {}
  #flushes = 0

  constructor(port: Duplex) {
    this.#port = port
    port.on('data', (chunk: Buffer) => {
      // Unrequested output of the guest uses no memory.
      this.#unread = Buffer.concat([this.#unread, chunk]).subarray(-MAX_UNREAD_BYTES)
      this.#wake()
    })
    port.on('close', () => this.#wake())
  }

  /**
   * Sets entropy and clock. Resolves once the guest has done both, with the guest's clock minus the host's in
   * milliseconds (includes the transfer time, so never more than the real difference). @throws {ReseedError}
   */
  refresh(options: ReseedOptions): Promise<number> {
    const turn = this.#last.then(() => this.#ask(options))
    this.#last = turn.catch(() => {})
    return turn
  }

  /**
   * For a resumed guest: like {@link refresh}, and repeats the clock while it is far off, six times at most. The first
   * measurement includes the time that an emulator needs to translate the guest's code. The clock is then {@link
   * settle}d while the guest does other work. @throws {ReseedError}
   */
  async reseed(options: ReseedOptions): Promise<void> {
    let offMs = await this.refresh(options)
    for (let tries = 1; tries < NEAR_TRIES && Math.abs(offMs) > NEAR_MS; tries += 1)
      offMs = await this.refresh({ entropy: false, deadlineMs: options.deadlineMs })
    if (Math.abs(offMs) > SETTLED_MS) this.settle(options.deadlineMs).catch(() => undefined)
  }

  /**
   * Sets only the clock, and repeats this while the guest reports an error; three times at most. @throws {ReseedError}
   */
  async settle(deadlineMs: number): Promise<void> {
    for (let tries = 0; tries < SETTLE_TRIES; tries += 1) {
      if (Math.abs(await this.refresh({ entropy: false, deadlineMs })) <= SETTLED_MS) return
    }
  }

  /**
   * Brings to the scratch disk what the guest's file system holds back. Resolves once the host's file has it too.
   * @throws {ReseedError}
   */
  flush(deadlineMs: number): Promise<void> {
    const turn = this.#last.then(() => this.#flush(deadlineMs))
    this.#last = turn.catch(() => {})
    return turn
  }

  async #flush(deadlineMs: number): Promise<void> {
    const number = BigInt(++this.#flushes)
    const message = Buffer.alloc(MESSAGE_BYTES)
    message.set(FLUSH)
    message.writeBigUInt64BE(number, FLUSH.length)
    this.#unread = Buffer.alloc(0)
    this.#port.write(message)
    const answer = await this.#answer(FLUSH, deadlineMs, (value) => (value & ~FAILED) === number)
    if (answer !== number) throw new ReseedError('the guest could not flush its disk; its console says why')
  }

  async #ask({ epochMs, entropy = true, deadlineMs }: ReseedOptions): Promise<number> {
    this.#unread = Buffer.alloc(0)
    const message = Buffer.alloc(MESSAGE_BYTES)
    message.set(MAGIC)
    if (entropy) message.set(randomBytes(SEED_BYTES), MESSAGE_BYTES - SEED_BYTES)
    const sent = BigInt(Math.round((epochMs ?? Date.now()) * 1000))
    message.writeBigUInt64BE(sent, MAGIC.length)
    this.#port.write(message)
    // A guest that accepted the sent time cannot be behind it.
    return Number(await this.#answer(MAGIC, deadlineMs, (time) => time >= sent)) / 1000 - Date.now()
  }

  /**
   * The number of the first answer that fits; another belongs to an earlier request that timed out, or was sent before a
   * pause.
   */
  async #answer(
    magic: Buffer<ArrayBuffer>,
    deadlineMs: number,
    fits: (value: bigint) => boolean,
  ): Promise<bigint> {
    using limit = new AwakeLimit(deadlineMs)
    for (;;) {
      while (this.#unread.length >= ANSWER_BYTES) {
        const answer = this.#unread.subarray(0, ANSWER_BYTES)
        this.#unread = this.#unread.subarray(ANSWER_BYTES)
        const isLate = !answer.subarray(0, magic.length).equals(magic)
        if (isLate && !magics.some((other) => answer.subarray(0, other.length).equals(other)))
          throw new ReseedError('the guest answered in another form')
        const value = answer.readBigUInt64BE(magic.length)
        if (!isLate && fits(value)) return value
      }
      if (this.#port.destroyed) throw new PortClosedError('the port closed')
      if (limit.isOver) throw new ReseedError(unanswered.get(magic) ?? 'the guest did not answer')
      await this.#change(limit.signal)
    }
  }

  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        signal.removeEventListener('abort', wake)
        resolve()
      }
      this.#wake = wake
      signal.addEventListener('abort', wake)
    })
  }
}
