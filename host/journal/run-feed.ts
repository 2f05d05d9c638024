/** Feeds journal events and deltas of a run to its watchers, in order, each at its own pace within a limit. */
import * as z from 'zod'
import type { Delta, HostDelta, JournalEvent } from '#specs/protocol/event.ts'
import { checkArguments } from '../files/check-arguments.ts'

/** One item of a run's feed; a delta has no number and may be dropped. */
export type FeedItem =
  | JournalEvent
  | {
      readonly source: 'delta'
      readonly runId: string
      readonly agentPath: string
      readonly delta: Delta | HostDelta
    }

export interface WatchOptions {
  /** `seq` of the first event to get, such as one more than the last that was seen. Default: 1. */
  readonly from?: number
}

const WatchSchema = z.strictObject({
  from: z
    .custom(
      (value) => Number.isSafeInteger(value) && Number(value) >= 1,
      'expected a whole number of at least 1',
    )
    .optional(),
})

/** Backlog of a slow watcher at which its oldest deltas are dropped. */
const maxBacklog = 10_000
/** Delivered items after which a watcher frees their memory, once they are half of its backlog. */
const dropDelivered = 1_024

/**
 * Distributes items to any number of watchers; a late one first gets the earlier events, then what the open model
 * requests wait for, and no other earlier delta.
 */
export class Feed {
  readonly #events: JournalEvent[] = []
  /** The last wait of each open model request. */
  readonly #waits = new Map<string, FeedItem>()
  readonly #watchers = new Set<Watcher>()
  #ended = false

  push(item: FeedItem): void {
    if (item.source !== 'delta') this.#events.push(item)
    if (item.source === 'delta' && item.delta.type === 'model-wait')
      this.#waits.set(item.delta.requestId, item)
    if (item.source === 'host' && item.event.type === 'model-end')
      this.#waits.delete(item.event.requestId ?? '')
    for (const watcher of this.#watchers) watcher.push(item)
  }

  /** Ends the feed; watchers end after their backlog. */
  end(): void {
    this.#ended = true
    for (const watcher of this.#watchers) watcher.end()
  }

  /** @throws {CaissonError} `invalid_options` */
  watch(options: WatchOptions = {}): AsyncIterableIterator<FeedItem> {
    checkArguments('the options of the watch cannot be used', WatchSchema, options)
    const { from = 1 } = options
    const watcher = new Watcher(from, this.#events, () => this.#watchers.delete(watcher))
    for (const item of this.#ended ? [] : this.#waits.values()) watcher.push(item)
    if (this.#ended) watcher.end()
    else this.#watchers.add(watcher)
    return watcher
  }
}

class Watcher implements AsyncIterableIterator<FeedItem> {
  readonly #from: number
  #backlog: FeedItem[]
  /** Index of the next item; earlier items were delivered. */
  #at = 0
  readonly #onLeave: () => void
  #deltas = 0
  #ended = false
  #wake: PromiseWithResolvers<void> | undefined

  constructor(from: number, events: readonly JournalEvent[], onLeave: () => void) {
    this.#from = from
    this.#backlog = events.filter(({ seq }) => seq >= from)
    this.#onLeave = onLeave
  }

  push(item: FeedItem): void {
    if (item.source === 'delta') {
      if (this.#deltas >= maxBacklog) return
      this.#deltas += 1
    } else if (item.seq < this.#from) return
    this.#backlog.push(item)
    this.#wake?.resolve()
  }

  end(): void {
    this.#ended = true
    this.#wake?.resolve()
  }

  async next(): Promise<IteratorResult<FeedItem>> {
    for (;;) {
      const item = this.#take()
      if (item !== undefined) {
        if (item.source === 'delta') this.#deltas -= 1
        return { done: false, value: item }
      }
      if (this.#ended) return { done: true, value: undefined }
      this.#wake = Promise.withResolvers<void>()
      await this.#wake.promise
    }
  }

  /** Array.shift moves all later items, which is quadratic on a long backlog. */
  #take(): FeedItem | undefined {
    const item = this.#backlog[this.#at]
    if (item === undefined) return undefined
    this.#at += 1
    if (this.#at >= dropDelivered && this.#at * 2 >= this.#backlog.length) {
      this.#backlog = this.#backlog.slice(this.#at)
      this.#at = 0
    }
    return item
  }

  async return(): Promise<IteratorResult<FeedItem>> {
    this.#onLeave()
    this.end()
    this.#backlog = []
    this.#at = 0
    return { done: true, value: undefined }
  }

  [Symbol.asyncIterator](): this {
    return this
  }
}
