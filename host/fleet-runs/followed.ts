/**
 * A run of another host as one feed: events from the rows of its journal, and between them the deltas that the other host
 * sends. A delta waits for the events before it, and is dropped once an event has said what it would.
 */
import { randomUUID } from 'node:crypto'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { Fleet } from '../fleet/fleet.ts'
import type { SentDelta } from '../fleet/host-messages.ts'
import type { FeedItem } from '../journal/run-feed.ts'

const followEveryMs = 10_000
/** Deltas that wait for their events; beyond it the oldest are dropped. */
const waitingMax = 2_000
/** Ends of streams that are known at once. */
const endsMax = 1_000

/** Events after which another host, or this part of the run, may have the deltas. */
const beginnings: ReadonlySet<string> = new Set(['run-start', 'run-take', 'run-resume', 'run-sleep'])

type Followable = Pick<Fleet, 'messages' | 'runs' | 'hostId'>

/** @param seen number of the event before the first of `events` @param signal ends it */
export async function* withDeltas(
  fleet: Followable,
  runId: string,
  events: AsyncGenerator<JournalEvent, void>,
  { seen: before, signal }: { readonly seen: number; readonly signal: AbortSignal },
): AsyncGenerator<FeedItem, void> {
  let [seen, wake] = [before, Promise.withResolvers<void>()]
  const arrive = () => wake.resolve()
  await using followed = new FollowedDeltas(fleet, runId, arrive)
  signal.addEventListener('abort', arrive, { once: true })
  let next: PromiseSettledResult<IteratorResult<JournalEvent, void>> | undefined
  const pull = async () => {
    ;[next] = await Promise.allSettled([events.next()])
    arrive()
  }
  try {
    void followed.ask(seen)
    void pull()
    while (!signal.aborted) {
      const delta = followed.take(seen)
      if (delta !== undefined) yield { source: 'delta', runId, ...delta }
      else if (next?.status === 'rejected') throw next.reason
      else if (next?.value.done === true) return
      else if (next?.value.done === false) {
        const event = next.value.value
        next = undefined
        seen = event.seq
        followed.note(event)
        if (beginnings.has(event.event.type)) void followed.ask(seen)
        yield event
        void pull()
      } else {
        await wake.promise
        wake = Promise.withResolvers<void>()
      }
    }
  } finally {
    signal.removeEventListener('abort', arrive)
    void events.return().catch(() => undefined)
  }
}

class FollowedDeltas implements AsyncDisposable {
  readonly #fleet: Followable
  readonly #runId: string
  readonly #watchId = randomUUID()
  readonly #stop: () => void
  readonly #again: NodeJS.Timeout
  readonly #ends = new EndedStreams()
  #waiting: SentDelta[] = []
  #seen = 0
  #asked: string | undefined

  constructor(fleet: Followable, runId: string, onArrival: () => void) {
    this.#fleet = fleet
    this.#runId = runId
    this.#stop = fleet.messages.on((message) => {
      if (message.type !== 'deltas' || message.watchId !== this.#watchId) return
      this.#waiting = [...this.#waiting, ...message.items].slice(-waitingMax)
      onArrival()
    })
    this.#again = setInterval(() => void this.ask(this.#seen), followEveryMs)
    this.#again.unref()
  }

  /** Of the host that has the run now, which may be this one by now. What fails is asked for again. */
  async ask(seen: number): Promise<void> {
    this.#seen = seen
    const { runs, messages, hostId } = this.#fleet
    try {
      const to = (await runs.head(this.#runId))?.hostId
      if (to == null) return
      this.#asked = to
      const message = { type: 'follow', watchId: this.#watchId, runId: this.#runId, hostId, seen } as const
      await messages.send([{ to, message }])
    } catch {
      // Whoever reads gets the events meanwhile.
    }
  }

  note(event: JournalEvent): void {
    this.#seen = event.seq
    this.#ends.note(event)
  }

  /** The next one whose events are there. */
  take(seen: number): Pick<SentDelta, 'agentPath' | 'delta'> | undefined {
    for (;;) {
      const [first] = this.#waiting
      if (first === undefined || first.after > seen) return undefined
      this.#waiting.shift()
      const { agentPath, delta } = first
      if (!this.#ends.has(first)) return { agentPath, delta }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#again)
    this.#stop()
    const message = { type: 'unfollow', watchId: this.#watchId } as const
    // Otherwise the other host forgets it after a while.
    if (this.#asked !== undefined)
      void this.#fleet.messages.send([{ to: this.#asked, message }]).catch(() => undefined)
  }
}

/** Which streams of deltas an event has ended. */
class EndedStreams {
  /** By stream: the event that ended it, and up to which turn. */
  readonly #ends = new Map<string, { readonly seq: number; readonly turn: number }>()

  note(item: JournalEvent): void {
    const { seq, event } = item
    const agent = item.source === 'agent' ? item.agentPath : ''
    if (event.type === 'turn-end') this.#end(`turn ${agent} ${event.stepId}`, seq, event.turn)
    if (event.type === 'step-end' || event.type === 'step-retry')
      this.#end(`turn ${agent} ${event.stepId}`, seq)
    if (event.type === 'agent-end') this.#end(`agent ${agent}`, seq)
    if (event.type === 'tool-end') this.#end(`call ${agent} ${event.callId}`, seq)
    if (event.type === 'model-end') this.#end(`request ${event.requestId ?? ''}`, seq)
    if (event.type === 'changes-ready' || event.type === 'session-start') this.#end('status', seq)
  }

  /** Whether the delta came before the end of its stream. */
  has({ after, agentPath, delta }: SentDelta): boolean {
    const isOver = (stream: string, turn = 0) => {
      const end = this.#ends.get(stream)
      return end !== undefined && after < end.seq && turn <= end.turn
    }
    if (delta.type === 'model-wait') return isOver(`request ${delta.requestId}`)
    if (delta.type === 'prepare' || delta.type === 'changes') return isOver('status')
    if (delta.type === 'tool-output-delta') return isOver(`call ${agentPath} ${delta.callId}`)
    if (!('turn' in delta)) return false
    return isOver(`agent ${agentPath}`) || isOver(`turn ${agentPath} ${delta.stepId}`, delta.turn)
  }

  #end(stream: string, seq: number, turn = Number.POSITIVE_INFINITY): void {
    this.#ends.delete(stream)
    this.#ends.set(stream, { seq, turn })
    const [oldest] = this.#ends.keys()
    if (this.#ends.size > endsMax && oldest !== undefined) this.#ends.delete(oldest)
  }
}
