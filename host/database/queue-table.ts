/** The order of waiting runs, for the process that continues them. What it loses, the journals give but for the order. */
import type { DatabaseSync } from 'node:sqlite'

interface QueuedRow {
  readonly runId: string
  readonly lane: string
  readonly priority: string
}

/** Served lanes that are remembered. */
const lanesMax = 1_000

export class QueueTable {
  readonly #database: DatabaseSync

  constructor(database: DatabaseSync) {
    this.#database = database
  }

  /** @returns the position: a run that waited before keeps it */
  add({ runId, lane, priority }: QueuedRow): number {
    this.#database
      .prepare(
        `INSERT INTO queue (run_id, lane, priority, queued_at) VALUES (?, ?, ?, ?)
         ON CONFLICT (run_id) DO UPDATE SET lane = excluded.lane, priority = excluded.priority`,
      )
      .run(runId, lane, priority, Date.now())
    return Number(this.#database.prepare('SELECT position FROM queue WHERE run_id = ?').get(runId)?.position)
  }

  remove(runId: string): void {
    this.#database.prepare('DELETE FROM queue WHERE run_id = ?').run(runId)
  }

  /** A run of the lane starts. @param served a number that grows */
  begin(runId: string, lane: string, served: number): void {
    this.remove(runId)
    this.#database
      .prepare('INSERT INTO lanes VALUES (?, ?) ON CONFLICT (lane) DO UPDATE SET served = excluded.served')
      .run(lane, served)
    this.#database.prepare('DELETE FROM lanes WHERE served <= ?').run(served - lanesMax)
  }

  /** When a run of each lane started last, as {@link begin} has it. */
  served(): Map<string, number> {
    const rows = this.#database.prepare('SELECT lane, served FROM lanes').all()
    return new Map(rows.map(({ lane, served }) => [String(lane), Number(served)]))
  }

  /** Positions of the runs that waited when the process before ended. */
  positions(): Map<string, number> {
    const rows = this.#database.prepare('SELECT run_id, position FROM queue').all()
    return new Map(rows.map(({ run_id, position }) => [String(run_id), Number(position)]))
  }

  /** Forgets runs that no longer are. */
  keepOnly(runIds: ReadonlySet<string>): void {
    for (const runId of this.positions().keys()) if (!runIds.has(runId)) this.remove(runId)
  }
}
