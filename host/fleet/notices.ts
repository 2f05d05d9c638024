/**
 * Who waits for a change that another host makes: woken by PostgreSQL's NOTIFY, and from time to time without it, since a
 * notice can be lost with its connection.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { FleetDatabase } from './database.ts'

const lookMs = 1_000
const againMs = 500

export class FleetNotices implements AsyncDisposable {
  readonly #database: FleetDatabase
  readonly #channel: string
  readonly #waiting = new Map<string, Set<() => void>>()
  readonly #closing = new AbortController()
  readonly #listening: Promise<void>

  /** @param channel whose payloads are keys of {@link wait} */
  constructor(database: FleetDatabase, channel: string) {
    this.#database = database
    this.#channel = channel
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

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    await this.#listening
  }

  async #listen(): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted) {
      const client = this.#database.newClient()
      const ended = new Promise<void>((resolve) => {
        client.on('error', () => resolve()).on('end', () => resolve())
        signal.addEventListener('abort', () => resolve(), { once: true })
      })
      client.on('notification', ({ payload = '' }) => this.#wake(payload))
      try {
        await client.connect()
        await client.query(`LISTEN ${this.#channel}`)
        // For what happened while nobody listened.
        for (const key of this.#waiting.keys()) this.#wake(key)
        await ended
      } catch {
        // Whoever waits looks every second meanwhile.
      } finally {
        await client.end().catch(() => undefined)
      }
      await sleep(againMs, undefined, { signal }).catch(() => undefined)
    }
  }

  #wake(key: string): void {
    for (const wake of this.#waiting.get(key) ?? []) wake()
  }
}
