/**
 * One feed over all runs of the user: attaches to the runs at work, of this process and of others, and reads from a
 * journal what no process told. Holds back slow readers' runs instead of dropping events.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { FeedItem } from '../journal/run-feed.ts'
import type { RunStore } from '../journal/run-store.ts'
import { RunClient } from './run-client.ts'

/** Time between two looks for new runs. */
const lookEveryMs = 250
/** Items that wait for the reader. */
const maxWaiting = 1_000

type Runs = Pick<RunStore, 'paths' | 'ids' | 'live' | 'visit'>

/**
 * All events and deltas of the runs that are at work now, from their beginning, and of those that start later. Events of
 * one run are in order, and none is missing or repeated.
 */
export async function* watchRuns(runs: Runs, signal?: AbortSignal): AsyncGenerator<FeedItem, void, void> {
  const channel = new Channel()
  const ending = new AbortController()
  const ended = signal === undefined ? ending.signal : AbortSignal.any([ending.signal, signal])
  ended.addEventListener('abort', () => channel.close(), { once: true })
  if (ended.aborted) return
  const looking = followAll(runs, channel, ended).catch((error: unknown) => channel.fail(error))
  try {
    for (let item = await channel.take(); item !== null; item = await channel.take()) yield item
  } finally {
    ending.abort()
    await looking
  }
}

async function followAll(runs: Runs, channel: Channel, ended: AbortSignal): Promise<void> {
  const clients = new Map<string, RunClient>()
  const following = new Set<Promise<void>>()
  const known = new Set<string>()
  /** Runs that no process carries out now, with the last event that watchers got; another process may continue them. */
  const stopped = new Map<string, number>()
  const begin = (id: string, client: RunClient | null): void => {
    known.add(id)
    if (client !== null) clients.set(id, client)
    const work = follow(runs, id, client, channel, stopped)
      .catch((error: unknown) => channel.fail(error))
      .finally(() => {
        clients.delete(id)
        following.delete(work)
      })
    following.add(work)
  }
  for (let isFirst = true; !ended.aborted; isFirst = false) {
    // Live ones first: a run that ends between the two reads has its journal.
    const live = await runs.live()
    for (const id of await runs.ids()) {
      if (known.has(id) && !(stopped.has(id) && live.has(id))) continue
      const client = live.has(id) ? await connect(runs, id) : null
      if (client !== null) begin(id, client)
      // A run that ended before the watch is not part of it; one that is just starting is asked again.
      else if (!live.has(id) && isFirst) {
        known.add(id)
        stopped.set(id, 0)
      } else if (!live.has(id)) begin(id, null)
    }
    await sleep(lookEveryMs, undefined, { signal: ended }).catch(() => undefined)
  }
  await Promise.all([...clients.values()].map((client) => client.detach()))
  await Promise.all(following)
}

function connect(runs: Runs, id: string): Promise<RunClient | null> {
  return RunClient.connect(id, runs.paths(id).control).catch(() => null)
}

/** Until the run has ended: from its process, then from its journal what that did not tell. */
async function follow(
  runs: Runs,
  id: string,
  client: RunClient | null,
  channel: Channel,
  stopped: Map<string, number>,
): Promise<void> {
  const told = stopped.get(id) ?? 0
  stopped.delete(id)
  let last = told
  if (client !== null) {
    for await (const item of client.watch()) {
      if (item.source !== 'delta' && item.seq <= told) continue
      if (item.source !== 'delta') last = item.seq
      await channel.put(item)
    }
    const { kind } = await client.ended
    if (kind === 'sleeping') stopped.set(id, last)
    if (kind !== 'lost') return
  }
  const missed: JournalEvent[] = []
  // Without a readable journal, there is nothing more to tell.
  const visit = (event: JournalEvent) => void (event.seq > last && missed.push(event))
  await runs.visit(id, visit).catch(() => undefined)
  for (const event of missed) await channel.put(event)
  if (missed.at(-1)?.event.type !== 'run-end') stopped.set(id, missed.at(-1)?.seq ?? last)
}

/** Items from several writers to one reader; a full channel makes its writers wait. */
class Channel {
  readonly #items: FeedItem[] = []
  #changed = Promise.withResolvers<void>()
  #isClosed = false
  #failure: { readonly error: unknown } | undefined

  async put(item: FeedItem): Promise<void> {
    while (this.#items.length >= maxWaiting && !this.#isClosed) await this.#changed.promise
    this.#items.push(item)
    this.#wake()
  }

  /** Null once it is closed. @throws what a writer failed with */
  async take(): Promise<FeedItem | null> {
    for (;;) {
      if (this.#failure !== undefined) throw this.#failure.error
      if (this.#isClosed) return null
      const item = this.#items.shift()
      if (item !== undefined) {
        this.#wake()
        return item
      }
      await this.#changed.promise
    }
  }

  close(): void {
    this.#isClosed = true
    this.#wake()
  }

  fail(error: unknown): void {
    this.#failure ??= { error }
    this.#wake()
  }

  #wake(): void {
    this.#changed.resolve()
    this.#changed = Promise.withResolvers<void>()
  }
}
