/**
 * Deltas of runs for followers on other hosts. A follower asks the host of the run, again and again while somebody reads; that
 * host sends what came within a quarter of a second, and drops the oldest where there is more than it may send.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Delta, HostDelta } from '#specs/protocol/event.ts'
import type { RunHandle } from '../control/run-handle.ts'
import type { Fleet } from '../fleet/fleet.ts'
import {
  type AddressedMessage,
  type HostMessage,
  messageMaxBytes,
  type SentDelta,
} from '../fleet/host-messages.ts'

/** A follower that asks no more is forgotten after this time. */
const followedMs = 25_000
const sendEveryMs = 250
const followersMax = 100
/** Messages of one round, to all followers; and to one of them. */
const roundMax = 16
const roundOfOneMax = 4
/** Of one follower, in bytes. */
const pendingMax = 64 * 1024
/** UTF-16 units of a piece of text, which fits a message in whatever escapes. */
const pieceMax = 1_200

type Follow = Extract<HostMessage, { type: 'follow' }>

interface Follower {
  readonly asked: Follow
  until: number
  isAttached: boolean
  /** Not sent yet. */
  pending: SentDelta[]
  pendingBytes: number
  close: () => void
}

/** Sends deltas of runs of this host to those who ask, until the host leaves the fleet. */
export class DeltaSender {
  readonly #fleet: Pick<Fleet, 'messages' | 'closing'>
  readonly #runOf: (runId: string) => Partial<Pick<RunHandle, 'watch'>> | undefined
  readonly #followers = new Map<string, Follower>()
  #isSending = false

  /** @param runOf undefined: the host is about to have it, or has it no more */
  constructor(
    fleet: Pick<Fleet, 'messages' | 'closing'>,
    runOf: (runId: string) => Partial<Pick<RunHandle, 'watch'>> | undefined,
  ) {
    this.#fleet = fleet
    this.#runOf = runOf
    fleet.messages.on((message) => this.#take(message))
    fleet.closing.addEventListener('abort', () => {
      for (const watchId of [...this.#followers.keys()]) this.#forget(watchId)
    })
  }

  #take(message: HostMessage): void {
    if (message.type === 'unfollow') this.#forget(message.watchId)
    if (message.type !== 'follow' || this.#fleet.closing.aborted) return
    const until = performance.now() + followedMs
    const known = this.#followers.get(message.watchId)
    if (known !== undefined) known.until = until
    else if (this.#followers.size < followersMax)
      this.#followers.set(message.watchId, {
        ...{ asked: message, until, isAttached: false },
        ...{ pending: [], pendingBytes: 0, close: () => undefined },
      })
    if (!this.#isSending) void this.#send()
  }

  #forget(watchId: string): void {
    this.#followers.get(watchId)?.close()
    this.#followers.delete(watchId)
  }

  /** As long as somebody follows. */
  async #send(): Promise<void> {
    this.#isSending = true
    try {
      while (this.#followers.size > 0) {
        for (const [watchId, { until }] of this.#followers)
          if (performance.now() > until) this.#forget(watchId)
        for (const follower of this.#followers.values()) this.#attach(follower)
        // What is lost with the database is not sent again.
        await this.#fleet.messages.send(this.#round()).catch(() => undefined)
        await sleep(sendEveryMs, undefined, { ref: false })
      }
    } finally {
      this.#isSending = false
    }
  }

  /** The run may begin on this host only after it was asked for. */
  #attach(follower: Follower): void {
    const { runId, seen } = follower.asked
    if (follower.isAttached) return
    const items = this.#runOf(runId)?.watch?.({ from: seen + 1 })
    if (items === undefined) return
    follower.isAttached = true
    follower.close = () => void items.return?.()
    void (async () => {
      let after = seen
      for await (const item of items) {
        if (item.source !== 'delta') after = item.seq
        else
          for (const delta of piecesOf(item.delta)) add(follower, { after, agentPath: item.agentPath, delta })
      }
      // It may come back to this host.
      follower.isAttached = false
    })().catch(() => undefined)
  }

  /** Who was served is last in the next round. */
  #round(): AddressedMessage[] {
    const messages: AddressedMessage[] = []
    for (const [watchId, follower] of [...this.#followers]) {
      if (messages.length >= roundMax) break
      if (follower.pending.length === 0) continue
      const to = follower.asked.hostId
      const most = Math.min(roundOfOneMax, roundMax - messages.length)
      for (let sent = 0; sent < most && follower.pending.length > 0; sent += 1)
        messages.push({ to, message: { type: 'deltas', watchId, items: takeItems(follower) } })
      this.#followers.delete(watchId)
      this.#followers.set(watchId, follower)
    }
    return messages
  }
}

/** Each fits a message. */
function piecesOf(delta: Delta | HostDelta): (Delta | HostDelta)[] {
  if ('offset' in delta) {
    const count = Math.max(1, Math.ceil(delta.text.length / pieceMax))
    return Array.from({ length: count }, (_, index) => {
      const at = index * pieceMax
      return { ...delta, offset: delta.offset + at, text: delta.text.slice(at, at + pieceMax) }
    })
  }
  if (delta.type !== 'changes') return [delta]
  let { paths, isPartial } = delta
  while (paths.length > 0 && Buffer.byteLength(JSON.stringify(paths)) > messageMaxBytes - 1_000) {
    paths = paths.slice(0, Math.floor(paths.length / 2))
    isPartial = true
  }
  return [{ ...delta, paths, isPartial }]
}

function bytesOf(item: SentDelta): number {
  return Buffer.byteLength(JSON.stringify(item)) + 1
}

function add(follower: Follower, item: SentDelta): void {
  const { pending } = follower
  const joined = joinPieces(pending.at(-1), item)
  if (joined !== undefined) {
    const last = pending.pop()
    if (last !== undefined) follower.pendingBytes -= bytesOf(last)
  }
  pending.push(joined ?? item)
  follower.pendingBytes += bytesOf(joined ?? item)
  while (follower.pendingBytes > pendingMax) {
    const oldest = pending.shift()
    if (oldest === undefined) return
    follower.pendingBytes -= bytesOf(oldest)
  }
}

/** Undefined: they do not follow each other in one stream, or too long together. */
function joinPieces(
  last: SentDelta | undefined,
  { after, agentPath, delta }: SentDelta,
): SentDelta | undefined {
  if (last === undefined || !('offset' in delta) || !('offset' in last.delta)) return undefined
  const { text, offset, ...stream } = last.delta
  const { text: more, offset: at, ...other } = delta
  if (last.agentPath !== agentPath || offset + text.length !== at || text.length + more.length > pieceMax)
    return undefined
  if (JSON.stringify(stream) !== JSON.stringify(other)) return undefined
  return { after, agentPath, delta: { ...last.delta, text: text + more } }
}

/** As many as one message holds. Removes them. */
function takeItems(follower: Follower): SentDelta[] {
  const items: SentDelta[] = []
  let bytes = 200 + follower.asked.watchId.length
  for (;;) {
    const next = follower.pending[0]
    if (next === undefined) return items
    bytes += bytesOf(next)
    if (bytes > messageMaxBytes && items.length > 0) return items
    follower.pending.shift()
    follower.pendingBytes -= bytesOf(next)
    items.push(next)
  }
}
