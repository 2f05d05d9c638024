/** The events of a run for a client: pages with a wait, and a stream of server-sent events. */
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FeedItem, Host, JournalEvent } from '../index.ts'
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
    const handle = await this.#runs.find(runId)
    // Before the first byte: an unknown run is an ordinary refusal.
    if (handle === null) await this.#runs.summary(runId)
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
      'x-content-type-options': 'nosniff',
    })
    response.flushHeaders()
    const writer = new EventWriter(response)
    try {
      if (handle === null) await this.#writeStored(runId, from, writer)
      else {
        const feed = handle.watch({ from })
        writer.onGone(() => void feed.return?.())
        for await (const item of feed) await writer.item(item)
        await this.#runs.release(handle)
      }
      await writer.write('event: end\ndata: {}\n\n')
    } finally {
      writer.end()
    }
  }

  async #writeStored(runId: string, from: number, writer: EventWriter): Promise<void> {
    for await (const event of this.#host.runs.stream(runId)) {
      if (writer.isGone) return
      if (event.seq >= from) await writer.item(event)
    }
  }

  async #read(runId: string, from: number, limit: number): Promise<EventPage> {
    const events: JournalEvent[] = []
    let last = 0
    const { isLive } = await this.#runs.summary(runId)
    await this.#host.runs.visit(runId, (event) => {
      last = event.seq
      if (event.seq >= from && events.length < limit) events.push(event)
    })
    const next = events.at(-1)?.seq ?? from - 1
    return { events, next: next + 1, isLast: !isLive && next >= last }
  }

  /** Whether there is an event with this number before the time is over. */
  async #waitFor(runId: string, from: number, waitMs: number, signal: AbortSignal): Promise<boolean> {
    const handle = await this.#runs.find(runId)
    if (handle === null) return true
    const feed = handle.watch({ from })
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

  async item(item: FeedItem): Promise<void> {
    await this.write(frameOf(item))
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
