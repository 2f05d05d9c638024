/**
 * Main loop of the agent: accepts a task, plans it, reports the plan, executes it and completes it, then waits for
 * the next. Completes every task exactly once, also after a cancel and after a fault in planner or executor.
 */
import type { Logger } from 'pino'
import type { Model } from '#runtime/llm/model.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { OpenExtension } from './extensions/extension.ts'
import { type OpenedExtensions, openExtensions } from './extensions/extension-set.ts'
import { interruption } from './plan/ending.ts'
import { planAndExecute } from './plan/plan-and-execute.ts'
import { createExplorer } from './plan/plan-only.ts'
import type { PlanState } from './plan/plan-state.ts'
import type { Planner } from './plan/planner.ts'
import { RunBudget } from './run/budget.ts'
import { openHooks } from './run/hooks.ts'
import { followPauses, holdModel } from './run/pause.ts'
import { type AgentRun, CallIds, type Report, type RunEnding, RunHost, type RunLink } from './run/run.ts'
import type { SteerMessage } from './run/steering.ts'
import type { ReceivedTask, TaskInbox } from './run/task-inbox.ts'
import { OutputStore } from './run/tool-outputs.ts'
import type { RunAgents } from './subagents/create-agents.ts'
import { truncate, truncateJson } from './text/truncate.ts'
import type { Registry } from './tool-calls/registry.ts'
import type { SkillCatalog } from './tool-calls/tool.ts'
import { loadSkillName } from './tools/load-skill.ts'
import { memoryToolNames } from './tools/memory.ts'
import { isAgentTool } from './tools/run-agents.ts'
import { defaultRoot } from './workspace/file-access.ts'

export interface LoopParts {
  readonly inbox: TaskInbox
  readonly host: RunLink
  readonly planner: Planner
  /** Planner for runs that only plan; default: the one that explores /mnt/workspace. */
  readonly explorer?: Planner
  readonly executor: (book: PlanState, run: AgentRun) => Promise<RunEnding>
  readonly registry: Registry
  /** Extensions that a task can use; absent: none. */
  readonly extensions?: readonly OpenExtension[]
  /** Creates sub-agents for a run, each reporting under its own path; absent: none. */
  agentsFor?(
    run: AgentRun,
    reportFor: (agentPath: string) => Report,
    extensionTools: OpenedExtensions['toolsFor'],
  ): RunAgents
  modelFor(task: Task): Model
  /** Lists the workspace for the prompts. */
  listWorkspace(signal: AbortSignal): Promise<string>
  /** Reads the workspace's AGENTS.md; absent, or undefined: there is none. */
  readGuidance?(): Promise<string | undefined>
  /** Opens the skills of a task; absent: none. */
  openSkills?(task: Task): Promise<SkillCatalog>
  readonly logger: Logger
  /** How long planner and executor may take to end after a cancel before they are abandoned. Default 5 s. */
  readonly cancelGraceMs?: number
}

/** Serves tasks until `signal` is aborted. */
export async function runAgentLoop(parts: LoopParts, signal: AbortSignal): Promise<void> {
  for (;;) {
    const received = await parts.inbox.receiveTask(signal)
    if (received === null) return
    await serveTask(received, parts)
  }
}

async function serveTask(received: ReceivedTask, parts: LoopParts): Promise<void> {
  const { task } = received
  const logger = parts.logger.child({ runId: task.runId })
  const budget = new RunBudget(task.limits)
  received.onHold((waiting) => budget.hold(waiting))
  const host = new RunHost(task.runId, parts.host, budget)
  const report = host.reportOf('root')
  const pauses = followPauses(received.steering, budget, report, logger)
  const signal = AbortSignal.any([received.signal, budget.signal])
  logger.info({ model: task.model }, 'task received')
  const ending = await settle(
    runTask({ received, parts, budget, host, report, signal, logger }),
    { signal, budget },
    parts.cancelGraceMs ?? 5_000,
    logger,
  )
  budget.stop()
  await pauses.end()
  await noteUnseen(received.steering.close(), host)
  host.close()
  logger.info({ outcome: ending.outcome, reason: ending.reason, usage: budget.usage }, 'task ended')
  try {
    const delivered = await parts.host.complete({
      runId: task.runId,
      outcome: ending.outcome,
      reason: ending.reason,
      message: truncate(ending.message, limits.textMaxChars),
      // A completion that does not fit a frame would never arrive.
      summary: truncateJson(ending.summary, limits.documentMaxChars, limits.frameMaxBytes / 2),
      usage: budget.usage,
    })
    if (!delivered.ok) throw new Error(`${delivered.error.message} (${delivered.error.code})`)
  } catch (error) {
    logger.error({ err: error }, 'the completion was not delivered')
  }
  parts.inbox.finish(task.runId)
}

interface TaskContext {
  readonly received: ReceivedTask
  readonly parts: LoopParts
  readonly budget: RunBudget
  readonly host: RunHost
  /** The root agent's. */
  readonly report: Report
  readonly signal: AbortSignal
  readonly logger: Logger
}

/** Opens what the task brings, plans and executes the task, and closes what was opened. */
async function runTask(context: TaskContext): Promise<RunEnding> {
  const { received, parts, budget, host, report, signal, logger } = context
  const { task, steering } = received
  await using opened = new AsyncDisposableStack()
  const guidance = signal.aborted ? undefined : await parts.readGuidance?.()
  const skills = await openSkills(context)
  const ending = new AbortController()
  const extensions = opened.adopt(
    await openExtensions(parts.extensions ?? [], {
      task,
      host,
      taken: new Set(parts.registry.names),
      workspace: { agentPath: 'root', root: defaultRoot },
      signal: AbortSignal.any([signal, ending.signal]),
      logger,
    }),
    (all) => all.close(),
  )
  opened.defer(() => ending.abort('the run is over'))
  const hasAgents = parts.agentsFor !== undefined && task.limits.maxAgents > 0 && task.mode !== 'plan'
  const tools = chooseTools(parts.registry.with(extensions.tools), task, (name) => {
    if (isAgentTool(name)) return hasAgents
    if (memoryToolNames.includes(name)) return task.memory !== undefined
    return name !== loadSkillName || (skills?.list.length ?? 0) > 0
  })
  if (!tools.ok)
    return { outcome: 'failed', reason: 'environment', message: tools.error.message, summary: '' }
  const hooks = openHooks(task.hooks, host.runHook)
  const run: AgentRun = {
    task: { ...task, askTools: tools.value.askTools },
    agentPath: 'root',
    model: holdModel(parts.modelFor(task), steering),
    registry: tools.value.registry,
    workspaceListing: signal.aborted ? '' : await parts.listWorkspace(signal),
    ...(guidance === undefined ? {} : { guidance }),
    ...(skills === undefined ? {} : { skills }),
    report,
    requestApproval: host.requestApproval,
    ...(hooks === undefined ? {} : { hooks }),
    budget,
    steering,
    signal,
    callIds: new CallIds(),
    outputs: new OutputStore(),
    logger,
  }
  if (signal.aborted) return { ...interruption(run, 'nothing was planned'), summary: '' }
  const agents = hasAgents ? parts.agentsFor?.(run, host.reportOf, extensions.toolsFor) : undefined
  opened.defer(() => agents?.close())
  const withAgents = agents === undefined ? run : { ...run, agents }
  return await planAndExecute(withAgents, { ...parts, explorer: parts.explorer ?? createExplorer() })
}

/**
 * Selects from all open tools those that the task allows, and resolves its patterns for the tools that require
 * approval. An unknown name is an error.
 */
function chooseTools(
  all: Registry,
  task: Task,
  isOffered: (name: string) => boolean,
): Result<{ registry: Registry; askTools: string[] }> {
  const allowed = all.choose(task.tools ?? ['*'])
  if (!allowed.ok) return allowed
  const registry = all.select(allowed.value.filter(isOffered))
  if (!registry.ok) return registry
  const asked = all.choose(task.askTools)
  if (!asked.ok) return asked
  return { ok: true, value: { registry: registry.value, askTools: [...asked.value] } }
}

/** Opens the run's skills; reports problems of the workspace's skills as a note. */
async function openSkills({ received, parts, host, signal }: TaskContext): Promise<SkillCatalog | undefined> {
  const skills = signal.aborted ? undefined : await parts.openSkills?.(received.task)
  if (skills !== undefined && skills.problems.length > 0) {
    await host.note('info', `skills of the workspace: ${skills.problems.join('; ')}`)
  }
  return skills
}

/** Reports messages that arrived after the agent's last answer, so that none is lost silently. */
async function noteUnseen(messages: readonly SteerMessage[], host: RunHost): Promise<void> {
  for (const { text } of messages)
    await host.note('warn', `the run ended before the agent saw this message: ${text}`)
}

/** The work's ending. Replaced when the work throws, or does not end within the grace period after its signal. */
async function settle(
  work: Promise<RunEnding>,
  run: Pick<AgentRun, 'signal' | 'budget'>,
  graceMs: number,
  logger: Logger,
): Promise<RunEnding> {
  let timer: NodeJS.Timeout | undefined
  const leftBehind = Promise.withResolvers<RunEnding>()
  const onAbort = (): void => {
    timer = setTimeout(() => {
      logger.error('planner or executor did not end in time')
      leftBehind.resolve({ ...interruption(run, 'work that did not stop was abandoned'), summary: '' })
    }, graceMs)
  }
  if (run.signal.aborted) onAbort()
  else run.signal.addEventListener('abort', onAbort, { once: true })
  const guarded = work.catch((error: unknown): RunEnding => {
    logger.error({ err: error }, 'planner or executor threw')
    if (run.signal.aborted) return { ...interruption(run, 'the work failed'), summary: '' }
    const message = 'internal error of the agent; its log has the details'
    return { outcome: 'failed', reason: 'internal', message, summary: '' }
  })
  const ending = await Promise.race([guarded, leftBehind.promise])
  run.signal.removeEventListener('abort', onAbort)
  clearTimeout(timer)
  return ending
}
