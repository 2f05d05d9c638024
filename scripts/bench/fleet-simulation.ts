/**
 * Virtual hosts of a fleet that take runs by the real statements, end them, and fail: what each lane gets. Which of them
 * fails is drawn from a seed.
 */
import type { FleetAddress } from '../../host/fleet/address.ts'
import type { Claimed } from '../../host/fleet/claims.ts'
import { FleetDatabase } from '../../host/fleet/database.ts'
import type { Fleet } from '../../host/fleet/fleet.ts'
import { RunTable } from '../../host/fleet/run-table.ts'
import { rowsBehind } from '../../host/test/fleet/fleet-place.ts'
import type { Figures } from './bench.ts'
import { round } from './figures.ts'
import { claimsOf, openQueue } from './fleet-statements.ts'

interface Drawn {
  /** Runs that are taken in all. */
  readonly takes: number
  readonly seed: number
}

const hostCount = 8
/** Of those that were taken: their host is gone, and says nothing more. */
const lostShare = 0.05
/** A measurement that is no longer. */
const longestMs = 60_000
const event = { type: 'vm-keep-failed', message: 'the benchmark says so' } as const

/** Each has a pool of connections of its own, as a host has. */
export async function simulateHosts(
  fleet: Fleet,
  address: FleetAddress,
  { takes, seed }: Drawn,
): Promise<Figures> {
  const queue = await openQueue(address)
  const random = randomOf(seed)
  const perLane = new Map<string, number>()
  const held = new Set<string>()
  const counts = { taken: 0, ended: 0, lost: 0, twice: 0, busy: 0 }
  const since = performance.now()
  const note = async ({ hold: { runId } }: Claimed) => {
    counts.taken += 1
    counts.twice += held.has(runId) ? 1 : 0
    held.add(runId)
    const [row] = await fleet.database.query<{ lane: string }>(
      'SELECT lane FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    perLane.set(row?.lane ?? '', (perLane.get(row?.lane ?? '') ?? 0) + 1)
  }
  const carryOut = async (hostId: string) => {
    await using database = await FleetDatabase.open(address)
    const table = new RunTable(database)
    const claims = claimsOf(fleet, database, hostId)
    while (counts.taken < takes && performance.now() - since < longestMs) {
      const claimed = await claims.next()
      if (claimed === 'none') return
      if (claimed === 'busy') counts.busy += 1
      if (claimed === 'busy') continue
      await note(claimed)
      if (random() < lostShare) {
        counts.lost += 1
        continue
      }
      const { hold, job } = claimed
      const head = await table.head(hold.runId)
      if (head === undefined) throw new Error(`the fleet has no run ${hold.runId}`)
      await table.append(hold, rowsBehind(hold.runId, head, [event]), { ends: true })
      await table.release(hold, false)
      await queue.complete('drive', job.id)
      counts.ended += 1
    }
  }
  try {
    await Promise.all(Array.from({ length: hostCount }, (_, index) => carryOut(`virtual${index}`)))
  } finally {
    await queue.stop({ graceful: false })
  }
  const lanes = [...perLane.values()].toSorted((a, b) => a - b)
  return {
    ...{ ...counts, lanesServed: perLane.size },
    ...{ leastOfALane: lanes[0] ?? 0, mostOfALane: lanes.at(-1) ?? 0 },
    takesPerS: round((counts.taken * 1_000) / (performance.now() - since)),
  }
}

/** Mulberry32: the same draws for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}
