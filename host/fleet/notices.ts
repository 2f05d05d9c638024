/**
 * Who waits for a change that another host makes: woken by PostgreSQL's NOTIFY, and from time to time without it, since a
 * notice can be lost with its connection.
 */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FleetDatabase, Listening } from './database.ts'

const lookMs = 1_000
const againMs = 500
/** Between two calls for notices of one key. */
const pauseMs = 100

export class FleetNotices implements AsyncDisposable {
  readonly #database: FleetDatabase
  readonly #channels: readonly string[]
  readonly #waiting = new Map<string, Set<() => void>>()
  readonly #receivers = new Map<string, (payload: string) => void>()
  #connection: Listening | undefined
  readonly #closing = new AbortController()
  readonly #listening: Promise<void>

  /** @param channels whose payloads are keys of {@link wait} */
  constructor(database: FleetDatabase, ...channels: readonly string[]) {
    this.#database = database
    this.#channels = channels
    this.#listening = this.#listen()
  }

  /** Until there may be something new of the key: at a notice, and otherwise after a second. */
  async wait(key: string, signal?: AbortSignal): Promise<void> {
    const noticed = Promise.withResolvers<void>()
    const waiting = this.#waiting.get(key) ?? new Set()
    this.#waiting.set(key, waiting.add(noticed.resolve))
    const over = new AbortController()
    const signals = [over.signal, this.#closing.signal, ...(signal === undefined ? [] : [signal])]
    try {
      const timed = sleep(lookMs, undefined, { signal: AbortSignal.any(signals) }).catch(() => undefined)
      await Promise.race([noticed.promise, timed])
    } finally {
      over.abort()
      waiting.delete(noticed.resolve)
      if (waiting.size === 0) this.#waiting.delete(key)
    }
  }

  /**
   * Calls the function when there was a notice of the key, or one may have been lost, until the result is called. Notices that
   * come while it works count as one: every role of the database can send any number of them. What it throws is left out.
   */
  on(key: string, act: () => Promise<void>): () => void {
    const waiting = this.#waiting.get(key) ?? new Set()
    const signal = this.#closing.signal
    let [isUnderWay, isDue] = [false, false]
    const wake = async (): Promise<void> => {
      isDue = true
      if (isUnderWay) return
      isUnderWay = true
      while (isDue && !signal.aborted) {
        isDue = false
        await act().catch(() => undefined)
        await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
      }
      isUnderWay = false
    }
    const noticed = () => void wake()
    this.#waiting.set(key, waiting.add(noticed))
    return () => void waiting.delete(noticed)
  }

  /**
   * Hands each payload of a channel to the function. What is sent while the connection is away is lost.
   * @param channel in lower case, of letters, digits and _
   */
  async receive(channel: string, take: (payload: string) => void): Promise<void> {
    this.#receivers.set(channel, take)
    // Without a connection, the next one listens.
    await this.#connection?.hear(channel).catch(() => undefined)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    await this.#listening
  }

  async #listen(): Promise<void> {
    const { signal } = this.#closing
    const closed = once(signal, 'abort')
    while (!signal.aborted) {
      try {
        await using listening = await this.#database.listen(this.#channels, (payload, channel) => {
          const receive = this.#receivers.get(channel)
          if (receive === undefined) this.#wake(payload)
          else receive(payload)
        })
        this.#connection = listening
        for (const channel of this.#receivers.keys()) await listening.hear(channel)
        // For what happened while nobody listened.
        for (const key of this.#waiting.keys()) this.#wake(key)
        await Promise.race([listening.ended, closed])
      } catch {
        // Whoever waits looks every second meanwhile.
      } finally {
        this.#connection = undefined
      }
      await sleep(againMs, undefined, { signal }).catch(() => undefined)
    }
  }

  #wake(key: string): void {
    for (const wake of this.#waiting.get(key) ?? []) wake()
  }
}
