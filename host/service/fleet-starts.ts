/**
 * Runs of a service that is one of a fleet: what a request starts becomes a row that any host carries out, and what this host
 * takes becomes a run here. A row may be of any host, so it is checked like a request.
 */
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import type { RunMetadata } from '#specs/protocol/host-event.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { RunRequest, WorkflowRunRequest, WorkspaceId } from '#specs/service/start-resources.ts'
import {
  CaissonError,
  type FleetMember,
  type Host,
  type Requires,
  type ResumeOptions,
  type Run,
  type RunOptions,
  type RunSummary,
  type SubmissionKey,
  type SubmittedSegment,
  type WorkflowOptions,
  WorkspaceManager,
} from '../index.ts'
import type { Caller } from './callers.ts'
import { Refusal } from './problems.ts'
import type { Uploads } from './uploads.ts'

const Workspace = z.discriminatedUnion('kind', [
  /** One that each host has. */
  z.strictObject({ kind: z.literal('directory'), path: z.string().min(1).max(4_096) }),
  /** In the blob store of the fleet. */
  z.strictObject({ kind: z.literal('upload'), id: WorkspaceId }),
  z.strictObject({ kind: z.literal('empty') }),
])
type Workspace = z.infer<typeof Workspace>

/** Without a workspace; its metadata has those of the service too. */
const Request = z.union([RunRequest, WorkflowRunRequest])
type Request = z.infer<typeof Request>

const Start = z.strictObject({
  workspace: Workspace,
  request: Request,
  /** Name of the caller whose run it is. Absent: the owner of the service. */
  caller: z.string().max(500).optional(),
})

export interface FleetStartsOptions {
  readonly host: Host
  readonly fleet: FleetMember
  readonly uploads: Uploads
  /** Folder of the workspaces of runs that name none. */
  readonly emptyWorkspaces: string
  /** The real path of a directory that a run may work on here. @throws where it may not */
  readonly workspaceOf: (directory: string) => Promise<string>
  /** What the caller of a run may use that begins now. @throws {Refusal} 429 */
  readonly limitsNow: (metadata: RunMetadata, limits: Request['limits']) => Promise<Request['limits']>
  /** Bounds of a run that continues now. */
  readonly limitsToContinue: (run: RunSummary) => Promise<ResumeOptions['limits']>
  /** Hears of a run that this host carries out. */
  readonly onRun: (run: Run, caller: string | undefined) => void
}

/** Where a run works. */
export interface Placed {
  readonly workspace: Workspace
  /** Whether the workspace was uploaded for this run alone. Absent: no. */
  readonly isCopy?: boolean
}

export interface FleetRequest {
  /** Without workspace; with all metadata and limits that the run has. */
  readonly request: Request
  /** Asked once the request has proved to be one. */
  readonly place: () => Promise<Placed>
  /** Name of the caller; undefined: the owner. */
  readonly caller: string | undefined
  /** Runs of the caller at work on all hosts; null: no bound. */
  readonly maxAtWork: number | null
  readonly key: SubmissionKey | undefined
}

interface Submitted {
  readonly runId: string
  readonly isNew: boolean
  readonly body?: string
}

export class FleetStarts {
  readonly #options: FleetStartsOptions

  constructor(options: FleetStartsOptions) {
    this.#options = options
  }

  /** @throws {OptionsError} for options that no host takes */
  async submit(given: FleetRequest): Promise<Submitted> {
    const { host, uploads } = this.#options
    const { request } = given
    if (!('workflow' in request))
      host.checkRun({ ...optionsOf(request), workspace: '/' } as unknown as RunOptions)
    const { workspace, isCopy = false } = await given.place()
    try {
      return await this.#submit(given, workspace)
    } catch (error) {
      // After another failure the fleet may have the run.
      const isRefused = CaissonError.from(error).code === 'queue_full'
      if (isRefused && isCopy && workspace.kind === 'upload') await uploads.discard(workspace.id)
      throw error
    }
  }

  async #submit({ request, caller, maxAtWork, key }: FleetRequest, workspace: Workspace): Promise<Submitted> {
    const { model = '', metadata = {} } = request
    return await this.#options.fleet.submit({
      about: {
        prompt: 'workflow' in request ? '' : request.prompt,
        workspace: workspace.kind === 'directory' ? workspace.path : '',
        ...{ model, metadata },
      },
      start: { workspace, request, ...(caller === undefined ? {} : { caller }) } satisfies z.input<
        typeof Start
      >,
      ...{ lane: caller, caller, priority: request.priority, startWithinMs: request.startWithinMs },
      // The owner has no quota.
      ...(caller === undefined ? {} : { laneMaxAtWork: maxAtWork }),
      requires: requiresOf(request),
      ...(workspace.kind === 'upload' ? { uploadId: workspace.id } : {}),
      ...(key === undefined ? {} : { key }),
    })
  }

  /**
   * Where a run works that continues another one and names no workspace. Undefined: as that one, on a directory. What was
   * applied to a workspace that a host made goes along as an upload. @throws {Refusal} 409 when another host has it
   */
  async workspaceAfter(earlier: RunSummary, caller: Caller): Promise<Placed | undefined> {
    const { host, fleet, uploads } = this.#options
    const { success, data } = Start.safeParse((await fleet.submittedAs(earlier.id))?.start)
    if (!success || data.workspace.kind === 'directory') return undefined
    if ((earlier.state.applied ?? 0) === 0) return { workspace: data.workspace }
    if (!(await host.runs.appliedHere(earlier.id))) {
      const name = (await fleet.lastHostOf(earlier.id)) ?? 'unknown'
      const message = `what was applied of ${earlier.id} is not on this host alone; the host ${name} of the fleet wrote to it last`
      throw new Refusal(409, 'not_possible_now', message, {
        remedy: 'send the request to the host that applied all of it, or name a workspace',
      })
    }
    const directory = await this.#placeOf(earlier.id, data.workspace)
    const { id } = await uploads.take(host.packWorkspace(directory), caller)
    return { workspace: { kind: 'upload', id }, isCopy: true }
  }

  /** Carries out what any host of the fleet submitted, as many as this host has slots. */
  async work(): Promise<void> {
    const { host, fleet } = this.#options
    fleet.placeWorkspaces(async (runId, start) => {
      const { success, data } = Start.safeParse(start)
      return success ? await this.#placeOf(runId, data.workspace).catch(rethrowRefusal) : undefined
    })
    await fleet.work(host, (segment) => this.#begin(segment))
  }

  async #begin({ runId, isNew, start }: SubmittedSegment): Promise<Run> {
    const { host, fleet, onRun } = this.#options
    const { request, workspace, caller } = readStart(runId, start)
    const place = await this.#placeOf(runId, workspace)
    if (!isNew) await fleet.relocate(host, runId, place)
    const run = isNew
      ? await this.#start(runId, await this.#withinQuotas(request), place)
      : await this.#resume(runId)
    onRun(run, caller)
    return run
  }

  async #start(runId: string, request: Request, workspace: string): Promise<Run> {
    const { host } = this.#options
    const options = {
      ...optionsOf(request),
      workspace,
      approvals: { interactive: true, ...request.approvals },
      leaveOnSleep: true,
    }
    if (!('workflow' in options)) return await host.runAs(runId, options as unknown as RunOptions)
    const { workflow, ...rest } = options as unknown as WorkflowOptions & Pick<WorkflowRunRequest, 'workflow'>
    const text = typeof workflow === 'string' ? workflow : JSON.stringify(workflow)
    const found = await new WorkspaceManager({ store: host.workflows }).find(text)
    return await host.startWorkflowAs(runId, found, rest)
  }

  /** Others of its caller may have used meanwhile what was left when it was submitted. @throws {CaissonError} `cancelled` */
  async #withinQuotas(request: Request): Promise<Request> {
    const { metadata = {}, limits } = request
    const now = await this.#options.limitsNow(metadata, limits).catch((error: unknown) => {
      if (!(error instanceof Refusal)) throw error
      throw new CaissonError('cancelled', `cancelled by the service: ${error.message}`)
    })
    return now === undefined ? request : { ...request, limits: now }
  }

  async #resume(runId: string): Promise<Run> {
    const { host, limitsToContinue } = this.#options
    const limits = (await limitsToContinue(await host.runs.summary(runId))) ?? {}
    return await host.resume(runId, { interactive: 'stored', leaveOnSleep: true, limits })
  }

  /** The directory on this host, which allows it too. */
  async #placeOf(runId: string, workspace: Workspace): Promise<string> {
    const { uploads, emptyWorkspaces } = this.#options
    if (workspace.kind === 'directory') return await this.#directoryAt(workspace.path)
    if (workspace.kind === 'upload') return await uploads.bring(workspace.id)
    // The same name on each host, and removed with the run.
    const empty = path.join(emptyWorkspaces, runId)
    await mkdir(empty, { recursive: true, mode: 0o700 })
    return empty
  }

  /** The path was real where the run was submitted. One that leads elsewhere here may have been exchanged since. */
  async #directoryAt(given: string): Promise<string> {
    const real = await this.#options.workspaceOf(given)
    if (real === given) return real
    const message = `the workspace ${JSON.stringify(given)} is a link, or below one: it leads to ${JSON.stringify(real)}`
    throw new Refusal(403, 'workspace_refused', message, {
      remedy: 'give the directory the same path without links on each host of the fleet',
    })
  }
}

/** What a host has to have for the run. */
function requiresOf({ vm, requires = {} }: Request): Requires {
  const { labels = [], architecture, accelerator, memoryBytes = 0 } = requires
  const bytes = Math.max(memoryBytes, vm?.memoryBytes ?? 0)
  return {
    ...(bytes === 0 ? {} : { memoryMib: Math.min(2 ** 30, Math.ceil(bytes / 2 ** 20)) }),
    ...(labels.length === 0 ? {} : { labels: [...new Set(labels)] }),
    ...(architecture === undefined ? {} : { architecture }),
    ...(accelerator === undefined ? {} : { accelerator }),
  }
}

/** As an error of the library, for whoever reads the changes through it. */
function rethrowRefusal(error: unknown): never {
  if (!(error instanceof Refusal)) throw error
  const { message, problem } = error
  const { remedy } = problem
  throw new CaissonError(
    'workspace_refused',
    `${message} of this host of the fleet`,
    remedy === undefined ? {} : { remedy },
  )
}

type NotOptions =
  | 'workspace'
  | 'uploadedWorkspace'
  | 'priority'
  | 'startWithinMs'
  | 'requires'
  | 'expectedModel'

/** What the library takes of a request. */
function optionsOf<R extends Request>(request: R): Omit<R, NotOptions> {
  const {
    workspace: _,
    uploadedWorkspace: __,
    priority: ___,
    startWithinMs: ____,
    expectedModel: _____,
    requires: ______,
    ...options
  } = request
  return options
}

/** @throws {CaissonError} `invalid_options`: no host can start it */
function readStart(runId: string, start: unknown): z.infer<typeof Start> {
  const { success, data, error } = Start.safeParse(start, plainMessages)
  if (success) return data
  throw new CaissonError(
    'invalid_options',
    `the fleet has no request of ${runId} that can be used: ${describeIssues(error, { root: 'the request', max: 1 })}`,
    { remedy: 'use one version of Caisson on all hosts, and start the run again' },
  )
}
