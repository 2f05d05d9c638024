/**
 * Forks and rewinds of a run of a fleet whose disk another host has: of the files in the store where they have the moment, else
 * by the host that has the disk, which makes them there. What that host answers is checked like any other input.
 */
import { existsSync } from 'node:fs'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import { CheckpointId, Line, RunId } from '#specs/protocol/text.ts'
import type { FleetHost } from '../fleet/host-table.ts'
import type { ForkRequest, Forks } from '../forks/fork-run.ts'
import type { Rewound } from '../forks/rewind.ts'
import { isNoDisk } from '../forks/stored-task.ts'
import type { RunPaths } from '../journal/run-store.ts'
import type { RewindBody } from './acts.ts'
import type { FleetCopies } from './copies.ts'
import { FleetRunHandle, readOutcome } from './handle.ts'
import type { RunElsewhere } from './run-fences.ts'
import { forkStored, type StoreParts, storedMoments } from './stored-forks.ts'

/** How long that host has to begin, and to end: it stores the files of the new runs. */
const beginMs = 30_000
const endMs = 10 * 60_000

const MadeForks = z.strictObject({
  step: Line,
  notNow: Line.optional(),
  checkpointId: CheckpointId.nullable(),
  runIds: z.array(RunId).min(1).max(limits.forksMaxCount),
})
const MadeRewind = z.strictObject({ runId: RunId, step: Line, effects: z.array(Line).max(20) })

/** @returns undefined: this host has the disk, or the run is none of the fleet */
export async function findElsewhere(
  parts: StoreParts,
  copies: FleetCopies,
  paths: RunPaths,
): Promise<RunElsewhere | undefined> {
  const { fleet } = parts
  const { runId } = paths
  if (copies.isHere(runId)) return undefined
  const head = await fleet.runs.head(runId)
  if (head === undefined) return undefined
  const { carriedBy } = await fleet.runs.places(runId)
  const isOwn = carriedBy === fleet.name
  if (isOwn && existsSync(head.hasEnded ? paths.moments : paths.options)) return undefined
  const { hostId, hasEnded } = head
  const atWorkAt = hasEnded ? null : hostId
  // What it kept is gone, which it says itself.
  const isLost = isOwn && atWorkAt === null
  return new Elsewhere(parts, copies, { runId, paths, carriedBy, atWorkAt, isLost })
}

interface Place {
  readonly runId: string
  /** On this host. */
  readonly paths: RunPaths
  /** Name of the host that has the disk. */
  readonly carriedBy: string | null
  /** Id of the host that carries it out. */
  readonly atWorkAt: string | null
  readonly isLost: boolean
}

class Elsewhere implements RunElsewhere {
  readonly #parts: StoreParts
  readonly #copies: FleetCopies
  readonly #place: Place

  constructor(parts: StoreParts, copies: FleetCopies, place: Place) {
    this.#parts = parts
    this.#copies = copies
    this.#place = place
  }

  get isAtWork(): boolean {
    return this.#place.atWorkAt !== null
  }

  async forkStored(request: ForkRequest): Promise<Forks | undefined> {
    return await forkStored(this.#parts, this.#place.paths, request)
  }

  async fork({ by, despite: _, ...request }: ForkRequest): Promise<Forks | undefined> {
    const made = await this.#ask('fork', request, by)
    if (made === undefined) return undefined
    const { notNow, ...forks } = this.#read(MadeForks, made)
    return { ...forks, ...(notNow === undefined ? {} : { notNow }) }
  }

  async rewind(body: RewindBody, by: string): Promise<Rewound | undefined> {
    const made = await this.#ask('rewind', body, by)
    return made === undefined ? undefined : this.#read(MadeRewind, made)
  }

  async end(by: string): Promise<void> {
    const { runId } = this.#place
    if ((await this.#copies.run(runId))?.hasEnded === true) return
    await new FleetRunHandle(this.#parts.fleet, this.#copies, runId).cancel({ by })
  }

  #read<Made>(schema: z.ZodType<Made>, value: unknown): Made {
    const { success, data } = schema.safeParse(value)
    if (success) return data
    throw new CaissonError('internal', `the host that forks ${this.#place.runId} answered in another form`)
  }

  async #ask(kind: 'fork' | 'rewind', body: unknown, by: string): Promise<unknown> {
    const { runId, isLost } = this.#place
    if (isLost) return undefined
    const { acts } = this.#parts.fleet
    let refusal: unknown
    for (const { hostId, name } of await this.#hosts()) {
      const actId = await acts.askHost(runId, hostId, kind, body, by)
      try {
        return await this.#outcomeOf(actId, name)
      } catch (error) {
        if (!isNoDisk(error, runId)) throw error
        refusal = error
      }
    }
    throw refusal
  }

  /**
   * Of several processes of a name, which may have a folder each, first those that carry runs out.
   * @throws {CaissonError} `not_possible_now`
   */
  async #hosts(): Promise<readonly FleetHost[]> {
    const { runId, carriedBy, atWorkAt } = this.#place
    const found = (await this.#parts.fleet.hosts()).filter(
      ({ hostId, name, isGone }) => !isGone && (atWorkAt === null ? name === carriedBy : hostId === atWorkAt),
    )
    if (found.length > 0) return found.toSorted((one, other) => other.slots - one.slots)
    if (carriedBy === null)
      throw new CaissonError('not_possible_now', `no host of the fleet has a disk of ${runId}`, {
        remedy:
          'a run has one once a host has begun it; of a merged run, fork one of the runs that it was merged from',
      })
    throw await this.#refusal(carriedBy, 'and that host is gone')
  }

  async #outcomeOf(actId: string, name: string): Promise<unknown> {
    const { acts, notices, closing } = this.#parts.fleet
    const { runId } = this.#place
    const startedAt = performance.now()
    for (;;) {
      const noticed = notices.wait(`act-${actId}`, closing)
      const { outcome, isBegun, isThere } = await acts.look(actId)
      if (outcome !== undefined) return readOutcome(runId, outcome).value
      const waitedMs = performance.now() - startedAt
      if (isBegun && (!isThere || waitedMs > endMs || closing.aborted))
        throw new CaissonError(
          'connection_lost',
          `the host ${name} of the fleet began to fork ${runId} and gave no answer; it may have made forks`,
          { remedy: 'look at them with caisson runs list, then fork the run again if they are not there' },
        )
      const givesUp = !isBegun && (!isThere || waitedMs > beginMs || closing.aborted)
      if (givesUp && (await acts.withdraw(actId)) !== undefined)
        throw await this.#refusal(name, 'and that host gives no answer, so nothing was done')
      await noticed
    }
  }

  async #refusal(name: string, why: string): Promise<CaissonError> {
    const { runId } = this.#place
    const moments = await storedMoments(this.#parts, runId)
    const other = moments.length === 0 ? '' : `, or name a moment that any host forks: ${moments.join(', ')}`
    return new CaissonError(
      'not_possible_now',
      `only the host ${name} of the fleet has the disk of ${runId} at this moment, ${why}`,
      { remedy: `start Caisson on ${name} again (caisson fleet hosts shows it)${other}` },
    )
  }
}
