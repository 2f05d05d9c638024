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

/** Gets every event of a run and its end, at once and in order. Nothing is done for it, unlike for a watcher. */
export interface FeedObserver {
  /** Must not throw. */
  event(event: JournalEvent): void
  end(): void
}

export interface WatchOptions {
  /** `seq` of the first event to get, such as one more than the last that was seen. Default: 1. */
  readonly from?: number
  /** Whether deltas come too. Default: true. */
  readonly deltas?: boolean
}

const WatchSchema = z.strictObject({
  from: z
    .custom(
      (value) => Number.isSafeInteger(value) && Number(value) >= 1,
      'expected a whole number of at least 1',
    )
    .optional(),
  deltas: z.boolean().optional(),
})

/** @throws {CaissonError} `invalid_options` */
export function readWatchOptions(options: WatchOptions): WatchOptions {
  checkArguments('the options of the watch cannot be used', WatchSchema, options)
  return options
}

/** Backlog of a slow watcher at which further deltas are dropped. */
const maxBacklog = 10_000
/** Characters of its deltas at which they are dropped too: the guest chooses how long each is. */
const backlogMaxChars = 4 * 1024 * 1024
/** Delivered items after which a watcher frees their memory, once they are half of its backlog. */
const dropDelivered = 1_024

/** A late watcher gets the last delta of each of these types. */
const lastingStatus: ReadonlySet<string> = new Set(['prepare', 'time-left', 'changes'])

/** Events after which the change set counts. */
const endsOfLiveChanges: ReadonlySet<string> = new Set(['changes-ready', 'run-end'])

/** Events at which nothing is prepared any more: the agent works, or what followed its work is done. */
const endsOfPreparation: ReadonlySet<string> = new Set([
  'session-start',
  'changes-ready',
  'vm-kept',
  'vm-keep-failed',
  'run-end',
])

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
  readonly #observers: FeedObserver[] = []
  #ended = false

  push(item: FeedItem): void {
    if (item.source !== 'delta') {
      this.#events.push(item)
      for (const observer of this.#observers) observer.event(item)
    }
    if (item.source === 'delta' && item.delta.type === 'model-wait')
      this.#waits.set(item.delta.requestId, item)
    if (item.source === 'host' && item.event.type === 'model-end')
      this.#waits.delete(item.event.requestId ?? '')
    if (item.source === 'delta' && lastingStatus.has(item.delta.type)) this.#status.set(item.delta.type, item)
    if (item.source === 'host' && endsOfLiveChanges.has(item.event.type)) this.#status.delete('changes')
    if (item.source === 'host' && endsOfPreparation.has(item.event.type)) this.#status.delete('prepare')
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
    for (const observer of this.#observers) observer.end()
    for (const watcher of this.#watchers) watcher.end()
  }

  /** A late observer gets the earlier events first. */
  observe(observer: FeedObserver): void {
    for (const event of this.#events) observer.event(event)
    if (this.#ended) observer.end()
    else this.#observers.push(observer)
  }

  /** @throws {CaissonError} `invalid_options` */
  watch(options: WatchOptions = {}): AsyncIterableIterator<FeedItem> {
    const { from = 1, deltas = true } = readWatchOptions(options)
    const watcher = new Watcher({ from, deltas }, this.#events, () => this.#watchers.delete(watcher))
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
  readonly #wantsDeltas: boolean
  #backlog: FeedItem[]
  /** Index of the next item; earlier items were delivered. */
  #at = 0
  readonly #onLeave: () => void
  #deltas = 0
  /** Characters of these deltas. */
  #chars = 0
  #ended = false
  #wake: PromiseWithResolvers<void> | undefined

  constructor(
    { from, deltas }: Required<WatchOptions>,
    events: readonly JournalEvent[],
    onLeave: () => void,
  ) {
    this.#from = from
    this.#wantsDeltas = deltas
    this.#backlog = events.filter(({ seq }) => seq >= from)
    this.#onLeave = onLeave
  }

  push(item: FeedItem): void {
    if (item.source === 'delta') {
      if (!this.#wantsDeltas || this.#deltas >= maxBacklog || this.#chars >= backlogMaxChars) return
      this.#deltas += 1
      this.#chars += charsOf(item)
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
        if (item.source === 'delta') {
          this.#deltas -= 1
          this.#chars -= charsOf(item)
        }
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

type DeltaItem = Extract<FeedItem, { source: 'delta' }>
type Piece = DeltaItem & { readonly delta: Extract<Delta, { turn: number; text: string }> }

/** Pieces and characters of all turns together; beyond them the oldest pieces are dropped, which their offsets show. */
const piecesMaxCount = 500
const piecesMaxChars = 1024 * 1024

/**
 * The text, reasoning and arguments of the turns under way, for watchers who come late. The guest names steps, turns and
 * calls as it likes: memory and the work for each delta are bounded whatever it sends.
 */
class OpenTurns {
  /** Joined pieces, each within the limit of a text; of one stream in order. */
  #pieces: Piece[] = []
  #chars = 0

  /** All pieces of the turns under way. */
  pieces(): FeedItem[] {
    return [...this.#pieces]
  }

  note(item: FeedItem): void {
    if (item.source === 'delta') {
      const { delta, agentPath } = item
      if (delta.type === 'turn-reset') this.#dropTurns(agentPath, delta.stepId, delta.turn)
      else if ('turn' in delta && 'text' in delta) this.#add({ ...item, delta })
    } else if (item.source === 'host') {
      if (item.event.type === 'run-end') this.#drop(() => true)
    } else this.#noteEvent(item)
  }

  #noteEvent({ agentPath, event }: Extract<FeedItem, { source: 'agent' }>): void {
    switch (event.type) {
      case 'turn-end':
        // Pieces of the next turn may come before the event is written.
        this.#dropTurns(agentPath, event.stepId, event.turn)
        break
      case 'step-end':
      case 'step-retry':
        this.#dropTurns(agentPath, event.stepId, Number.POSITIVE_INFINITY)
        break
      case 'agent-end':
        this.#drop((piece) => piece.agentPath === agentPath)
    }
  }

  #add(item: Piece): void {
    const { agentPath, delta } = item
    const { stepId, turn } = delta
    const newest = this.#pieces.findLast((piece) => isOf(piece, agentPath, stepId))?.delta
    // An agent and step have one turn at a time.
    if (newest !== undefined && newest.turn > turn) return
    if (newest !== undefined && newest.turn < turn) this.#dropTurns(agentPath, stepId, newest.turn)
    const isContinued = newest?.turn === turn
    const at = isContinued
      ? this.#pieces.findLastIndex(
          (piece) => isOf(piece, agentPath, stepId) && isSameStream(piece.delta, delta),
        )
      : -1
    const last = this.#pieces[at]?.delta
    if (
      last === undefined ||
      last.offset + last.text.length !== delta.offset ||
      last.text.length + delta.text.length > limits.textMaxChars
    )
      this.#pieces.push(item)
    else this.#pieces[at] = { ...item, delta: { ...last, text: last.text + delta.text } }
    this.#chars += delta.text.length
    while (this.#pieces.length > piecesMaxCount || this.#chars > piecesMaxChars)
      this.#chars -= this.#pieces.shift()?.delta.text.length ?? 0
  }

  /** All turns of a step up to this one. */
  #dropTurns(agentPath: string, stepId: string, turn: number): void {
    this.#drop((piece) => isOf(piece, agentPath, stepId) && piece.delta.turn <= turn)
  }

  #drop(isDropped: (piece: Piece) => boolean): void {
    this.#pieces = this.#pieces.filter((piece) => !isDropped(piece))
    this.#chars = this.#pieces.reduce((sum, piece) => sum + piece.delta.text.length, 0)
  }
}

function isOf(piece: Piece, agentPath: string, stepId: string): boolean {
  return piece.delta.stepId === stepId && piece.agentPath === agentPath
}

function isSameStream(a: Piece['delta'], b: Piece['delta']): boolean {
  if (a.type !== 'arguments-delta' || b.type !== 'arguments-delta') return a.type === b.type
  return a.index === b.index
}

function charsOf({ delta }: DeltaItem): number {
  return 'text' in delta ? (delta.text?.length ?? 0) : JSON.stringify(delta).length
}
