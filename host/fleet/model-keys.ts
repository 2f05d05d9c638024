/**
 * The rate of a model key over all hosts of a fleet, and the models that its server holds back. The database has a keyed hash
 * of each key, never a key. A host leases several requests at a time; while the database is away it uses up its lease, and then
 * its share of the rate.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import * as z from 'zod'
import { type ModelHold, maxHoldMs } from '../providers/model-pauses.ts'
import type { RequestQueue, SharedRate } from '../providers/queue.ts'
import type { SharedKeys } from '../providers/shared-keys.ts'
import type { FleetDatabase } from './database.ts'
import type { FleetSecret } from './fleet-secret.ts'
import type { FleetNotices } from './notices.ts'

/** Channel of notices: each is the fingerprint of a key, whose pauses a host has learned. */
export const modelChannel = 'caisson_models'

const minuteMs = 60_000
/** What is not used by then is lost, so that no host sends more than the rate in a minute. */
const leaseMs = 5_000
/** Seconds whose grants count: a minute, the time of a lease, and one by which seconds are rounded. */
const windowSeconds = 66
/** Of the rate, for one lease. */
const leaseShare = 0.1
/** A host that asked within it counts, seconds. */
const hostSeconds = 120
/** A database that does not answer by then is away. */
const answerMs = 2_000
const awayMs = 3_000
const freshMs = 1_000
/** A server's word about a later time is not kept. */
const maxLimitMs = 366 * 24 * 3_600_000

const Granted = z.array(z.tuple([z.number(), z.int().min(0)])).max(1_000)
const Hosts = z.record(z.string(), z.number())

interface Lease {
  readonly granted: number
  /** Until more may be granted, ms. */
  readonly againMs: number
  readonly hosts: number
}

interface Joined {
  readonly fingerprint: string
  readAt: number
}

export class FleetKeys implements SharedKeys {
  readonly #database: FleetDatabase
  readonly #notices: FleetNotices
  readonly #hostId: string
  readonly #joined = new Map<RequestQueue, Joined>()
  readonly #secret: FleetSecret

  constructor(database: FleetDatabase, notices: FleetNotices, secret: FleetSecret, hostId: string) {
    this.#secret = secret
    this.#database = database
    this.#notices = notices
    this.#hostId = hostId
  }

  async join(queue: RequestQueue, server: string, key: string | null): Promise<void> {
    await inTime(this.#join(queue, server, key)).catch(() => undefined)
  }

  async keep(server: string, key: string | null, model: string, hold: ModelHold): Promise<void> {
    const heldMs = Math.min(hold.heldMs, maxHoldMs)
    const limitedMs = Math.min(hold.limitedMs, maxLimitMs)
    await inTime(this.#keep(server, key, model.slice(0, 500), { heldMs, limitedMs })).catch(() => undefined)
  }

  async #join(queue: RequestQueue, server: string, key: string | null): Promise<void> {
    const known = this.#joined.get(queue)
    const joined = known ?? { fingerprint: await this.#fingerprintOf(server, key), readAt: -freshMs }
    if (known === undefined) {
      this.#joined.set(queue, joined)
      const lease = (wanted: number, rate: number) => this.#lease(joined.fingerprint, wanted, rate)
      queue.shareRate(new KeyRate(lease, () => queue.look()))
      this.#notices.on(joined.fingerprint, () => this.#tell(queue, joined))
    }
    if (performance.now() - joined.readAt > freshMs) await this.#tell(queue, joined)
  }

  async #tell(queue: RequestQueue, joined: Joined): Promise<void> {
    joined.readAt = performance.now()
    const holds = await this.#database.query<{ model: string; heldMs: number; limitedMs: number }>(
      `SELECT model, 1000 * extract(epoch FROM held_until - now())::float AS "heldMs",
              1000 * greatest(extract(epoch FROM limited_until - now()), 0)::float AS "limitedMs"
         FROM caisson.model_holds WHERE fingerprint = $1 AND held_until > now()`,
      [joined.fingerprint],
    )
    for (const { model, heldMs, limitedMs } of holds)
      queue.hold(model, { heldMs: Math.min(heldMs, maxHoldMs), limitedMs })
  }

  async #keep(server: string, key: string | null, model: string, hold: ModelHold): Promise<void> {
    const fingerprint = await this.#fingerprintOf(server, key)
    await this.#database.query(
      `WITH old AS (DELETE FROM caisson.model_holds WHERE held_until < now() - interval '1 hour'),
            kept AS (
         INSERT INTO caisson.model_holds AS hold
         VALUES ($1, $2, now() + $3::float8 * interval '1 ms', now() + $4::float8 * interval '1 ms')
             ON CONFLICT (fingerprint, model) DO UPDATE SET
                held_until = greatest(hold.held_until, excluded.held_until), limited_until = excluded.limited_until)
       SELECT pg_notify($5, $1)`,
      [fingerprint, model, hold.heldMs, hold.limitedMs, modelChannel],
    )
  }

  async #lease(fingerprint: string, wanted: number, rate: number): Promise<Lease> {
    const row = 'caisson.model_keys WHERE fingerprint = $1'
    return await this.#database.transaction(async (tx) => {
      const add = 'INSERT INTO caisson.model_keys (fingerprint) VALUES ($1) ON CONFLICT DO NOTHING'
      await tx.query(add, [fingerprint])
      await tx.query(`SELECT FROM ${row} FOR UPDATE`, [fingerprint])
      const [read] = await tx.query<{ granted: unknown; hosts: unknown; now: number }>(
        `SELECT granted, hosts, floor(extract(epoch FROM clock_timestamp()))::float AS now FROM ${row}`,
        [fingerprint],
      )
      const now = read?.now ?? 0
      // Any host may have written anything there.
      const past = (Granted.safeParse(read?.granted).data ?? []).filter(([at]) => at > now - windowSeconds)
      const seen = Object.entries(Hosts.safeParse(read?.hosts).data ?? {})
      const hosts = { ...Object.fromEntries(seen.filter(([, at]) => at > now - hostSeconds)) }
      hosts[this.#hostId] = now
      const used = past.reduce((sum, [, count]) => sum + count, 0)
      const granted = Math.max(0, Math.min(wanted, rate - used))
      const grants = granted === 0 ? past : [...past, [now, granted] as const]
      await tx.query(
        'UPDATE caisson.model_keys SET granted = $2, hosts = $3, used_at = now() WHERE fingerprint = $1',
        [fingerprint, JSON.stringify(grants), JSON.stringify(hosts)],
      )
      const oldest = past[0]?.[0] ?? now
      const againMs = granted > 0 ? 0 : Math.max(1, oldest + windowSeconds - now) * 1_000
      return { granted, againMs, hosts: Object.keys(hosts).length }
    })
  }

  async #fingerprintOf(server: string, key: string | null): Promise<string> {
    return await this.#secret.hash(new URL(server).origin, key)
  }
}

/** What this host may send with a key. */
class KeyRate implements SharedRate {
  readonly #lease: (wanted: number, rate: number) => Promise<Lease>
  readonly #onNews: () => void
  #left = 0
  #leftUntil = 0
  #askAt = 0
  #awayUntil = 0
  #isAsking = false
  #hosts = 1
  /** Start times of the requests of the last minute. */
  #begun: number[] = []

  constructor(lease: (wanted: number, rate: number) => Promise<Lease>, onNews: () => void) {
    this.#lease = lease
    this.#onNews = onNews
  }

  waitMs(rate: number, waiting: number): number {
    const now = performance.now()
    this.#begun = this.#begun.filter((at) => at > now - minuteMs)
    const hasLeft = this.#left > 0 && now < this.#leftUntil
    if (!hasLeft || this.#left === 1) this.#ask(rate, waiting, now)
    if (hasLeft) return 0
    if (now < this.#awayUntil) return this.#ofShare(rate, now)
    return Math.max(this.#askAt - now, answerMs)
  }

  use(): void {
    this.#begun.push(performance.now())
    this.#left = Math.max(0, this.#left - 1)
  }

  #ofShare(rate: number, now: number): number {
    const share = Math.max(1, Math.floor(rate / this.#hosts))
    const oldest = this.#begun.at(-share)
    return oldest === undefined ? 0 : oldest + minuteMs - now
  }

  #ask(rate: number, waiting: number, now: number): void {
    if (this.#isAsking || now < this.#askAt || now < this.#awayUntil) return
    this.#isAsking = true
    const lately = this.#begun.filter((at) => at > now - leaseMs).length
    const wanted = Math.max(1, Math.min(waiting + lately, Math.ceil(rate * leaseShare)))
    void inTime(this.#lease(wanted, rate))
      .then(
        ({ granted, againMs, hosts }) => {
          const isOver = performance.now() >= this.#leftUntil
          this.#left = granted + (isOver ? 0 : this.#left)
          if (granted > 0) this.#leftUntil = now + leaseMs
          this.#askAt = performance.now() + againMs
          this.#hosts = hosts
        },
        () => {
          this.#awayUntil = performance.now() + awayMs
        },
      )
      .finally(() => {
        this.#isAsking = false
        this.#onNews()
      })
  }
}

async function inTime<T>(work: Promise<T>): Promise<T> {
  const over = new AbortController()
  const late = sleep(answerMs, undefined, { signal: over.signal, ref: false }).then(() => {
    throw new Error('the database did not answer in time')
  })
  late.catch(() => undefined)
  try {
    return await Promise.race([work, late])
  } finally {
    over.abort()
  }
}
