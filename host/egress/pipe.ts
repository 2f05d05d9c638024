/**
 * Pipes bytes between a guest stream and a host connection until both directions have ended. Handles backpressure and
 * half-close, and limits bytes, time and idle time. Never inspects the data.
 */
import type { Duplex, Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { waitForDrain } from '#specs/node/drain.ts'

/** Limits of one connection. */
export interface ConnectionLimits {
  /** Per direction. */
  readonly maxBytes: number
  /** Total duration. */
  readonly maxMs: number
  /** Maximum time without a byte in either direction. */
  readonly idleMs: number
}

export const defaultConnectionLimits: ConnectionLimits = {
  maxBytes: 1024 ** 3,
  maxMs: 60 * 60 * 1000,
  idleMs: 5 * 60 * 1000,
}

/** Why a connection was stopped. */
export interface Stop {
  readonly why: 'limit' | 'broken' | 'over'
  /** A line for the journal. */
  readonly text: string
}

/** Counts and times one connection; reports the first stop to `onStop`. */
export class Watch implements Disposable {
  bytesOut = 0
  bytesIn = 0
  #stop: Stop | null = null
  readonly #limits: ConnectionLimits
  readonly #onStop: (stop: Stop) => void
  readonly #idle: NodeJS.Timeout
  readonly #end: NodeJS.Timeout

  constructor(limits: ConnectionLimits, onStop: (stop: Stop) => void) {
    this.#limits = limits
    this.#onStop = onStop
    const over = (ms: number, text: string): NodeJS.Timeout =>
      setTimeout(() => this.stop({ why: 'limit', text }), ms)
    this.#end = over(limits.maxMs, `ended after ${seconds(limits.maxMs)}, the longest a connection may take`)
    this.#idle = over(limits.idleMs, `ended after ${seconds(limits.idleMs)} without a byte`)
  }

  get stopped(): Stop | null {
    return this.#stop
  }

  stop(stop: Stop): void {
    if (this.#stop !== null) return
    this.#stop = stop
    this.#onStop(stop)
  }

  /** Whether this many more bytes may pass; otherwise the connection is stopped. */
  count(direction: 'out' | 'in', bytes: number): boolean {
    if (this.#stop !== null) return false
    this.#idle.refresh()
    if (direction === 'out') this.bytesOut += bytes
    else this.bytesIn += bytes
    if (Math.max(this.bytesOut, this.bytesIn) <= this.#limits.maxBytes) return true
    const mebibytes = this.#limits.maxBytes / 1024 / 1024
    const way = direction === 'out' ? 'sent' : 'received'
    this.stop({ why: 'limit', text: `ended: more than ${mebibytes} MiB ${way}` })
    return false
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#idle)
    clearTimeout(this.#end)
  }
}

function seconds(ms: number): string {
  return ms >= 1000 ? `${Math.round(ms / 1000)} s` : `${ms} ms`
}

/** The guest's stream, and the bytes already read from it. */
interface GuestSide {
  readonly stream: Duplex & { readonly rstCode?: number | undefined }
  readonly source: AsyncIterable<Buffer>
}

/**
 * Resolves when both directions have ended, or one failed and both sides are destroyed. When a limit stops it, the
 * caller's `onStop` ends the two sides.
 */
export async function carryBothWays(guest: GuestSide, outside: Duplex, watch: Watch): Promise<void> {
  const { stream, source } = guest
  const stop = (text: string) => (): void => watch.stop({ why: 'broken', text })
  const out = pump(source, outside, 'out', watch).then(async () => {
    // HTTP/2 ends a reset stream as if it were complete.
    if ((stream.rstCode ?? 0) !== 0) throw new Error('reset')
    await endAndFlush(outside)
  })
  const back = pump(readAll(outside), stream, 'in', watch).then(() => endAndFlush(stream))
  await Promise.all([
    out.catch(stop('the guest, or the server while the guest was sending, broke off')),
    back.catch(stop('the server, or the guest while it was receiving, broke off')),
  ])
}

/** Closing a stream immediately would lose unsent data. */
async function endAndFlush(stream: Writable): Promise<void> {
  stream.end()
  await finished(stream, { readable: false })
}

/** All data of a stream; an early end is an error, even if it happened before anyone listened. */
export function readAll(stream: Duplex): AsyncIterable<Buffer> {
  return stream.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
}

/** @throws when either end fails, or a limit stopped it */
export async function pump(
  from: AsyncIterable<Buffer>,
  to: Writable,
  direction: 'out' | 'in',
  watch: Watch,
): Promise<void> {
  for await (const chunk of from) {
    if (!watch.count(direction, chunk.length)) throw new Error('stopped')
    if (!to.writable) throw new Error('the other side has closed')
    if (!to.write(chunk)) await waitForDrain(to)
  }
}
