/** The events of a run for a client: pages with a wait, and a stream of server-sent events. */
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FeedItem, Host, JournalEvent, RunHandle } from '../index.ts'
import type { ServiceRuns } from './service-runs.ts'

const pageDefault = 1_000
/** A comment keeps proxies from ending a quiet stream. */
const heartbeatMs = 15_000

export interface EventPage {
  readonly events: JournalEvent[]
  readonly next: number
  readonly isLast: boolean
}

export class RunEvents {
  readonly #host: Pick<Host, 'runs'>
  readonly #runs: ServiceRuns

  constructor(host: Pick<Host, 'runs'>, runs: ServiceRuns) {
    this.#host = host
    this.#runs = runs
  }

  /** @param waitMs time to wait for a first event @throws {CaissonError} `run_not_found` */
  async page(
    runId: string,
    { from = 1, limit = pageDefault, waitMs = 0 }: { from?: number; limit?: number; waitMs?: number },
    signal: AbortSignal,
  ): Promise<EventPage> {
    const page = await this.#read(runId, from, limit)
    if (page.events.length > 0 || page.isLast || waitMs === 0) return page
    if (!(await this.#waitFor(runId, from, waitMs, signal))) return page
    return await this.#read(runId, from, limit)
  }

  /**
   * Writes events from a number on, then events and deltas as they happen, until the run has ended or the client is
   * gone. Never ahead of what the client reads.
   */
  async stream(runId: string, from: number, response: ServerResponse): Promise<void> {
    const gone = new AbortController()
    // Before the first byte: an unknown run is an ordinary refusal.
    const items = await this.items(runId, from, gone.signal)
    await writeFrames(response, framesOf(items), () => gone.abort())
  }

  /**
   * Events from a number on, then events and deltas as they happen, until the run has ended or nobody carries it out.
   * @throws {CaissonError} `run_not_found`
   */
  async items(runId: string, from: number, signal: AbortSignal): Promise<AsyncGenerator<FeedItem>> {
    const handle = await this.#runs.find(runId)
    if (handle !== null) return this.#follow(runId, handle, from, signal)
    await this.#runs.summary(runId)
    return this.#readStored(runId, from, signal)
  }

  /** A run of a fleet also when it goes to another host, or waits for one. */
  async *#follow(
    runId: string,
    first: RunHandle,
    from: number,
    signal: AbortSignal,
  ): AsyncGenerator<FeedItem> {
    let next = from
    for (let handle: RunHandle | null = first; handle !== null; ) {
      for await (const item of this.#watch(handle, next, signal)) {
        if (item.source !== 'delta') next = item.seq + 1
        yield item
      }
      const { host, state } = await this.#runs.summary(runId)
      if (signal.aborted || host === undefined) return
      handle = state.end === null ? await this.#runs.find(runId) : null
    }
    // What came between the two looks.
    yield* this.#readStored(runId, next, signal)
  }

  async *#watch(handle: RunHandle, from: number, signal: AbortSignal): AsyncGenerator<FeedItem> {
    const feed = handle.watch({ from })
    const stop = () => void feed.return?.()
    signal.addEventListener('abort', stop, { once: true })
    try {
      if (!signal.aborted) yield* feed
    } finally {
      signal.removeEventListener('abort', stop)
      await feed.return?.()
      await this.#runs.release(handle)
    }
  }

  async *#readStored(runId: string, from: number, signal: AbortSignal): AsyncGenerator<FeedItem> {
    for await (const event of this.#host.runs.stream(runId)) {
      if (signal.aborted) return
      if (event.seq >= from) yield event
    }
  }

  async #read(runId: string, from: number, limit: number): Promise<EventPage> {
    const events: JournalEvent[] = []
    let last = 0
    const { isLive, host, state } = await this.#runs.summary(runId)
    const isOver = host === undefined ? !isLive : state.end !== null
    await this.#host.runs.visit(runId, (event) => {
      last = event.seq
      if (event.seq >= from && events.length < limit) events.push(event)
    })
    const next = events.at(-1)?.seq ?? from - 1
    return { events, next: next + 1, isLast: isOver && next >= last }
  }

  /** Whether there is an event with this number before the time is over. */
  async #waitFor(runId: string, from: number, waitMs: number, signal: AbortSignal): Promise<boolean> {
    const handle = await this.#runs.find(runId)
    if (handle === null) return true
    const feed = handle.watch({ from, deltas: false })
    const ending = new AbortController()
    const timer = sleep(waitMs, false, { signal: AbortSignal.any([signal, ending.signal]) }).catch(
      () => false,
    )
    const next = (async () => {
      for await (const { source } of feed) if (source !== 'delta') return true
      return true
    })()
    try {
      return await Promise.race([timer, next])
    } finally {
      ending.abort()
      await feed.return?.()
      await this.#runs.release(handle)
    }
  }
}

/** The text of each event that several clients get, as long as somebody holds the event. */
const frames = new WeakMap<FeedItem, string>()

/** JSON has no raw line ends, so one line of data is enough. */
function frameOf(item: FeedItem): string {
  const known = frames.get(item)
  if (known !== undefined) return known
  const data = `data: ${JSON.stringify(item)}\n\n`
  const frame = item.source === 'delta' ? `event: delta\n${data}` : `id: ${item.seq}\nevent: event\n${data}`
  frames.set(item, frame)
  return frame
}

async function* framesOf(items: AsyncIterable<FeedItem>): AsyncGenerator<string> {
  for await (const item of items) yield frameOf(item)
  yield 'event: end\ndata: {}\n\n'
}

/** An answer in server-sent events. Reading it begins nothing: what the request did is done. */
export class EventStream {
  readonly frames: AsyncIterable<string>

  constructor(frames: AsyncIterable<string>) {
    this.frames = frames
  }
}

/** Sends frames as the client reads, and a comment where there are none for long. @param onGone once the client is gone */
export async function writeFrames(
  response: ServerResponse,
  frames: AsyncIterable<string>,
  onGone: () => void = () => undefined,
): Promise<void> {
  response.writeHead(200, {
    'content-type': 'text/event-stream',
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
    'x-content-type-options': 'nosniff',
  })
  response.flushHeaders()
  const writer = new EventWriter(response)
  writer.onGone(onGone)
  try {
    for await (const frame of frames) {
      await writer.write(frame)
      if (writer.isGone) return
    }
  } finally {
    writer.end()
  }
}

/** Writes server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) as the client reads. */
class EventWriter {
  readonly #response: ServerResponse
  readonly #gone = Promise.withResolvers<void>()
  readonly #heartbeat: NodeJS.Timeout
  isGone = false

  constructor(response: ServerResponse) {
    this.#response = response
    response.on('error', () => undefined)
    response.once('close', () => {
      this.isGone = true
      this.#gone.resolve()
    })
    this.#heartbeat = setInterval(() => {
      if (!response.writableNeedDrain) response.write(': \n\n')
    }, heartbeatMs)
    this.#heartbeat.unref()
  }

  onGone(then: () => void): void {
    void this.#gone.promise.then(then)
  }

  async write(text: string): Promise<void> {
    if (this.isGone || this.#response.write(text)) return
    await Promise.race([once(this.#response, 'drain'), this.#gone.promise])
  }

  end(): void {
    clearInterval(this.#heartbeat)
    this.#response.end()
  }
}
