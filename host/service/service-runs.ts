/**
 * The runs of a service: starts them, holds those of this process, finds those of others. A run that the service started
 * says so in its journal; the next service continues those that were not over.
 */
import { randomUUID } from 'node:crypto'
import { mkdir, realpath, rmdir } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { errorMessage } from '#specs/errors.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { RunOutcome } from '#specs/protocol/task.ts'
import type { RunResource } from '#specs/service/run-resources.ts'
import type { RunRequest, WorkflowRunRequest } from '#specs/service/start-resources.ts'
import {
  type AnswerResult,
  type ApprovalAnswer,
  CaissonError,
  type CancelOptions,
  type FleetMember,
  type Host,
  type ResumeOptions,
  type Run,
  type RunHandle,
  type RunOptions,
  type RunSummary,
  type SubmissionKey,
  type WorkflowOptions,
  WorkspaceManager,
} from '../index.ts'
import { actorOf, type Caller, seesAll } from './callers.ts'
import type { FleetStarts, Placed } from './fleet-starts.ts'
import {
  givenMetadata,
  isVisible,
  type Ownership,
  ownerField,
  ownerMetadata,
  ownPrefix,
  requireScopesOf,
  visibleMetadata,
} from './ownership.ts'
import { Refusal } from './problems.ts'
import type { Quotas } from './quotas.ts'
import { digestOf, findByKey, hasBody, keyMetadata, keyOf, type StartKey, storedKey } from './run-keys.ts'
import { isUploadOf } from './uploads.ts'

type StartRequest = RunRequest | WorkflowRunRequest

const startedBy = `${ownPrefix}started-by`
const metadataMaxKeys = 12
/** Time for a run to leave this process, and between looks. */
const leavingMs = 5_000
const leavingLookMs = 100

/** A run that a request started, now or before. */
export interface StartedRun {
  readonly runId: string
  readonly isNew: boolean
  /** Digest of the request that started it, where that was another one with its key. */
  readonly body?: string
}

/** Notes that are remembered, so as not to log them again. */
const notedMax = 1_000

export interface ServiceRunsOptions {
  readonly host: Host
  /** Real paths of folders below which a workspace may be. */
  readonly workspaces: readonly string[]
  /** Folder for workspaces of runs that name none. */
  readonly emptyWorkspaces: string
  readonly quotas: Quotas
  readonly ownership: Ownership
  readonly warn: (text: string) => void
  /** Whose hosts carry the runs out. Absent: this process does. */
  readonly fleet?: { readonly member: FleetMember; readonly starts: FleetStarts } | undefined
  /** Hears of a run that this process begins to carry out, or has left. */
  readonly onChange?: (runId: string) => void
  /** Awaited before a request is answered that starts a run. Must not throw. */
  readonly onStart?: (runId: string) => Promise<void>
  /** Counts a run that the queue had no room for. */
  readonly onRefused?: () => void
}

export class ServiceRuns {
  readonly #options: ServiceRunsOptions
  /** Runs that this process carries out. */
  readonly #own = new Map<string, RunHandle>()
  /** Names of the callers that those belong to, other than the owner. */
  readonly #callers = new Map<string, string>()
  /** Requests under way, by their keys as journals have them. */
  readonly #starting = new Map<string, Promise<StartedRun>>()

  readonly #noted = new Set<string>()

  constructor(options: ServiceRunsOptions) {
    this.#options = options
  }

  /** Number of runs that this process carries out. */
  get count(): number {
    return this.#own.size
  }

  /** Whether this process carries out the run. */
  holds(runId: string): boolean {
    return this.#own.has(runId)
  }

  /** Ids of the runs that this process carries out. */
  get held(): Iterable<string> {
    return this.#own.keys()
  }

  /** Ids of the runs that this process carries out and that belong to a key or subject, with its name. */
  get ofCallers(): Iterable<readonly [string, string]> {
    return this.#callers
  }

  /** Continues the runs of an earlier service that were not over. @returns their ids */
  async resumeAll(): Promise<string[]> {
    const { host, warn } = this.#options
    const resumed: string[] = []
    // Until all of them wait, so that their order is that of before.
    using _ = host.queue?.hold()
    const runs = await host.runs.select({ status: 'interrupted', metadata: { [startedBy]: 'service' } })
    // Oldest first. One that sleeps continues with its answer.
    for (const run of runs.reverse()) {
      try {
        // A host of the fleet continues it, which may be this one.
        if ((await this.#options.fleet?.member.has(run.id)) === true) continue
        if (run.forkedFrom !== undefined && !(await this.#hasBegun(run.id))) continue
        await this.#resume(run, { endIfCancelled: true })
        resumed.push(run.id)
      } catch (error) {
        warn(`${run.id} was not continued: ${error instanceof Error ? error.message : String(error)}`)
      }
    }
    return resumed
  }

  /** Whether a fork was started: something follows what it has of the other run and what was said to it. */
  async #hasBegun(runId: string): Promise<boolean> {
    let checkpointId: string | null = null
    let isOwn = false
    let hasBegun = false
    await this.#options.host.runs.visit(runId, ({ event }) => {
      if (event.type === 'run-start') checkpointId = event.forkedFrom?.checkpointId ?? null
      else if (isOwn) hasBegun ||= event.type !== 'steer-request'
      else if (checkpointId === null) isOwn = event.type === 'workspace-ready'
      else isOwn = event.type === 'checkpoint' && event.checkpointId === checkpointId
    })
    return hasBegun
  }

  /** @throws {Refusal} 429 beyond the quotas of the caller */
  async resume(runId: string, caller: Caller): Promise<void> {
    const run = await this.summary(runId)
    const { host, quotas, fleet } = this.#options
    if (fleet !== undefined && (await fleet.member.has(runId)))
      return await quotas.resume(
        caller,
        run,
        async () => await this.#orRetryLater(async () => await fleet.member.wake(runId)),
      )
    const { maxRuns } = caller.account?.quotas ?? {}
    await this.#orRetryLater(async () => host.queue?.requireRoom(run.metadata?.[ownerField], maxRuns))
    await quotas.resume(caller, run, async (limits) => await this.#resume(run, { limits }))
  }

  /** What runs say of their model and traces, each once. */
  #note(notes: readonly string[]): void {
    for (const note of notes) {
      if (this.#noted.has(note)) continue
      if (this.#noted.size < notedMax) this.#noted.add(note)
      this.#options.warn(note)
    }
  }

  async #resume(
    { id, metadata }: RunSummary,
    options: Pick<ResumeOptions, 'limits' | 'endIfCancelled'>,
  ): Promise<void> {
    // Who started a run here may have said that nobody answers.
    const interactive = metadata?.[startedBy] === undefined ? true : 'stored'
    const run = await this.#options.host.resume(id, {
      ...{ ...options, interactive, onNotes: (notes) => this.#note(notes) },
    })
    this.hold(run, metadata?.[ownerField])
  }

  /**
   * Starts a run, or finds the one that the caller started with the same key.
   * @param check refuses a new run alone, so that a repeated request finds its run whatever has changed since
   * @throws {Refusal} 403 without a scope that the request needs, 409 or 422 when the key was used with another body, 429
   */
  async start(
    request: StartRequest,
    caller: Caller,
    key?: StartKey,
    check: () => Promise<void> = async () => undefined,
  ): Promise<StartedRun> {
    requireScopesOf(caller, request)
    const { continue: continued, plan } = 'workflow' in request ? {} : request
    const others = [continued, plan?.from].filter((other) => typeof other === 'string')
    await this.#options.ownership.require(caller, ...others)
    const startNew = async (
      own: Readonly<Record<string, string>>,
      submission?: SubmissionKey,
    ): Promise<StartedRun> => {
      await check()
      return await this.#start(request, caller, own, submission)
    }
    if (key === undefined) return await startNew({})
    const body = digestOf(toCanonicalJson(request))
    const stored = storedKey(caller, key)
    const { fleet } = this.#options
    if (fleet !== undefined) {
      const known =
        (await fleet.member.findByKey(stored)) ??
        (await startNew(keyMetadata(stored, body), { key: stored, body }))
      if ('body' in known && known.body !== body) throw keyConflict(key, known.runId)
      return { runId: known.runId, isNew: 'isNew' in known && known.isNew }
    }
    return await this.#inTurn(stored, async () => {
      const known = await findByKey(this.#options.host.runs, caller, stored)
      if (known === undefined) return await startNew(keyMetadata(stored, body))
      if (hasBody(known, body)) return { runId: known.id, isNew: false }
      throw keyConflict(key, known.id)
    })
  }

  /** Two requests at once with one key start one run. */
  async #inTurn(stored: string, work: () => Promise<StartedRun>): Promise<StartedRun> {
    const before: Promise<unknown> = this.#starting.get(stored) ?? Promise.resolve()
    const started = before.then(work, work)
    this.#starting.set(stored, started)
    try {
      return await started
    } finally {
      if (this.#starting.get(stored) === started) this.#starting.delete(stored)
    }
  }

  /**
   * Acts on a run at work. @throws {CaissonError} `run_not_found`; `not_possible_now` when no process carries it out
   */
  async act<T>(runId: string, work: (run: RunHandle) => Promise<T>): Promise<T> {
    const handle = await this.find(runId)
    if (handle === null) {
      const { status } = await this.summary(runId)
      throw new CaissonError('not_possible_now', `${runId} is not at work; its status is ${status}`, {
        remedy: `see what it did: caisson runs show ${runId}`,
      })
    }
    try {
      return await work(handle)
    } finally {
      await this.release(handle)
    }
  }

  /** The handle of a run at work, to be released; null when no process carries it out. */
  async find(runId: string): Promise<RunHandle | null> {
    return this.#own.get(runId) ?? (await this.#options.host.reach(runId))
  }

  /**
   * Answers a question, wherever its run is. One that no process carries out continues here with the answer, unless a person
   * paused it.
   */
  async answer(
    runId: string,
    approvalId: string,
    answer: ApprovalAnswer,
    { caller, by: said }: { readonly caller: Caller; readonly by: string | undefined },
  ): Promise<AnswerResult> {
    const by = actorOf(caller, said)
    const own = await this.#own.get(runId)?.answer(approvalId, answer, { by, via: 'http' })
    // A run that leaves this process takes none; its next process or its journal does.
    if (own !== undefined && (own.taken || own.reason !== 'connection_lost')) return own
    const { host, quotas, ownership } = this.#options
    const before = await this.summary(runId)
    // Who has a link has no quota; the run is its owner's.
    const payer = caller.link === undefined ? caller : await ownership.ownerOf(before)
    // Before the answer counts, since it wakes the run.
    if (!before.isLive) await quotas.requireRoom(payer)
    const result = await host.answer(runId, approvalId, answer, { by, via: 'http' })
    const run = await this.summary(runId)
    // The fleet queues its run with the answer.
    const isIdle = !run.isLive && run.host === undefined
    if (result.taken && isIdle && run.isPaused !== true && run.state.end === null)
      await quotas.resume(payer, run, async (limits) => await this.#resume(run, { limits }))
    return result
  }

  /** Cancels a run, also one that no process carries out. */
  async cancel(runId: string, options: CancelOptions): Promise<void> {
    let hasLeft = false
    for (const until = performance.now() + leavingMs; ; ) {
      const own = this.#own.get(runId)
      try {
        return await (own === undefined ? this.#options.host.cancel(runId, options) : own.cancel(options))
      } catch (error) {
        // A run of a fleet that goes to sleep: its journal takes the request as soon as it has left.
        hasLeft ||= own !== undefined && CaissonError.from(error).code === 'run_busy'
        if (!hasLeft || performance.now() > until) throw error
      }
      await sleep(leavingLookMs)
    }
  }

  /** Closes the connection to a run of another process. */
  async release(handle: RunHandle): Promise<void> {
    if (!this.#own.has(handle.id)) await handle.detach()
  }

  /** @throws {CaissonError} `run_not_found` */
  async summary(runId: string): Promise<RunSummary> {
    const { runs } = this.#options.host
    await runs.find(runId)
    return await runs.summary(runId)
  }

  async #start(
    request: StartRequest,
    caller: Caller,
    own: Readonly<Record<string, string>>,
    key: SubmissionKey | undefined,
  ): Promise<StartedRun> {
    const { metadata = {} } = request
    requireOwnMetadata(metadata)
    const all = { ...metadata, ...own, ...ownerMetadata(caller), [startedBy]: 'service' }
    return this.#options.fleet === undefined
      ? await this.#startHere(request, caller, all)
      : await this.#submit(this.#options.fleet.starts, request, caller, { metadata: all, key })
  }

  /** For any host of the fleet. */
  async #submit(
    starts: FleetStarts,
    { workspace, uploadedWorkspace, expectedModel: _, ...request }: StartRequest,
    caller: Caller,
    given: { readonly metadata: Readonly<Record<string, string>>; readonly key: SubmissionKey | undefined },
  ): Promise<StartedRun> {
    const { metadata, key } = given
    const earlier = 'continue' in request ? request.continue : undefined
    const place = async (): Promise<Placed> =>
      uploadedWorkspace === undefined
        ? await this.#placeToSubmit(starts, { workspace, earlier }, caller)
        : { workspace: { kind: 'upload', id: uploadedWorkspace } }
    const { limits, ...rest } = request
    return await this.#options.quotas.start(caller, limits, async (within) => {
      const limited = { ...rest, ...(within === undefined ? {} : { limits: within }), metadata }
      const submission = {
        ...{ request: limited as StartRequest, place, key },
        caller: ownerMetadata(caller)[ownerField],
        maxAtWork: caller.account?.quotas.maxRuns ?? null,
      }
      return await this.#orRetryLater(() => starts.submit(submission))
    })
  }

  /** @param given with the run that the new one continues */
  async #placeToSubmit(
    starts: FleetStarts,
    { workspace, earlier }: { readonly workspace: string | undefined; readonly earlier: string | undefined },
    caller: Caller,
  ): Promise<Placed> {
    if (workspace !== undefined) {
      await this.#requireOwnPlace(workspace, caller)
      return { workspace: { kind: 'directory', path: await this.workspaceOf(workspace) } }
    }
    if (earlier === undefined) return { workspace: { kind: 'empty' } }
    const run = await this.summary(earlier)
    const made = await starts.workspaceAfter(run, caller)
    return made ?? { workspace: { kind: 'directory', path: await this.workspaceOf(run.workspace) } }
  }

  /** Of the request, or of the run that it continues. Undefined: it has one of its own. */
  async #directoryOf(request: StartRequest): Promise<string | undefined> {
    const continues = 'continue' in request ? request.continue : undefined
    if (request.workspace !== undefined || continues === undefined) return request.workspace
    return (await this.summary(continues)).workspace
  }

  async #startHere(
    request: StartRequest,
    caller: Caller,
    metadata: Readonly<Record<string, string>>,
  ): Promise<StartedRun> {
    const {
      metadata: _,
      workspace: __,
      approvals,
      limits,
      expectedModel: ___,
      priority,
      startWithinMs,
      requires,
      ...rest
    } = request
    if (requires !== undefined)
      throw new Refusal(400, 'invalid_options', 'requires: this service is in no fleet', {
        remedy: 'leave it out, or send the request to a service of a fleet',
      })
    const directory = await this.#directoryOf(request)
    if (request.workspace !== undefined) await this.#requireOwnPlace(request.workspace, caller)
    const place = directory === undefined ? await this.#makeWorkspace() : await this.workspaceOf(directory)
    const options = {
      ...rest,
      workspace: place,
      metadata,
      approvals: { interactive: true, ...approvals },
      // Each key and subject has its turn, and so has the owner.
      queue: {
        ...{ lane: ownerMetadata(caller)[ownerField], priority, startWithinMs },
        laneMaxAtWork: caller.account?.quotas.maxRuns,
      },
    } as StartOptions
    const { host, quotas } = this.#options
    try {
      return await quotas.start(caller, limits, async (within) => {
        const limited = within === undefined ? options : ({ ...options, limits: within } as StartOptions)
        const run = await this.#orRetryLater(() =>
          startOn(host, { ...limited, onNotes: (notes) => this.#note(notes) }),
        )
        this.hold(run, ownerMetadata(caller)[ownerField])
        await this.#options.onStart?.(run.id)
        if (quotas.hasBudget(caller) && host.queue?.placeOf(run.id) != null)
          void this.#checkBudget(run, caller)
        return { runId: run.id, isNew: true }
      })
    } catch (error) {
      // No run names it.
      if (directory === undefined) await rmdir(place).catch(() => undefined)
      throw error
    }
  }

  /** Ends a run whose turn comes when others, which began before it, have used what its caller may use in a day. */
  async #checkBudget(run: RunHandle, caller: Caller): Promise<void> {
    try {
      for await (const item of run.watch())
        if (item.source === 'host' && item.event.type === 'queue-end') break
      await this.#options.quotas.requireBudget(caller)
    } catch (error) {
      await run.cancel({ by: `the service: ${errorMessage(error)}`, now: true }).catch(() => undefined)
    }
  }

  /** @throws {Refusal} 429 with the time until another run starts, where too many wait */
  async #orRetryLater<T>(work: () => Promise<T>): Promise<T> {
    const { host, onRefused, fleet } = this.#options
    try {
      return await work()
    } catch (error) {
      const { code, message } = CaissonError.from(error)
      const nextStartMs =
        code === 'queue_full'
          ? ((await fleet?.member.signals())?.nextStartMs ?? host.queue?.nextStartMs)
          : undefined
      if (nextStartMs === undefined) throw error
      onRefused?.()
      const seconds = Math.ceil(nextStartMs / 1_000)
      throw new Refusal(429, 'queue_full', message, {
        remedy: `try again in ${seconds} s, or cancel a run that waits`,
        headers: { 'retry-after': `${seconds}` },
      })
    }
  }

  /** What a caller sees of a run. */
  resource(run: RunSummary): RunResource {
    const place = this.#options.host.queue?.placeOf(run.id) ?? null
    return { ...runResource(run), ...(place === null ? {} : { queue: place }) }
  }

  /** As {@link resource}, with the place of a run that waits for a host of the fleet, and why it waits. */
  async fullResource(run: RunSummary): Promise<RunResource> {
    const place = run.status === 'queued' ? await this.#options.fleet?.member.placeOf(run.id) : undefined
    return { ...this.resource(run), ...(place === undefined ? {} : { queue: place }) }
  }

  /** From now on this process carries the run out. @param caller whose it is; undefined: the owner's */
  hold(run: RunHandle, caller: string | undefined): void {
    this.#own.set(run.id, run)
    if (caller !== undefined) this.#callers.set(run.id, caller)
    this.#options.onChange?.(run.id)
    void run
      .result()
      .catch(() => undefined)
      .finally(() => {
        this.#own.delete(run.id)
        this.#callers.delete(run.id)
        this.#options.onChange?.(run.id)
      })
  }

  /** Resolves once this process no longer has a run that has ended: until then nobody else may write to it. */
  async settled(runId: string): Promise<void> {
    const own = this.#own.get(runId)
    if (own === undefined || !RunOutcome.safeParse((await this.summary(runId)).status).success) return
    await own.result().catch(() => undefined)
  }

  /** An empty workspace for one run, for this user alone. It is removed with the run; see `RunStore.remove`. */
  async #makeWorkspace(): Promise<string> {
    const empty = path.join(this.#options.emptyWorkspaces, `${Date.now()}-${randomUUID()}`)
    await mkdir(empty, { recursive: true, mode: 0o700 })
    return empty
  }

  /** Refuses the path of a workspace that the service made for somebody else's run. @throws {Refusal} 403 */
  async #requireOwnPlace(given: string, caller: Caller): Promise<void> {
    const real = await realpath(given).catch(() => undefined)
    if (real === undefined || seesAll(caller) || !(await this.#isMade(real))) return
    if (isUploadOf(path.basename(real), caller)) return
    const metadata = visibleMetadata(caller)
    for (const workspace of new Set([given, real])) {
      const { runs } = await this.#options.host.runs.page({ filter: { workspace, metadata }, limit: 1 })
      if (runs.some((run) => isVisible(caller, run))) return
    }
    throw this.#notAllowed(given)
  }

  /** Whether the service made the folder for a run or an upload. */
  async #isMade(real: string): Promise<boolean> {
    return path.dirname(real) === (await realpath(this.#options.emptyWorkspaces).catch(() => undefined))
  }

  /** The real path, so that no link leads out of the allowed folders. */
  async workspaceOf(given: string): Promise<string> {
    const { workspaces } = this.#options
    const real = await realpath(given).catch(() => undefined)
    // A later run continues one that has a workspace of its own.
    if (real !== undefined && (await this.#isMade(real))) return real
    const isBelow = (folder: string) =>
      real === folder || real?.startsWith(folder === '/' ? '/' : `${folder}/`)
    if (real !== undefined && workspaces.some(isBelow)) return real
    throw this.#notAllowed(given)
  }

  #notAllowed(given: string): Refusal {
    const { workspaces } = this.#options
    return new Refusal(
      403,
      'workspace_refused',
      `the workspace ${JSON.stringify(given)} is not below an allowed folder`,
      {
        remedy: `allowed: ${workspaces.join(', ') || '(none)'}; allow more with \`caisson serve --allow-workspace DIR\``,
      },
    )
  }
}

function runResource(run: RunSummary): RunResource {
  const { id, status, since, startedAt, prompt, workspace, model, continues, state } = run
  const { notes, forkedFrom, pendingApprovals, isLive, isPaused, problem, host } = run
  const { phase, toolCalls, usage, isUsageEstimated, costUsd, changes, applied, end } = state
  const shown = givenMetadata(run)
  const key = keyOf(run)
  return {
    id,
    ...(key === undefined ? {} : { key }),
    status,
    ...(since === undefined ? {} : { since }),
    ...(isPaused === undefined ? {} : { isPaused }),
    ...{ startedAt, prompt, workspace, model },
    ...(shown === undefined ? {} : { metadata: shown }),
    ...(notes === undefined ? {} : { notes: [...notes] }),
    ...(continues === undefined ? {} : { continues }),
    ...(forkedFrom === undefined ? {} : { forkedFrom }),
    ...{ phase, toolCalls, usage, isUsageEstimated, costUsd },
    changes: changes?.entries ?? null,
    ...{ applied, pendingApprovals, isLive, end },
    ...(host === undefined ? {} : { host }),
    ...(problem === undefined ? {} : { problem }),
  }
}

/** @throws {Refusal} 400 */
function requireOwnMetadata(metadata: Readonly<Record<string, string>>): void {
  const reserved = Object.keys(metadata).find((name) => name.startsWith(ownPrefix))
  if (reserved === undefined && Object.keys(metadata).length <= metadataMaxKeys) return
  throw new Refusal(400, 'invalid_request', 'the metadata cannot be used', {
    errors: [
      {
        field: 'metadata',
        message: `expected at most ${metadataMaxKeys} keys, none that starts with ${ownPrefix}`,
      },
    ],
  })
}

type StartOptions = RunOptions | (WorkflowOptions & Pick<WorkflowRunRequest, 'workflow'>)

/** Never reads a file: what a caller sends is the workflow itself, or the name of one in the store. */
async function startOn(host: Host, options: StartOptions): Promise<Run> {
  if (!('workflow' in options)) return await host.run(options)
  const { workflow, ...rest } = options
  const text = typeof workflow === 'string' ? workflow : JSON.stringify(workflow)
  return await host.startWorkflow(await new WorkspaceManager({ store: host.workflows }).find(text), rest)
}

function keyConflict({ from, text }: StartKey, runId: string): Refusal {
  return from === 'header'
    ? new Refusal(
        422,
        'idempotency_conflict',
        `the key was used for another request, which started ${runId}`,
        {
          remedy: 'use a new Idempotency-Key for each new request',
        },
      )
    : new Refusal(
        409,
        'idempotency_conflict',
        `the key ${JSON.stringify(text)} was used with another body, which started ${runId}`,
        { remedy: `send the same body, or another key for a new run; the run: GET /v1/runs/${text}` },
      )
}
