/**
 * Runs of a fleet for the command line, as the service of this user shows them. Without a service of a fleet there are none.
 * What the service says is from other hosts, and is printed sanitized.
 */
import path from 'node:path'
import * as z from 'zod'
import { hasCode } from '#specs/errors.ts'
import { EventPage, RunResource } from '#specs/service/run-resources.ts'
import { formatCost, formatCount, formatTime } from '../files/format.ts'
import type { RunFilter } from '../journal/run-query.ts'
import { findRun, hostOf, type Io } from './io.ts'
import { findLocalService, type LocalService, readFromService } from './local-service.ts'
import { writeLines } from './render/fit.ts'
import { writeJsonLine } from './render/json-lines.ts'
import { sanitizeLine } from './render/sanitize.ts'

const RunsPage = z.strictObject({ runs: z.array(RunResource), nextCursor: z.string().optional() })
const pageMax = 200
const fullId = /^run-[0-9a-f]{20}$/

export class RunsOfFleet {
  readonly #service: LocalService

  private constructor(service: LocalService) {
    this.#service = service
  }

  /** Undefined: no service of this user and this version is one of a fleet. */
  static async find(io: Io): Promise<RunsOfFleet | undefined> {
    const service = await findLocalService(hostOf(io).folders.home, io.version)
    return service !== undefined && 'socket' in service && service.isOfFleet
      ? new RunsOfFleet(service)
      : undefined
  }

  /** Newest first. @throws {CaissonError} what the service says */
  async *list(filter: RunFilter, last = Number.POSITIVE_INFINITY): AsyncGenerator<RunResource, void> {
    const { status, workspace, model, metadata } = filter
    const query = new URLSearchParams({
      ...(status === undefined ? {} : { status }),
      ...(workspace === undefined ? {} : { workspace }),
      ...(model === undefined ? {} : { model }),
      ...(metadata === undefined ? {} : { metadata: JSON.stringify(metadata) }),
    })
    for (let left = last; left > 0; ) {
      query.set('limit', String(Math.min(left, pageMax)))
      const { runs, nextCursor } = await readFromService(this.#service, `/v1/runs?${query}`, RunsPage)
      yield* runs
      left -= runs.length
      if (nextCursor === undefined) return
      query.set('cursor', nextCursor)
    }
  }

  /**
   * A run as the fleet has it now. From now on the journal in the state folder is up to date. Says which one `last` is.
   * @param name as the command line names it. Undefined: it is none of the fleet
   */
  async show(io: Io, name: string): Promise<RunResource | undefined> {
    const found =
      name === 'last'
        ? await this.#last(io)
        : await this.#run(fullId.test(name) ? name : await findRun(io, name))
    if (found === undefined) return undefined
    if (name === 'last') io.stderr.write(`caisson: last is ${found.id}: ${sanitizeLine(found.prompt, 60)}\n`)
    await readFromService(this.#service, `/v1/runs/${found.id}/events?limit=1`, EventPage)
    return found
  }

  async #last({ directory = process.cwd() }: Io): Promise<RunResource | undefined> {
    for await (const run of this.list({ workspace: path.resolve(directory) }, 1)) return run
    return undefined
  }

  async #run(runId: string): Promise<RunResource | undefined> {
    try {
      return await readFromService(this.#service, `/v1/runs/${runId}`, RunResource)
    } catch (error) {
      if (hasCode(error, 'run_not_found')) return undefined
      throw error
    }
  }
}

/** @returns how many there were */
export async function writeFleetRuns(
  { stdout }: Io,
  runs: AsyncIterable<RunResource>,
  { json }: { readonly json?: boolean },
): Promise<number> {
  let count = 0
  for await (const run of runs) {
    count += 1
    if (json === true) await writeJsonLine(stdout, run)
    else writeLines(stdout, [fleetListLine(run)])
  }
  return count
}

/** One line of a list. */
export function fleetListLine(run: RunResource): string {
  const { id, startedAt, status, prompt, metadata = {}, pendingApprovals, changes, applied, problem } = run
  const facts = [
    ...Object.entries(metadata).map(([key, value]) => `${key}=${sanitizeLine(value, 40)}`),
    ...placeWords(run),
    ...(pendingApprovals === 0 ? [] : [`${formatCount(pendingApprovals, 'approval')} pending`]),
    ...(run.since === undefined
      ? []
      : [`${run.isPaused === true ? 'paused, ' : ''}${sanitizeLine(status)} since ${formatTime(run.since)}`]),
    ...(changes === null
      ? []
      : [`${formatCount(changes, 'change')}${applied === null ? '' : `, ${applied} applied`}`]),
    ...(run.costUsd === null || run.costUsd === 0 ? [] : [formatCost(run.costUsd)]),
    ...(problem === undefined ? [] : [sanitizeLine(problem)]),
  ].map((fact) => ` · ${fact}`)
  const state = sanitizeLine(status).padEnd(11)
  return `${id}  ${formatTime(startedAt)}  ${state}  ${sanitizeLine(prompt, 60)}${facts.join('')}`
}

function placeWords({ host, queue }: RunResource): string[] {
  if (host != null) return [`on host ${sanitizeLine(host.name, 40)}`]
  return queue === undefined ? [] : [`place ${queue.place}`]
}

/** Who has the run, or what it waits for. Undefined: it has ended. */
export function whereLine({ host, queue, status, end, isPaused }: RunResource): string | undefined {
  if (end !== null) return undefined
  if (host != null)
    return `the host ${sanitizeLine(host.name)} of the fleet carries it out since ${formatTime(host.since)}`
  if (queue !== undefined) {
    const { place, waiting, why } = queue
    const words = why === undefined ? '' : `: ${sanitizeLine(why, 500)}`
    return `it waits for a host of the fleet, at place ${place} of ${Math.max(place, waiting)}${words}`
  }
  if (isPaused === true) return 'no host of the fleet has it: a person paused it'
  return status === 'sleeping'
    ? 'no host of the fleet has it: it waits for an answer'
    : 'no host of the fleet has it'
}
