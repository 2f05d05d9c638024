/**
 * The agent as a service on its two ports: connects the host's requests to the loop, the workspace and the root
 * helper. Contains no policy.
 */
import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import type { Logger } from 'pino'
import type { Model } from '#runtime/llm/model.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { OpenExtension } from './extensions/extension.ts'
import { type AgentDescription, type AgentHandlers, type HostLink, serveHost } from './link/host-link.ts'
import { createLogger } from './link/logger.ts'
import { carry, connectToPort } from './link/pipe-connection.ts'
import type { OpenPort } from './link/port.ts'
import type { ShellRequest } from './link/root-helper.ts'
import { type LoopParts, runAgentLoop } from './loop.ts'
import { executePlan } from './plan/executor.ts'
import { makePlan } from './plan/planner.ts'
import type { SteerMessage } from './run/steering.ts'
import { TaskInbox } from './run/task-inbox.ts'
import { type AgentsParts, createAgents } from './subagents/create-agents.ts'
import { createRegistry, type Registry } from './tool-calls/registry.ts'
import type { Tool } from './tool-calls/tool.ts'
import type { CollectOptions } from './workspace/collect.ts'
import { sendChanges } from './workspace/send-changes.ts'

/** Operations that need root in the guest. */
interface RootSide {
  mountWorkspace(readOnly: boolean): Promise<Result<unknown, RootFailure>>
  resetWorkspace(keepHome: boolean): Promise<Result<unknown, RootFailure>>
  /** Opens a connection to a person's shell; rejects when it cannot start. */
  openShell(request: ShellRequest): Promise<Duplex>
}

/** A failure with the root helper's own code. */
interface RootFailure {
  readonly message: string
}

interface DaemonOptions {
  readonly openRpc: OpenPort
  readonly openHttp: OpenPort
  readonly root: RootSide
  readonly tools: readonly Tool[]
  /** Views of the workspace and the tools of an agent in one; absent: no sub-agents. */
  readonly agents?: Pick<AgentsParts, 'views' | 'toolsFor'>
  /** Extensions that a task can bring; none opens before there is a task. Absent: none. */
  readonly extensions?: readonly OpenExtension[]
  listWorkspace(signal: AbortSignal): Promise<string>
  /** Reads the workspace's AGENTS.md; absent, or undefined: there is none. */
  readGuidance?(): Promise<string | undefined>
  /** Opens the skills of a task; absent: none. */
  openSkills?: LoopParts['openSkills']
  /** How earlier agent processes of this boot ended. */
  describeExits(): Pick<AgentDescription, 'restarts' | 'lastExit'>
  /** Base URL of the model. Default `http://gateway/v1`: the host's gateway on the stream port. */
  readonly modelBaseUrl?: string
  /** Locations of the workspace and its base; default: the guest's mount points. */
  readonly collect?: Pick<CollectOptions, 'merged' | 'base' | 'upper'>
}

export interface Daemon {
  readonly link: HostLink
  readonly logger: Logger
  /** Ends the link and the loop; resolves when the loop has ended. */
  close(): Promise<void>
}

/** Starts serving; returns immediately. */
export function startDaemon(options: DaemonOptions): Daemon {
  const inbox = new TaskInbox()
  const ending = new AbortController()
  const logger = createLogger((entry) => link.log(entry))
  const registry = createRegistry(options.tools, { logger })
  const link: HostLink = serveHost({
    openRpc: options.openRpc,
    openHttp: options.openHttp,
    processId: randomBytes(16).toString('hex'),
    describe: () => ({ tools: [...registry.names], ...options.describeExits() }),
    handlers: createHandlers(options, inbox, registry, () => link),
  })
  const { agents, extensions = [] } = options
  const baseUrl = options.modelBaseUrl ?? 'http://gateway/v1'
  const loop = runAgentLoop(
    {
      inbox,
      host: link,
      planner: makePlan,
      executor: executePlan,
      registry,
      ...(agents === undefined
        ? {}
        : {
            agentsFor: (run, reportFor, extensionTools) =>
              createAgents(run, { ...agents, reportFor, extensionTools }),
          }),
      extensions,
      modelFor: ({ model }) => openModel(model, baseUrl, link),
      listWorkspace: (signal) => options.listWorkspace(signal),
      readGuidance: () => options.readGuidance?.() ?? Promise.resolve(undefined),
      ...(options.openSkills === undefined ? {} : { openSkills: options.openSkills }),
      logger,
    },
    ending.signal,
  )
  return {
    link,
    logger,
    close: async () => {
      if (inbox.currentRunId !== undefined) inbox.cancel(inbox.currentRunId, 'the agent is ending')
      ending.abort()
      link.close()
      await loop
    },
  }
}

/** Loads the client with the first request: an idle agent does not need it. */
function openModel(model: string, baseUrl: string, link: HostLink): Model {
  let loaded: Promise<Model> | undefined
  const load = async (): Promise<Model> => {
    const { createModel } = await import('#runtime/llm/model.ts')
    return createModel({ model, baseUrl, sendRequest: (url, options) => link.http.post(url, options) })
  }
  return async (request, hooks) => {
    loaded ??= load()
    return (await loaded)(request, hooks)
  }
}

function createHandlers(
  options: DaemonOptions,
  inbox: TaskInbox,
  registry: Registry,
  link: () => HostLink,
): AgentHandlers {
  return {
    'workspace/open': async ({ readOnly }) => toAnswer(await options.root.mountWorkspace(readOnly === true)),
    'workspace/reset': async ({ keepHome }) => toAnswer(await options.root.resetWorkspace(keepHome)),
    'workspace/collect': async ({ runId }, { signal }) => {
      const sent = await sendChanges(runId, link().http, { ...options.collect, signal })
      return sent.ok ? sent : failed(sent.error.message)
    },
    'task/submit': ({ task }) =>
      Promise.resolve(submit(task, inbox, (options.extensions ?? []).length > 0 ? null : registry)),
    'shell/open': ({ shellId, ...request }) =>
      carry(link().http, `/shell/${shellId}`, () => options.root.openShell(request)),
    'forward/open': ({ forwardId, port }) =>
      carry(link().http, `/forward/${forwardId}`, () => connectToPort(port)),
    'task/cancel': ({ runId, reason }) => Promise.resolve(known(runId, inbox.cancel(runId, reason))),
    'task/steer': ({ runId, messageId, text }) => Promise.resolve(steer(inbox, runId, { messageId, text })),
    'task/pause': ({ runId, paused }) => Promise.resolve(known(runId, inbox.pause(runId, paused))),
    'task/hold': ({ runId, waiting }) => Promise.resolve(known(runId, inbox.hold(runId, waiting))),
  }
}

function known(runId: string, isKnown: boolean): Result<Record<string, never>, HandlerFailure> {
  if (isKnown) return { ok: true, value: {} }
  return { ok: false, error: { code: 'notFound', message: `no run ${runId} was submitted` } }
}

function steer(
  inbox: TaskInbox,
  runId: string,
  message: SteerMessage,
): Result<Record<string, never>, HandlerFailure> {
  const taken = inbox.steer(runId, message)
  if (taken === 'busy') {
    const text = 'too many messages wait to be seen by the agent; send the next one when it has answered'
    return { ok: false, error: { code: 'busy', message: text } }
  }
  if (taken === 'over') return { ok: false, error: { code: 'notFound', message: `run ${runId} is over` } }
  return known(runId, taken === 'taken')
}

/** @param registry all known tools; null: the run's extensions may add tools, so the loop checks the names later */
function submit(
  task: Task,
  inbox: TaskInbox,
  registry: Registry | null,
): Result<Record<string, never>, HandlerFailure> {
  for (const wanted of [task.tools ?? [], task.askTools]) {
    const known = registry?.choose(wanted)
    if (known?.ok === false)
      return { ok: false, error: { code: 'invalidParams', message: known.error.message } }
  }
  if (inbox.submit(task) !== 'busy') return { ok: true, value: {} }
  return {
    ok: false,
    error: { code: 'busy', message: `the agent is busy with ${inbox.currentRunId ?? 'another run'}` },
  }
}

function toAnswer(result: Result<unknown, RootFailure>): Result<Record<string, never>, HandlerFailure> {
  return result.ok ? { ok: true, value: {} } : failed(result.error.message)
}

function failed(message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code: 'failed', message: message.slice(0, 2_000) } }
}
