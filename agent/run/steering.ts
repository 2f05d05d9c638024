/**
 * What a person does to a running agent: messages for it, and whether it holds. One for a run and all its sub-agents: they
 * share the pause, and messages go to the root agent alone, there to every step that runs, once each. Nothing here grows with
 * the length of a run.
 */
import { limits } from '#specs/protocol/limits.ts'

export interface SteerMessage {
  readonly messageId: string
  readonly text: string
}

/** What one conversation hears of the person; closed with it. */
export interface MessageReader extends Disposable {
  /** Whether `take` would give anything. */
  readonly pending: boolean
  /** The messages since the last call, in the order in which they came; `limits.steerMaxPending` at most. */
  take(): readonly SteerMessage[]
}

/** Messages that other conversations saw and that a new one is told at its beginning: the last so many. */
const rememberedMessages = 32
/**
 * Ids by which a message that comes again is known. The host sends one again whose answer was lost with its session, and no more
 * than this many requests are without an answer at once.
 */
const rememberedIds = limits.pendingMaxRequests

export class Steering {
  readonly #known = new Set<string>()
  /** Messages that no conversation has seen. */
  #unseen: SteerMessage[] = []
  /** Messages that one has. */
  #seen: SteerMessage[] = []
  readonly #readers = new Set<{ queue: SteerMessage[] }>()
  #paused = false
  #closed = false
  readonly #listeners = new Set<(paused: boolean) => void>()

  get paused(): boolean {
    return this.#paused
  }

  /** `busy`: too many wait to be seen already, by anybody or by one conversation; `over`: nobody will see it. One that is known by its id changes nothing. */
  push(message: SteerMessage): 'taken' | 'busy' | 'over' {
    if (this.#known.has(message.messageId)) return 'taken'
    if (this.#closed) return 'over'
    const queues = [this.#unseen, ...[...this.#readers].map(({ queue }) => queue)]
    if (queues.some(({ length }) => length >= limits.steerMaxPending)) return 'busy'
    this.#known.add(message.messageId)
    const [oldest] = this.#known
    if (this.#known.size > rememberedIds && oldest !== undefined) this.#known.delete(oldest)
    this.#unseen.push(message)
    for (const reader of this.#readers) reader.queue.push(message)
    return 'taken'
  }

  /** What others of this run have seen already: a conversation that begins is told it with all else. */
  get seen(): readonly SteerMessage[] {
    return this.#seen
  }

  /** Hears from here on, and what nobody has seen yet. */
  join(): MessageReader {
    const reader = { queue: [...this.#unseen] }
    this.#readers.add(reader)
    return {
      get pending() {
        return reader.queue.length > 0
      },
      take: () => {
        const taken = reader.queue
        reader.queue = []
        this.#markSeen(taken)
        return taken
      },
      [Symbol.dispose]: () => void this.#readers.delete(reader),
    }
  }

  /** The end of the run: takes no more, and gives the messages that no conversation has seen. */
  close(): readonly SteerMessage[] {
    this.#closed = true
    const unseen = this.#unseen
    this.#unseen = []
    return unseen
  }

  setPaused(paused: boolean): void {
    if (paused === this.#paused) return
    this.#paused = paused
    for (const listener of [...this.#listeners]) listener(paused)
  }

  /** Called at each beginning and end of a pause, and at once when one is under way; returns what ends that. */
  onPause(listener: (paused: boolean) => void): () => void {
    this.#listeners.add(listener)
    if (this.#paused) listener(true)
    return () => void this.#listeners.delete(listener)
  }

  /** Resolves as soon as nothing is held back; also, for the caller to look at, when `signal` is aborted. */
  async ready(signal: AbortSignal): Promise<void> {
    while (this.#paused && !signal.aborted) {
      await new Promise<void>((resolve) => {
        const go = (): void => {
          this.#listeners.delete(go)
          signal.removeEventListener('abort', go)
          resolve()
        }
        this.#listeners.add(go)
        signal.addEventListener('abort', go, { once: true })
      })
    }
  }

  #markSeen(messages: readonly SteerMessage[]): void {
    const fresh = messages.filter((message) => this.#unseen.includes(message))
    if (fresh.length === 0) return
    this.#unseen = this.#unseen.filter((message) => !fresh.includes(message))
    this.#seen = [...this.#seen, ...fresh].slice(-rememberedMessages)
  }
}
