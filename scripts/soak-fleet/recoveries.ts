/** How long runs of a lost host, and the journals behind a lost database, stood still; by the clock of the database. */
import type { Fleet } from '../../host/fleet/fleet.ts'
import type { Cause, Fault } from './faults.ts'

interface Waiting {
  readonly cause: Cause
  readonly at: number
  /** Undefined: any run that grows. */
  readonly runs: ReadonlyMap<string, number> | undefined
  readonly rows: number
}

export interface CauseFigures {
  readonly losses: number
  /** Runs that another host took, or journals that grew again. */
  readonly recoveries: number
  readonly msP50: number | null
  readonly msP95: number | null
  readonly msMost: number | null
}

const lookMs = 100
const givenUpMs = 120_000

export class Recoveries implements Disposable {
  readonly #fleet: Fleet
  readonly #timer: NodeJS.Timeout
  readonly #losses = new Map<Cause, number>()
  readonly #times: { cause: Cause; ms: number }[] = []
  #waiting: Waiting[] = []
  #isLooking = false

  constructor(fleet: Fleet) {
    this.#fleet = fleet
    this.#timer = setInterval(() => void this.#look(), lookMs)
  }

  begin({ cause, host, at }: Fault): void {
    this.#losses.set(cause, (this.#losses.get(cause) ?? 0) + 1)
    void this.#begin(cause, host?.hostId, at).catch(() => undefined)
  }

  describe(): Readonly<Record<string, CauseFigures>> {
    return Object.fromEntries(
      [...this.#losses].toSorted().map(([cause, losses]) => {
        const times = this.#times
          .filter((time) => time.cause === cause)
          .map(({ ms }) => ms)
          .toSorted((a, b) => a - b)
        const at = (share: number) =>
          times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? null
        return [
          cause,
          { losses, recoveries: times.length, msP50: at(0.5), msP95: at(0.95), msMost: times.at(-1) ?? null },
        ]
      }),
    )
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
  }

  async #begin(cause: Cause, hostId: string | undefined, at: number): Promise<void> {
    const { database } = this.#fleet
    if (hostId === undefined) {
      this.#waiting.push({ cause, at, runs: undefined, rows: await this.#countUntilAway() })
      return
    }
    const held = await database.query<{ runId: string; epoch: number }>(
      'SELECT run_id AS "runId", epoch FROM caisson.runs WHERE host_id = $1 AND NOT has_ended',
      [hostId],
    )
    this.#waiting.push({ cause, at, rows: 0, runs: new Map(held.map(({ runId, epoch }) => [runId, epoch])) })
  }

  /** Rows of all journals; -1 while the database is away. */
  async #countUntilAway(): Promise<number> {
    const [row] = await this.#fleet.database
      .query<{ rows: number }>('SELECT coalesce(sum(seq), 0)::integer AS rows FROM caisson.runs')
      .catch(() => [])
    return row?.rows ?? -1
  }

  async #look(): Promise<void> {
    if (this.#isLooking || this.#waiting.length === 0) return
    this.#isLooking = true
    try {
      const taken = await this.#fleet.database.query<{ runId: string; epoch: number; at: number }>(
        `SELECT run_id AS "runId", epoch, (extract(epoch FROM taken_at) * 1000)::float AS at FROM caisson.runs`,
      )
      const rows = await this.#countUntilAway()
      this.#waiting = this.#waiting.flatMap((one) => this.#check(one, taken, rows))
    } catch {
      // The database is away.
    } finally {
      this.#isLooking = false
    }
  }

  #check(
    one: Waiting,
    taken: readonly { readonly runId: string; readonly epoch: number; readonly at: number }[],
    rows: number,
  ): Waiting[] {
    const { cause, at, runs } = one
    if (Date.now() - at > givenUpMs) return []
    if (runs === undefined) {
      if (one.rows < 0) return [{ ...one, rows }]
      if (rows <= one.rows) return [one]
      this.#times.push({ cause, ms: Date.now() - at })
      return []
    }
    const left = new Map(runs)
    for (const { runId, epoch, at: takenAt } of taken) {
      const before = left.get(runId)
      if (before === undefined || epoch <= before) continue
      this.#times.push({ cause, ms: Math.round(takenAt - at) })
      left.delete(runId)
    }
    return left.size === 0 ? [] : [{ ...one, runs: left }]
  }
}
