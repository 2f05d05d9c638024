/** Feeds journal events and deltas of a run to its watchers, in order, each at its own pace within a limit. */
import * as z from 'zod'
import type { Delta, HostDelta, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
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

/** Backlog of a slow watcher at which further deltas are dropped. */
const maxBacklog = 10_000
/** Delivered items after which a watcher frees their memory, once they are half of its backlog. */
const dropDelivered = 1_024

/** A late watcher gets the last delta of each of these types. */
const lastingStatus: ReadonlySet<string> = new Set(['prepare', 'time-left'])

/**
 * Distributes items to any number of watchers; a late one first gets the earlier events, then what the open model
 * requests wait for, the last status, and what was written in the turns under way, and no other earlier delta.
 */
export class Feed {
  readonly #events: JournalEvent[] = []
  /** The last wait of each open model request. */
  readonly #waits = new Map<string, FeedItem>()
  /** The last status of each kind that stays true until the next. */
  readonly #status = new Map<string, FeedItem>()
  readonly #turns = new OpenTurns()
  readonly #watchers = new Set<Watcher>()
  #ended = false

  push(item: FeedItem): void {
    if (item.source !== 'delta') this.#events.push(item)
    if (item.source === 'delta' && item.delta.type === 'model-wait')
      this.#waits.set(item.delta.requestId, item)
    if (item.source === 'host' && item.event.type === 'model-end')
      this.#waits.delete(item.event.requestId ?? '')
    if (item.source === 'delta' && lastingStatus.has(item.delta.type)) this.#status.set(item.delta.type, item)
    // The agent works from now on.
    if (item.source === 'host' && item.event.type === 'session-start') this.#status.delete('prepare')
    this.#turns.note(item)
    for (const watcher of this.#watchers) watcher.push(item)
  }

  /** Whether anybody watches. */
  get isWatched(): boolean {
    return this.#watchers.size > 0
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
    const current = this.#ended
      ? []
      : [...this.#status.values(), ...this.#waits.values(), ...this.#turns.pieces()]
    for (const item of current) watcher.push(item)
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

type Piece = Extract<Delta, { turn: number; text: string }>
type DeltaItem = Extract<FeedItem, { source: 'delta' }>

interface OpenTurn {
  readonly agentPath: string
  readonly stepId: string
  readonly turn: number
  /** Joined pieces in order, each within the limit of a text. */
  pieces: (DeltaItem & { readonly delta: Piece })[]
}

/** Characters of all turns together; beyond them the oldest pieces are dropped, which their offsets show. */
const turnsMaxChars = 1024 * 1024

/** The text, reasoning and arguments of the turns under way, for watchers who come late. Bounded in memory. */
class OpenTurns {
  /** By agent and step, which have one turn at a time. */
  readonly #turns = new Map<string, OpenTurn>()
  #chars = 0

  /** All pieces of the turns under way. */
  pieces(): FeedItem[] {
    return [...this.#turns.values()].flatMap((open) => open.pieces)
  }

  note(item: FeedItem): void {
    if (item.source === 'delta') {
      const { delta, agentPath } = item
      if (delta.type === 'turn-reset')
        this.#drop((open) => isOf(open, agentPath, delta) && open.turn <= delta.turn)
      else if ('turn' in delta && 'text' in delta) this.#add({ ...item, delta })
    } else if (item.source === 'host') {
      if (item.event.type === 'run-end') this.#drop(() => true)
    } else this.#noteEvent(item)
  }

  #noteEvent({ agentPath, event }: Extract<FeedItem, { source: 'agent' }>): void {
    switch (event.type) {
      case 'turn-end':
        // Pieces of the next turn may come before the event is written.
        this.#drop((open) => isOf(open, agentPath, event) && open.turn <= event.turn)
        break
      case 'step-end':
      case 'step-retry':
        this.#drop((open) => isOf(open, agentPath, event))
        break
      case 'agent-end':
        this.#drop((open) => open.agentPath === agentPath)
    }
  }

  #add(item: DeltaItem & { readonly delta: Piece }): void {
    const { agentPath, delta } = item
    const { stepId, turn } = delta
    const key = `${agentPath} ${stepId}`
    const known = this.#turns.get(key)
    if (known !== undefined && known.turn > turn) return
    if (known !== undefined && known.turn < turn) this.#drop((open) => open === known)
    const open = this.#turns.get(key) ?? { agentPath, stepId, turn, pieces: [] }
    this.#turns.set(key, open)
    this.#chars += delta.text.length
    const at = open.pieces.findLastIndex((piece) => streamOf(piece.delta) === streamOf(delta))
    const last = open.pieces[at]?.delta
    const text = `${last?.text}${delta.text}`
    if (
      last === undefined ||
      last.offset + last.text.length !== delta.offset ||
      text.length > limits.textMaxChars
    )
      open.pieces.push(item)
    else open.pieces[at] = { ...item, delta: { ...last, text } }
    while (this.#chars > turnsMaxChars) this.#dropOldest(open)
  }

  /** Of another turn, if there is one with more. */
  #dropOldest(own: OpenTurn): void {
    const [largest = own] = [...this.#turns.values()].toSorted((a, b) => b.pieces.length - a.pieces.length)
    const [oldest, ...rest] = largest.pieces
    if (oldest === undefined) this.#chars = 0
    else this.#chars -= oldest.delta.text.length
    largest.pieces = rest
  }

  #drop(isDropped: (open: OpenTurn) => boolean): void {
    for (const [key, open] of this.#turns) {
      if (!isDropped(open)) continue
      for (const { delta } of open.pieces) this.#chars -= delta.text.length
      this.#turns.delete(key)
    }
  }
}

function isOf(open: OpenTurn, agentPath: string, { stepId }: { readonly stepId: string }): boolean {
  return open.agentPath === agentPath && open.stepId === stepId
}

function streamOf(delta: Piece): string {
  return delta.type === 'arguments-delta' ? `${delta.type} ${delta.index}` : delta.type
}
