/**
 * The agent as a service on its two ports: connects the host's requests to the tasks, the workspace and the root
 * helper. Contains no policy.
 */
import { randomBytes } from 'node:crypto'
import type { Duplex } from 'node:stream'
import type { Logger } from 'pino'
import type { Result } from '#specs/protocol/error.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import type { OpenExtension } from './extensions/extension.ts'
import { type AgentDescription, type AgentHandlers, type HostLink, serveHost } from './link/host-link.ts'
import type { PostOptions } from './link/http.ts'
import { createLogger } from './link/logger.ts'
import { carry, connectToPort } from './link/pipe-connection.ts'
import type { OpenPort } from './link/port.ts'
import type { ShellRequest } from './link/root-helper.ts'
import type { RunParts } from './run-task.ts'
import { type AgentsParts, createAgents } from './subagents/create-agents.ts'
import { takeChanges } from './subagents/own-vm.ts'
import { TaskServer } from './tasks.ts'
import { createRegistry } from './tool-calls/registry.ts'
import type { Tool } from './tool-calls/tool.ts'
import type { CollectOptions } from './workspace/collect.ts'
import { Looker } from './workspace/look.ts'
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
  readonly agents?: Pick<AgentsParts, 'views' | 'toolsFor' | 'root' | 'owner'>
  /** Extensions that a task can bring; none opens before there is a task. Absent: none. */
  readonly extensions?: readonly OpenExtension[]
  listWorkspace(signal: AbortSignal): Promise<string>
  /** Reads the workspace's AGENTS.md; absent, or undefined: there is none. */
  readGuidance?(): Promise<string | undefined>
  /** Reads an image of the workspace. */
  readImage?: RunParts['readImage']
  /** Opens the skills of a task; absent: none. */
  openSkills?: RunParts['openSkills']
  /** How earlier agent processes of this boot ended. */
  describeExits(): Pick<AgentDescription, 'restarts' | 'lastExit'>
  /** Base URL of the model. Default `http://gateway/v1`: the host's gateway on the stream port. */
  readonly modelBaseUrl?: string
  /** File of the run's log; absent: none is kept. */
  readonly logFile?: string
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
  const logger = createLogger((entry) => link.log(entry))
  const registry = createRegistry(options.tools, { logger })
  const link: HostLink = serveHost({
    openRpc: options.openRpc,
    openHttp: options.openHttp,
    processId: randomBytes(16).toString('hex'),
    describe: () => ({ tools: [...registry.names], ...options.describeExits() }),
    handlers: createHandlers(options, () => ({ link, tasks })),
    onQuiet: (quiet) => tasks.setHostQuiet(quiet),
  })
  const { agents, extensions = [], openSkills } = options
  const baseUrl = options.modelBaseUrl ?? 'http://gateway/v1'
  const tasks = new TaskServer({
    host: link,
    registry,
    ...(agents === undefined
      ? {}
      : {
          agentsFor: (run, reportFor, extensionTools) =>
            createAgents(run, {
              ...agents,
              reportFor,
              extensionTools,
              vms: {
                run: (request, signal) => link.runAgent({ runId: run.task.runId, ...request }, signal),
                takeChanges: (agentPath, view, how) => takeChanges(agentPath, view, link.http, how),
              },
              ...(run.task.subAgent === undefined
                ? {}
                : {
                    sendView: ({ path: merged, start: base, upper }, signal) =>
                      sendChanges(run.task.runId, link.http, { merged, base, upper, signal }),
                  }),
            }),
        }),
    extensions,
    // An idle agent does not need the client.
    modelFor: async ({ model }) => {
      const { createModel } = await import('#runtime/llm/model.ts')
      // A host that stands still answers later; the run's own limits end the wait.
      const wait = { sessionTimeoutMs: Number.POSITIVE_INFINITY }
      const sendRequest = (url: string, request: PostOptions) => link.http.post(url, { ...request, ...wait })
      return createModel({ model, baseUrl, sendRequest })
    },
    listWorkspace: (signal) => options.listWorkspace(signal),
    readGuidance: () => options.readGuidance?.() ?? Promise.resolve(undefined),
    ...(options.readImage === undefined ? {} : { readImage: options.readImage }),
    ...(openSkills === undefined ? {} : { openSkills }),
    ...(options.logFile === undefined ? {} : { log: { file: options.logFile } }),
    logger,
  })
  return {
    link,
    logger,
    close: async () => {
      const ended = tasks.close()
      link.close()
      await ended
    },
  }
}

/** @param parts called per request, as the link exists only after its handlers */
function createHandlers(
  { root, collect }: DaemonOptions,
  parts: () => { readonly link: HostLink; readonly tasks: TaskServer },
): AgentHandlers {
  const looker = new Looker(collect)
  return {
    'workspace/open': async ({ readOnly }) => toAnswer(await root.mountWorkspace(readOnly === true)),
    'workspace/reset': async ({ keepHome }) => {
      await looker.forget()
      return toAnswer(await root.resetWorkspace(keepHome))
    },
    'workspace/collect': async ({ runId }, { signal }) => {
      const sent = await sendChanges(runId, parts().link.http, { ...collect, signal })
      return sent.ok ? sent : failed(sent.error.message)
    },
    'workspace/look': async () => {
      const looked = await looker.look()
      return looked.ok ? looked : failed(looked.error.message)
    },
    'shell/open': ({ shellId, ...request }) =>
      carry(parts().link.http, `/shell/${shellId}`, () => root.openShell(request)),
    'forward/open': ({ forwardId, port }) =>
      carry(parts().link.http, `/forward/${forwardId}`, () => connectToPort(port)),
    'task/submit': async ({ task }) => parts().tasks.submit(task),
    'task/cancel': async ({ runId, reason }) => parts().tasks.cancel(runId, reason),
    'task/cancelAgent': async ({ runId, agentPath, reason }) =>
      parts().tasks.cancelAgent(runId, agentPath, reason),
    'task/steer': async ({ runId, ...message }) => parts().tasks.steer(runId, message),
    'task/pause': async ({ runId, paused }) => parts().tasks.pause(runId, paused),
    'task/hold': async ({ runId, waiting }) => parts().tasks.hold(runId, waiting),
    'task/checkpoint': ({ runId }) => parts().tasks.makeCheckpoint(runId),
  }
}

function toAnswer(result: Result<unknown, RootFailure>): Result<Record<string, never>, HandlerFailure> {
  return result.ok ? { ok: true, value: {} } : failed(result.error.message)
}

function failed(message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code: 'failed', message: message.slice(0, 2_000) } }
}
