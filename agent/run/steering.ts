/**
 * Messages from a person to one running agent, once to each of its running steps, and the pause that the run shares with
 * all its sub-agents. Memory use does not grow with the run's length.
 */
import { limits } from '#specs/protocol/limits.ts'

export interface SteerMessage {
  readonly messageId: string
  readonly text: string
  /** Absent: the root agent. */
  readonly agentPath?: string | undefined
}

/** One conversation's view of the messages; closed with it. */
export interface MessageReader extends Disposable {
  /** Whether `take` would return anything. */
  readonly pending: boolean
  /** The messages since the last call, in order of arrival; at most `limits.steerMaxPending`. */
  take(): readonly SteerMessage[]
  /** Leaves out what this conversation had before another agent continued it. */
  forget(messages: readonly SteerMessage[]): void
}

/** Number of recent messages, seen by other conversations, that a new one receives at its beginning. */
const rememberedMessages = 32
/**
 * Number of remembered message ids, to detect repeats. The host resends a message whose answer was lost with its
 * session, and never has more than this many unanswered requests.
 */
const rememberedIds = limits.pendingMaxRequests

export class Steering {
  readonly #known = new Set<string>()
  /** Messages that no conversation has seen. */
  #unseen: SteerMessage[] = []
  /** Messages that one has seen. */
  #seen: SteerMessage[] = []
  readonly #readers = new Set<{ queue: SteerMessage[] }>()
  #paused = false
  #closed = false
  readonly #listeners = new Set<(paused: boolean) => void>()
  readonly #whole: Steering | undefined

  /** @param whole of a sub-agent: that of its run, which has the pause */
  constructor(whole?: Steering) {
    this.#whole = whole
  }

  get paused(): boolean {
    return this.#whole?.paused ?? this.#paused
  }

  /**
   * Adds a message. `busy`: too many are unseen, in total or by one conversation; `over`: the run has ended. A
   * message with a known id changes nothing.
   */
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

  /** Messages that this run had seen before another agent continued it. */
  restore(messages: readonly SteerMessage[]): void {
    const ids = new Set(messages.map(({ messageId }) => messageId))
    const isOther = ({ messageId }: SteerMessage) => !ids.has(messageId)
    for (const id of ids) this.#known.add(id)
    // The host may have sent them again by now.
    this.#unseen = this.#unseen.filter(isOther)
    this.#seen = [...this.#seen.filter(isOther), ...messages].slice(-rememberedMessages)
  }

  /** Messages that others in this run have seen: a new conversation receives them first. */
  get seen(): readonly SteerMessage[] {
    return this.#seen
  }

  /** Subscribes to new messages and to those that nobody has seen. */
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
      forget: (messages) => {
        const ids = new Set(messages.map(({ messageId }) => messageId))
        reader.queue = reader.queue.filter(({ messageId }) => !ids.has(messageId))
      },
      [Symbol.dispose]: () => void this.#readers.delete(reader),
    }
  }

  /** Ends the run: rejects further messages and returns those that no conversation has seen. */
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

  /**
   * Calls `listener` at each beginning and end of a pause, and at once during one; returns the unsubscribe function.
   */
  onPause(listener: (paused: boolean) => void): () => void {
    this.#listeners.add(listener)
    if (this.#paused) listener(true)
    return () => void this.#listeners.delete(listener)
  }

  /** Resolves when the run is not paused; also when `signal` is aborted, which the caller must check. */
  async ready(signal: AbortSignal): Promise<void> {
    if (this.#whole !== undefined) return await this.#whole.ready(signal)
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
