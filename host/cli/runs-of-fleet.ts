/**
 * Runs of a fleet for the command line, as the service of this user shows them. Without a service of a fleet there are none.
 * What the service says is from other hosts, and is printed sanitized.
 */
import path from 'node:path'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { AccessQuestion, OfferedAnswer } from '#specs/protocol/approval.ts'
import type { PendingApproval, RunAnswer } from '#specs/protocol/run-state.ts'
import { ApprovalResource } from '#specs/service/approval-resources.ts'
import type { RunResource } from '#specs/service/run-resources.ts'
import { ServiceError } from '../../client/index.ts'
import type { Take } from '../compare/merge-runs.ts'
import type { MergedRuns } from '../compare/merged-run.ts'
import { formatCost, formatCount, formatTime } from '../files/format.ts'
import type { ForkOptions, RewindOptions } from '../fork-runs.ts'
import type { Forks } from '../forks/fork-run.ts'
import type { Rewound } from '../forks/rewind.ts'
import type { RunFilter } from '../journal/run-query.ts'
import { FleetRun } from './fleet-run.ts'
import { findRun, hostOf, type Io } from './io.ts'
import { findLocalService } from './local-service.ts'
import { writeLines } from './render/fit.ts'
import { writeJsonLine } from './render/json-lines.ts'
import { sanitizeLine } from './render/sanitize.ts'
import { SocketClient } from './socket-client.ts'

const pageMax = 200
/** The newest runs, whose IDs may be given by a prefix. */
const prefixRuns = 1_000
const fullId = /^run-[0-9a-f]{20}$/

/** As the journal has it; the HTTP API does not say more of its parts. */
const Asked = ApprovalResource.extend({
  approval: ApprovalResource.shape.approval.extend({
    access: AccessQuestion.optional(),
    answers: OfferedAnswer.array().optional(),
  }),
})

/** A question that a run waits for. */
export interface AskedQuestion {
  readonly runId: string
  readonly approval: PendingApproval
  /** See `digestOfQuestion`. */
  readonly digest: string
}

/** Commands that have said which runs they leave out. */
const warned = new WeakSet<Io>()

export class RunsOfFleet {
  /** Of the service that shows them. */
  readonly client: SocketClient

  private constructor(client: SocketClient) {
    this.client = client
  }

  /** Undefined: no service of this user and this version is one of a fleet. Says so once where it is of another version. */
  static async find(io: Io): Promise<RunsOfFleet | undefined> {
    const service = await findLocalService(hostOf(io).folders.home, io.version)
    if (service === undefined || service.isOfFleet === undefined) return undefined
    if ('socket' in service) return new RunsOfFleet(new SocketClient(service))
    if (!warned.has(io))
      io.stderr.write(
        `caisson: runs of its fleet are left out, because ${sanitizeLine(service.problem, 1_000)} with the version of this command, or use the caisson that started it\n`,
      )
    warned.add(io)
    return undefined
  }

  /** Newest first. @throws {CaissonError} what the service says */
  async *list(filter: RunFilter, last = Number.POSITIVE_INFINITY): AsyncGenerator<RunResource, void> {
    const { status, workspace, model, metadata } = filter
    let cursor: string | undefined
    for (let left = last; left > 0; ) {
      const { runs, nextCursor } = await this.client.call('listRuns', {
        query: {
          ...(status === undefined ? {} : { status }),
          ...(workspace === undefined ? {} : { workspace }),
          ...(model === undefined ? {} : { model }),
          ...(metadata === undefined ? {} : { metadata: JSON.stringify(metadata) }),
          ...(cursor === undefined ? {} : { cursor }),
          limit: String(Math.min(left, pageMax)),
        },
      })
      yield* runs
      left -= runs.length
      if (nextCursor === undefined) return
      cursor = nextCursor
    }
  }

  /**
   * A run as the fleet has it now. Says which one `last` is.
   * @param name as the command line names it. Undefined: it is none of the fleet
   */
  async find(io: Io, name: string): Promise<RunResource | undefined> {
    const found =
      name === 'last'
        ? await this.#last(io)
        : await this.#run(fullId.test(name) ? name : await this.#idFrom(io, name))
    if (found !== undefined && name === 'last')
      io.stderr.write(`caisson: last is ${found.id}: ${sanitizeLine(found.prompt, 60)}\n`)
    return found
  }

  /** As {@link find}. From now on the journal in the state folder is up to date. */
  async show(io: Io, name: string): Promise<RunResource | undefined> {
    const found = await this.find(io, name)
    if (found === undefined) return undefined
    await this.client.call('listEvents', { params: { run: found.id }, query: { limit: '1' } })
    return found
  }

  /** A run to follow and to act on. */
  run(runId: string): FleetRun {
    return new FleetRun(this.client, runId)
  }

  /**
   * Open questions, oldest first. Says so where there are more than the service lists.
   * @param run of this one alone. Absent: of all
   */
  async questions({ stderr }: Pick<Io, 'stderr'>, run?: string): Promise<AskedQuestion[]> {
    const query = run === undefined ? {} : { run }
    const { approvals, hasMore } = await this.client.call('listApprovals', { query })
    if (hasMore)
      stderr.write(
        `caisson: ${formatCount(approvals.length, 'question is', 'questions are')} listed, and there are more; list those of one run: caisson approvals list RUN\n`,
      )
    return approvals.map((asked) => Asked.parse(asked) as AskedQuestion)
  }

  /** Says who answered a question before. @throws {CaissonError} `not_possible_now` */
  async requireUndecided(run: string, approval: string): Promise<void> {
    try {
      await this.client.call('getApproval', { params: { run, approval } })
    } catch (error) {
      // One that was never asked is said with those that are.
      if (!(error instanceof CaissonError && error.cause instanceof ServiceError)) throw error
      if (error.cause.code === 'decided')
        throw new CaissonError('not_possible_now', sanitizeLine(error.cause.problem.detail, 500))
    }
  }

  /** What was answered for later calls of a run. */
  async answers(run: string): Promise<RunAnswer[]> {
    return (await this.client.call('listAnswers', { params: { run } })).answers as RunAnswer[]
  }

  /** Has a run that waits for people alone continued by any host. */
  async wake(run: string): Promise<void> {
    await this.client.call('resumeRun', { params: { run } })
  }

  /** As `host.merge`. */
  async merge(runs: readonly string[], takes: readonly Take[]): Promise<MergedRuns> {
    const body = {
      runs: [...runs],
      takes: takes.map(({ hunks, ...take }) => ({ ...take, ...(hunks && { hunks: [...hunks] }) })),
    }
    const { runId, ...merged } = await this.client.call('mergeRuns', { body })
    return { ...merged, ...(runId === undefined ? {} : { runId }) }
  }

  /** Has the changes of an ended run in its folder on this host. */
  async fetchChanges(run: string): Promise<void> {
    await this.client.call('listChanges', { params: { run } })
  }

  /** As `host.fork`. The new runs wait for {@link wake}. */
  async fork(run: string, { prompts = [], ...options }: ForkOptions): Promise<Forks> {
    const body = { ...options, ...(prompts.length === 0 ? {} : { prompts: [...prompts] }) }
    const { notNow, ...forks } = await this.client.call('forkRun', { params: { run }, body })
    return { ...forks, ...(notNow === undefined ? {} : { notNow }) }
  }

  /** As `host.rewind`. The new run waits for {@link wake}. */
  async rewind(run: string, body: RewindOptions): Promise<Rewound> {
    return await this.client.call('rewindRun', { params: { run }, body })
  }

  /** Removes an ended run, on all hosts. */
  async remove(run: string): Promise<void> {
    await this.client.call('removeRun', { params: { run } })
  }

  async #last({ directory = process.cwd() }: Io): Promise<RunResource | undefined> {
    for await (const run of this.list({ workspace: path.resolve(directory) }, 1)) return run
    return undefined
  }

  /** By a prefix of its ID, which the HTTP API does not know. @throws {CaissonError} `run_not_found` */
  async #idFrom(io: Io, name: string): Promise<string> {
    const wanted = name.startsWith('run-') ? name : `run-${name}`
    const ids = new Set<string>()
    for await (const { id } of this.list({}, prefixRuns)) if (id.startsWith(wanted)) ids.add(id)
    const own = await findRun(io, name).catch((error: unknown) => {
      if (ids.size === 0 || !hasCode(error, 'run_not_found')) throw error
      return undefined
    })
    if (own !== undefined) ids.add(own)
    const [first, ...more] = ids
    if (first !== undefined && more.length === 0) return first
    throw new CaissonError(
      'run_not_found',
      `"${name}" matches ${ids.size} runs of the fleet; use a longer ID`,
    )
  }

  async #run(run: string): Promise<RunResource | undefined> {
    try {
      return await this.client.call('getRun', { params: { run } })
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
