/**
 * One port shared by consecutive sessions: between sessions it searches for preambles and drops everything else;
 * during a session it passes the bytes to one receiver. Owns the listeners on the port, never the port.
 */
import type { Duplex } from 'node:stream'
import { encodePreamble, PreambleHunter, type SessionId } from './preamble.ts'

/** Bytes waiting to be written at which the other side counts as not reading. */
const stuckBytes = 16 * 1024 * 1024

export type ChannelClosed = { message: string }

function ignoreError(): void {}

export class Channel {
  readonly #port: Duplex
  readonly #onPreamble: (session: SessionId) => void
  readonly #onClosed: (closed: ChannelClosed) => void
  #receiver: ((chunk: Buffer) => void) | null = null
  #hunter = new PreambleHunter()
  #open = true

  /**
   * Starts reading `port`. `onPreamble` is called for each preamble between sessions; it may attach a receiver for
   * the bytes after it. `onClosed` is called once, when the port ends or fails.
   */
  constructor(
    port: Duplex,
    onPreamble: (session: SessionId) => void,
    onClosed: (closed: ChannelClosed) => void,
  ) {
    this.#port = port
    this.#onPreamble = onPreamble
    this.#onClosed = onClosed
    port.on('data', this.#onData)
    port.on('end', this.#onEnd)
    port.on('close', this.#onEnd)
    port.on('error', this.#onError)
    // An earlier listener may have released the port.
    port.resume()
  }

  get open(): boolean {
    return this.#open
  }

  /** Bytes passed to the port that it has not taken yet. */
  get waitingBytes(): number {
    return this.#port.writableLength
  }

  /**
   * Passes all further bytes to `receiver`, replacing the previous one. The returned function detaches it if it is
   * still attached: the search for a preamble then begins with `unread`.
   */
  attach(receiver: (chunk: Buffer) => void): (unread?: Buffer) => void {
    this.#receiver = receiver
    this.setPaused(false)
    return (unread = Buffer.alloc(0)) => {
      if (this.#receiver !== receiver) return
      this.#receiver = null
      this.#hunter = new PreambleHunter()
      this.setPaused(false)
      // Deferred: the caller is still ending the previous session.
      if (unread.length > 0) queueMicrotask(() => this.#take(unread))
    }
  }

  /** Back-pressure: while paused nothing is read from the port. */
  setPaused(paused: boolean): void {
    if (!this.#open) return
    if (paused) this.#port.pause()
    else this.#port.resume()
  }

  writePreamble(session: SessionId): void {
    this.write(encodePreamble(session))
  }

  /** Writes bytes to the port; calls `written` when it has taken them, or never will. False: wait for that. */
  write(bytes: Buffer, written?: (error?: Error | null) => void): boolean {
    if (!this.#open || !this.#port.writable) {
      written?.(new Error('the port is closed'))
      return true
    }
    if (this.#port.writableLength > stuckBytes) {
      this.#close(`${this.#port.writableLength} bytes wait to be written: the other side does not read`)
      written?.(new Error('the port is stuck'))
      return true
    }
    return this.#port.write(bytes, written)
  }

  /** Stops listening. The port stays open and ignores data until there is another listener. */
  release(): void {
    this.#open = false
    this.#receiver = null
    this.#port.off('data', this.#onData)
    this.#port.off('end', this.#onEnd)
    this.#port.off('close', this.#onEnd)
    this.#port.off('error', this.#onError)
    // A late error of the port must not end the process; one listener suffices for all channels.
    this.#port.off('error', ignoreError)
    this.#port.on('error', ignoreError)
    this.#port.pause()
  }

  #take(chunk: Buffer): void {
    let rest = chunk
    while (rest.length > 0 && this.#open) {
      if (this.#receiver !== null) {
        this.#receiver(rest)
        return
      }
      const found = this.#hunter.push(rest)
      if (found === null) return
      this.#onPreamble(found.session)
      rest = this.#receiver === null ? found.again : found.rest
    }
  }

  readonly #onData = (chunk: Buffer): void => this.#take(chunk)
  readonly #onEnd = (): void => this.#close('the port ended')
  readonly #onError = (error: Error): void => this.#close(`the port failed: ${error.message}`)

  #close(message: string): void {
    if (!this.#open) return
    this.release()
    this.#onClosed({ message })
  }
}
