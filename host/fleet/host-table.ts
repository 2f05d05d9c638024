/** The hosts of a fleet, as rows: who is there, what each has, and what others ask of it. */
import { CaissonError } from '#specs/errors.ts'
import type { FleetDatabase, Queries } from './database.ts'
import { hostChannel, workKey } from './lanes.ts'
import { HostFacts } from './placement.ts'

/** A host of the fleet, as the others see it. */
export interface FleetHost {
  readonly hostId: string
  readonly name: string
  readonly version: string
  readonly slots: number
  /** Runs that it has now. */
  readonly runs: number
  /** By the clock of the database, seconds. */
  readonly seenSecondsAgo: number
  /** It takes no run, and gives back those that it has. */
  readonly isDraining: boolean
  /** It ended, or gave no sign of life for a while. Others take its runs. */
  readonly isGone: boolean
  readonly facts: HostFacts
}

export interface HostRow {
  readonly hostId: string
  readonly name: string
  readonly version: string
  readonly slots: number
  readonly facts: () => Partial<HostFacts>
}

/** Sign of life. */
export const seenMs = 5_000
/** A host that gave no sign of life for so long is gone. */
export const goneAfter = '20 seconds'
/** A host that was not seen for so long is no row any more. */
const forgottenAfter = '1 day'
/** Of a name or a version. */
const shownChars = 253

export class HostTable {
  readonly #database: FleetDatabase
  readonly #own: HostRow

  constructor(database: FleetDatabase, own: HostRow) {
    this.#database = database
    this.#own = own
  }

  /** Says that this host is there. @returns what others ask of it, `leaving` with ids of its runs */
  async see(): Promise<{ readonly isDraining: boolean; readonly leaving: readonly string[] }> {
    const { hostId, name, version, slots, facts } = this.#own
    const [row] = await this.#database.query<{ isDraining: boolean; leaving: string[] }>(
      `INSERT INTO caisson.hosts AS host (host_id, name, version, slots, facts) VALUES ($1, $2, $3, $4, $5)
       ON CONFLICT (host_id) DO UPDATE SET seen_at = now(), facts = excluded.facts
       RETURNING is_draining AS "isDraining",
         ARRAY(SELECT run_id FROM caisson.runs WHERE host_id = $1 AND leaves) AS leaving`,
      [hostId, name, version, slots, JSON.stringify(HostFacts.parse(facts()))],
    )
    await this.#database.query(
      `DELETE FROM caisson.hosts WHERE seen_at < now() - interval '${forgottenAfter}'`,
    )
    return row ?? { isDraining: false, leaving: [] }
  }

  /** This host ends. */
  async leave(): Promise<void> {
    await this.#database.query('UPDATE caisson.hosts SET left_at = now() WHERE host_id = $1', [
      this.#own.hostId,
    ])
  }

  async list(queries: Queries = this.#database): Promise<readonly FleetHost[]> {
    const rows = await queries.query<Omit<FleetHost, 'facts'> & { readonly facts: unknown }>(
      `SELECT host_id AS "hostId", name, version, slots, facts, is_draining AS "isDraining",
              left_at IS NOT NULL OR seen_at < now() - interval '${goneAfter}' AS "isGone",
              (SELECT count(*)::integer FROM caisson.runs AS run WHERE run.host_id = host.host_id) AS runs,
              extract(epoch FROM now() - seen_at)::float AS "seenSecondsAgo"
         FROM caisson.hosts AS host WHERE seen_at > now() - interval '${forgottenAfter}' ORDER BY name, started_at`,
    )
    const none = HostFacts.parse({})
    // A host may have written anything there.
    return rows.map((row) => ({
      ...row,
      name: row.name.slice(0, shownChars).toWellFormed(),
      version: row.version.slice(0, shownChars).toWellFormed(),
      slots: Math.max(0, row.slots),
      facts: HostFacts.safeParse(row.facts).data ?? none,
    }))
  }

  /** @throws {CaissonError} `invalid_options` */
  async drain(host: string, isDraining: boolean): Promise<readonly FleetHost[]> {
    const meant = (await this.#meant(host)).map(({ hostId }) => hostId)
    return await this.#database.transaction(async (tx) => {
      await tx.query('UPDATE caisson.hosts SET is_draining = $2 WHERE host_id = ANY($1)', [meant, isDraining])
      for (const hostId of meant) await notify(tx, hostId)
      return (await this.list(tx)).filter(({ hostId }) => meant.includes(hostId))
    })
  }

  /** @throws {CaissonError} `run_not_found`, `invalid_options` */
  async move(runId: string, host?: string): Promise<'moving' | 'waiting' | 'ended'> {
    if (host !== undefined) await this.#requireTaking(host)
    return await this.#database.transaction(async (tx) => {
      const [run] = await tx.query<{ hostId: string | null; hasEnded: boolean; isTaken: boolean }>(
        `SELECT host_id AS "hostId", has_ended AS "hasEnded", host_id IS NOT NULL AND tag IS NULL AS "isTaken"
           FROM caisson.runs WHERE run_id = $1 FOR UPDATE`,
        [runId],
      )
      if (run === undefined)
        throw new CaissonError(
          'run_not_found',
          `the fleet has no run ${JSON.stringify(runId.slice(0, 100))}`,
          {
            remedy: 'expected a whole ID, as caisson runs list shows it beside a service of the fleet',
          },
        )
      if (run.hasEnded) return 'ended'
      // The time of one that is taken begins when its host gives it back.
      await tx.query(
        `UPDATE caisson.runs SET leaves = $2, wants_host = $3, avoids_host = $4,
                wants_until = CASE WHEN tag IS NULL THEN NULL ELSE now() + interval '30 seconds' END
          WHERE run_id = $1`,
        [runId, run.isTaken, host ?? null, host === undefined && run.isTaken ? run.hostId : null],
      )
      await notify(tx, run.isTaken && run.hostId !== null ? run.hostId : workKey)
      return run.isTaken ? 'moving' : 'waiting'
    })
  }

  async #requireTaking(host: string): Promise<void> {
    const meant = await this.#meant(host)
    if (meant.some(({ isDraining, slots }) => !isDraining && slots > 0)) return
    throw new CaissonError(
      'invalid_options',
      `the host ${host} takes no runs: it is drained, or has no slots`,
      {
        remedy: 'choose another host, or run: caisson fleet drain HOST --undo',
      },
    )
  }

  /** @throws {CaissonError} `invalid_options` */
  async #meant(host: string): Promise<readonly FleetHost[]> {
    const found = (await this.list()).filter(({ hostId, name }) => hostId === host || name === host)
    const there = found.filter(({ isGone }) => !isGone)
    if (there.length > 0) return there
    const why = found.length === 0 ? 'the fleet has no host' : 'other hosts take its runs already: gone is'
    throw new CaissonError('invalid_options', `${why} ${JSON.stringify(host.slice(0, 100))}`, {
      remedy: 'list the hosts with: caisson fleet hosts',
    })
  }
}

async function notify(tx: Queries, key: string): Promise<void> {
  await tx.query('SELECT pg_notify($1, $2)', [hostChannel, key])
}
