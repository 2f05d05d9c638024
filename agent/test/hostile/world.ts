/**
 * A task carried out by all that the agent is made of, in one process: planner, executor, registry, file tools over
 * a real folder, and the model's client over real HTTP. A run that does not end by its deadline is a failure that says where
 * it stood; every event is checked as the host would check it.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { z } from 'zod'
import { createModel, type ModelOptions } from '#runtime/llm/model.ts'
import { AgentEvent, Delta } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Completion, type Task } from '#specs/protocol/task.ts'
import { AgentPath } from '#specs/protocol/text.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import type { OpenExtension } from '../../extensions/extension.ts'
import { createExplorer } from '../../plan/plan-only.ts'
import type { RunLink } from '../../run/run.ts'
import type { RunParts } from '../../run-task.ts'
import { createAgents } from '../../subagents/create-agents.ts'
import type { AgentView } from '../../subagents/views.ts'
import { TaskServer, type TaskServerParts } from '../../tasks.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import type { Tool } from '../../tool-calls/tool.ts'
import { createFileTools } from '../../tools/file-tools.ts'
import { createOutputTool } from '../../tools/read-output.ts'
import { createRevisePlanTool } from '../../tools/revise-plan.ts'
import { createAgentTools } from '../../tools/run-agents.ts'
import { describeWorkspace, readGuidance } from '../../workspace/listing.ts'
import { folderViews } from '../support/agents.ts'
import { makeTask, plainHost, silentLogger } from '../support/run.ts'
import { planReply } from '../support/scripted-model.ts'
import { runInFolder } from '../support/tools.ts'
import { snapshot } from '../support/trees.ts'

export interface WorldOptions {
  readonly task?: Partial<z.input<typeof Task>>
  /** Files of the workspace, by path. */
  readonly files?: Readonly<Record<string, string | Uint8Array>>
  /** Where the run's read-only folders are. Default: it has none. */
  readonly folders?: string
  /** Beside the file tools; given the workspace's folder. */
  readonly tools?: readonly Tool[] | ((folder: string) => readonly Tool[])
  readonly extensions?: readonly OpenExtension[]
  /** Skills by the agent's own way; absent: there are none. */
  readonly openSkills?: RunParts['openSkills']
  /** What of the host is not as usual: it allows everything, and has neither hooks nor tools. */
  readonly host?: Partial<RunLink>
  readonly model?: Partial<ModelOptions>
  /** Whether the run may start sub-agents; their views are copies of the folder. */
  readonly agents?: boolean
  /** Called with every event, with the server of tasks at hand. */
  onEvent?(event: AgentEvent, tasks: TaskServer, agentPath: string): void
  /** Default 15 s. */
  readonly deadlineMs?: number
}

export interface Ending {
  readonly completion: Completion
  readonly events: readonly AgentEvent[]
  /** Whose each event is, at the same place. */
  readonly agentPaths: readonly string[]
  readonly asked: readonly Asked[]
  /** Views of sub-agents that were left open. */
  readonly openViews: number
  /** Whether the workspace is not what it was. */
  readonly isChanged: boolean
  /** The workspace as it is at the end. */
  readonly files: ReturnType<typeof snapshot>
}

/** Events of a type. */
export function eventsOf<T extends AgentEvent['type']>(
  { events }: Pick<Ending, 'events'>,
  type: T,
): Extract<AgentEvent, { type: T }>[] {
  return events.filter((event): event is Extract<AgentEvent, { type: T }> => event.type === type)
}

/** A plan of one step named `work`, for scripts that are about the step. */
export const onePlan = planReply({
  goal: 'g',
  steps: [{ id: 'work', title: 'Work', instructions: 'work', needs: [], writes: ['*'] }],
})

export const answer = (text: string): ServerReply => reply({ text })
export const call = (name: string, args: unknown): ServerReply =>
  reply({ calls: [{ name, arguments: args }] })

/** Plans {@link onePlan}, then gives `replies` in turn; the last one repeats. */
export function working(...replies: readonly ServerReply[]): Script {
  return (_asked, index) =>
    index === 0 ? onePlan : (replies[Math.min(index, replies.length) - 1] ?? onePlan)
}

const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

/** Carries a task out to its end. @throws when it does not end by the deadline, or an event is not the protocol's. */
export async function runTask(script: Script, options: WorldOptions = {}): Promise<Ending> {
  const root = mkdtempSync(path.join(tmpdir(), 'caisson-hostile-'))
  await using model = await startModelServer(script)
  const heard = new Ears(() => tasks, options)
  const place = mkdtempSync(path.join(tmpdir(), 'caisson-views-'))
  const views = folderViews(root, place)
  const given = options.folders === undefined ? {} : { folders: options.folders }
  const toolsOver = (folder: string): Tool[] => [
    ...createFileTools(runInFolder(folder), { root: folder, knownAs: root, owner, ...given }),
    createOutputTool(),
    ...(typeof options.tools === 'function' ? options.tools(folder) : (options.tools ?? [])),
  ]
  const tools = [
    ...toolsOver(root),
    createRevisePlanTool(),
    ...(options.agents === true ? createAgentTools() : []),
  ]
  for (const [name, content] of Object.entries(options.files ?? {})) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true })
    writeFileSync(path.join(root, name), content)
  }
  const before = JSON.stringify(snapshot(root))
  const tasks = new TaskServer({
    host: heard.host,
    explorer: createExplorer(root),
    ...(options.agents === true
      ? {
          agentsFor: (run, reportFor, extensionTools) => {
            const over = { views, toolsFor: (view: AgentView) => toolsOver(view.path), root, owner }
            return createAgents(run, { ...over, reportFor, extensionTools })
          },
        }
      : {}),
    extensions: options.extensions ?? [],
    ...(options.openSkills === undefined ? {} : { openSkills: options.openSkills }),
    registry: createRegistry(tools, { logger: silentLogger, cancelGraceMs: 100 }),
    modelFor: () => openModel(model.baseUrl, options.model),
    listWorkspace: (signal) => describeWorkspace(tools, signal),
    readGuidance: () => readGuidance({ root }),
    logger: silentLogger,
    cancelGraceMs: 200,
  })
  try {
    tasks.submit(makeTask(options.task))
    const completion = await heard.ended(options.deadlineMs ?? 50_000, model.asked)
    const { events, agentPaths } = heard
    const files = snapshot(root)
    const isChanged = JSON.stringify(files) !== before
    return {
      completion,
      events,
      agentPaths,
      asked: model.asked,
      openViews: views.open.size,
      isChanged,
      files,
    }
  } finally {
    await tasks.close()
    for (const folder of [root, place]) rmSync(folder, { recursive: true, force: true })
  }
}

function openModel(baseUrl: string, options: Partial<ModelOptions> = {}): ReturnType<typeof createModel> {
  const times = { firstDelayMs: 1, maxDelayMs: 2, idleTimeoutMs: 5_000, firstEventTimeoutMs: 5_000 }
  return createModel({ model: 'm', baseUrl, ...times, ...options })
}

/** What the host hears; the first event that it would refuse fails the run's test. */
class Ears {
  readonly events: AgentEvent[] = []
  readonly agentPaths: string[] = []
  readonly host: TaskServerParts['host']
  readonly #completed = Promise.withResolvers<Completion>()
  #completions = 0

  constructor(tasks: () => TaskServer, { onEvent, host }: WorldOptions) {
    this.host = {
      emitEvent: async (_runId, agentPath, event) => {
        this.#checked(() => {
          // Too long for a frame it may be: the outbox shortens it.
          checkDepth(event)
          this.events.push(AgentEvent.parse(event))
          this.agentPaths.push(AgentPath.parse(agentPath))
        })
        onEvent?.(event, tasks(), agentPath)
      },
      emitDelta: (_runId, _agentPath, delta) => this.#checked(() => void Delta.parse(delta)),
      requestApproval: () => Promise.resolve({ ok: true, value: { decision: 'allow' } }),
      ...plainHost,
      ...host,
      complete: async (completion) => {
        this.#checked(() => {
          fitsFrame(completion)
          if (++this.#completions > 1) throw new Error('the run was completed twice')
          this.#completed.resolve(Completion.parse(completion))
        })
        return { ok: true, value: undefined }
      },
    }
  }

  async ended(deadlineMs: number, asked: readonly Asked[]): Promise<Completion> {
    const late = Promise.withResolvers<never>()
    const timer = setTimeout(() => {
      const last = this.events.slice(-5).map((event) => JSON.stringify(event).slice(0, 300))
      late.reject(
        new Error(
          `the run did not end in ${deadlineMs} ms: ${asked.length} requests, ${this.events.length} events, the last of them:\n${last.join('\n')}`,
        ),
      )
    }, deadlineMs)
    try {
      return await Promise.race([this.#completed.promise, late.promise])
    } finally {
      clearTimeout(timer)
    }
  }

  #checked(check: () => void): void {
    try {
      check()
    } catch (error) {
      this.#completed.reject(error)
    }
  }
}

/** A message that does not fit a frame ends the session. */
function fitsFrame(value: unknown): void {
  const bytes = Buffer.byteLength(JSON.stringify(value))
  if (bytes > limits.frameMaxBytes) throw new Error(`a message of ${bytes} bytes does not fit a frame`)
}

/** As does one that nests too deep; params, a list and its entry are around each event. */
function checkDepth(event: AgentEvent): void {
  const depth = depthOf(event)
  if (depth + 4 > limits.jsonMaxDepth) throw new Error(`an event of ${event.type} nests ${depth} deep`)
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0
  return 1 + Math.max(0, ...Object.values(value).map(depthOf))
}
