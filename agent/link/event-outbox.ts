/**
 * Queues the agent's events for the host: numbers them, keeps them until acknowledged, resends them in a new session.
 * Bounded: when it is full, `emit` waits. An event too large for a frame is shortened visibly, never dropped.
 */
import { AgentEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { eventEmit } from '#specs/protocol/methods.ts'
import type { Peer } from '#specs/protocol/peer.ts'

interface Entry {
  n: number
  agentPath: string
  event: AgentEvent
  bytes: number
}

/** Space for a frame's envelope. */
const batchMaxBytes = limits.frameMaxBytes - 4_096
/** Maximum JSON bytes of all kept events. */
const bufferMaxBytes = 16 * 1024 * 1024

export class EventOutbox {
  readonly runId: string
  readonly #maxCount: number
  #entries: Entry[] = []
  #bytes = 0
  #next = 1
  /** The last event sent in the current session. */
  #sent = 0
  #acked = 0
  #peer: Peer | null = null
  #sending = false
  #closed = false
  readonly #waiting = new Set<() => void>()

  constructor(runId: string, maxCount: number = limits.eventBufferMaxCount) {
    this.runId = runId
    this.#maxCount = maxCount
  }

  /** Resolves when the event is buffered; waits while the buffer is full. Throws when the event breaks its schema. */
  async emit(agentPath: string, event: AgentEvent): Promise<void> {
    const checked = AgentEvent.safeParse(event)
    if (!checked.success) throw new TypeError(`not an event of the agent: ${checked.error.message}`)
    // Events are numbered when there is space, in call order.
    while (!this.#closed && !this.#hasRoom()) await this.#nextChange()
    if (this.#closed) return
    const fitting = fitEvent(checked.data, batchMaxBytes - 1_024)
    const entry = { n: this.#next++, agentPath, event: fitting, bytes: jsonBytes(fitting) + 256 }
    this.#entries.push(entry)
    this.#bytes += entry.bytes
    this.#send()
  }

  /** The host acknowledged all events up to `n`. */
  acknowledge(n: number): void {
    this.#acked = Math.max(this.#acked, Math.min(n, this.#next - 1))
    while (this.#entries.length > 0 && (this.#entries[0]?.n ?? 0) <= this.#acked) {
      this.#bytes -= this.#entries.shift()?.bytes ?? 0
    }
    this.#change()
  }

  /** Continues in a new session; the host has the events up to `n`. */
  connect(peer: Peer, n: number): void {
    this.acknowledge(n)
    this.#sent = n
    this.#peer = peer
    this.#send()
  }

  disconnect(): void {
    this.#peer = null
  }

  /** Resolves when the host has everything, `signal` aborts, or the outbox closes. */
  async drained(signal?: AbortSignal): Promise<void> {
    while (!this.#closed && !signal?.aborted && this.#acked < this.#next - 1) await this.#nextChange(signal)
  }

  /** Releases everyone who waits; nothing is sent after this. */
  close(): void {
    this.#closed = true
    this.#entries = []
    this.#change()
  }

  #hasRoom(): boolean {
    return this.#entries.length < this.#maxCount && this.#bytes < bufferMaxBytes
  }

  #send(): void {
    if (this.#sending) return
    this.#sending = true
    void this.#sendAll().finally(() => {
      this.#sending = false
      // An event may have arrived since the last check.
      if (this.#peer !== null && this.#nextBatch().length > 0) this.#send()
    })
  }

  async #sendAll(): Promise<void> {
    // One turn of the event loop batches simultaneous events into one message.
    await new Promise((resolve) => setImmediate(resolve))
    for (;;) {
      const peer = this.#peer
      const batch = this.#nextBatch()
      if (peer === null || batch.length === 0) return
      this.#sent = batch[batch.length - 1]?.n ?? this.#sent
      const events = batch.map(({ n, agentPath, event }) => ({ n, agentPath, event }))
      const sent = await peer.notify(eventEmit, { runId: this.runId, events })
      // A new session resends from where the host says; a failure here means that this session is ending.
      if (!sent.ok && peer === this.#peer) this.#peer = null
    }
  }

  #nextBatch(): Entry[] {
    const batch: Entry[] = []
    let bytes = 0
    for (const entry of this.#entries) {
      if (entry.n <= this.#sent) continue
      bytes += entry.bytes
      if (batch.length > 0 && (bytes > batchMaxBytes || batch.length >= limits.eventBatchMaxCount)) break
      batch.push(entry)
    }
    return batch
  }

  #nextChange(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done)
        signal?.removeEventListener('abort', done)
        resolve()
      }
      this.#waiting.add(done)
      signal?.addEventListener('abort', done, { once: true })
    })
  }

  #change(): void {
    for (const done of [...this.#waiting]) done()
  }
}

function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value))
}

/** The event, or a copy whose longest texts are cut with a note until its JSON has at most `maxBytes`. */
function fitEvent(event: AgentEvent, maxBytes: number): AgentEvent {
  let fitting = event
  let maxChars: number = limits.documentMaxChars
  // Ids are shorter than the smallest bound, so they stay whole.
  while (jsonBytes(fitting) > maxBytes && maxChars > 64) {
    maxChars = Math.max(64, Math.floor(maxChars / 2))
    fitting = cutTexts(event, maxChars) as AgentEvent
  }
  return fitting
}

function cutTexts(value: unknown, maxChars: number): unknown {
  if (typeof value === 'string') {
    if (value.length <= maxChars) return value
    const note = `\n[${value.length - maxChars} characters left out here]`
    return value.slice(0, Math.max(0, maxChars - note.length)) + note
  }
  if (Array.isArray(value)) return value.map((item) => cutTexts(item, maxChars))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, cutTexts(item, maxChars)]))
}
