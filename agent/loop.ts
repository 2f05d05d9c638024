/**
 * Main loop of the agent: accepts a task, plans it, reports the plan, executes it and completes it, then waits for
 * the next. Completes every task exactly once, also after a cancel and after a fault in planner or executor.
 */
import type { Logger } from 'pino'
import type { Model } from '#runtime/llm/model.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { AgentEvent, Delta } from '#specs/protocol/event.ts'
import type { HostToolCall, HostToolResult } from '#specs/protocol/extension.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Completion, Task } from '#specs/protocol/task.ts'
import type { ExtensionHost, OpenExtension } from './extensions/extension.ts'
import { type OpenedExtensions, openExtensions } from './extensions/extension-set.ts'
import { interruption } from './plan/ending.ts'
import { planAndExecute } from './plan/plan-and-execute.ts'
import { createExplorer } from './plan/plan-only.ts'
import type { PlanState } from './plan/plan-state.ts'
import type { Planner } from './plan/planner.ts'
import { RunBudget } from './run/budget.ts'
import { openHooks } from './run/hooks.ts'
import { followPauses, holdModel } from './run/pause.ts'
import { type AgentRun, CallIds, type Report, type RunEnding } from './run/run.ts'
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

/** The host as the loop uses it. Only methods with an answer reject, and only when their signal aborts. */
export interface LoopHost {
  emitEvent(runId: string, agentPath: string, event: AgentEvent): Promise<void>
  emitDelta(runId: string, agentPath: string, delta: Delta): void
  requestApproval(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision>
  runHook(request: HookRequest, signal: AbortSignal): Promise<HookDecision>
  callTool(call: HostToolCall, signal: AbortSignal): Promise<HostToolResult>
  /** Resolves when the host has the completion. */
  complete(completion: Completion): Promise<void>
}

export interface LoopParts {
  readonly inbox: TaskInbox
  readonly host: LoopHost
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
  const report = openReport(task.runId, parts.host)
  const pauses = followPauses(received.steering, budget, report, logger)
  const signal = AbortSignal.any([received.signal, budget.signal])
  logger.info({ model: task.model }, 'task received')
  const ending = await settle(
    runTask({ received, parts, budget, report, signal, logger }),
    { signal, budget },
    parts.cancelGraceMs ?? 5_000,
    logger,
  )
  budget.stop()
  await pauses.end()
  await noteUnseen(received.steering.close(), report)
  report.close()
  logger.info({ outcome: ending.outcome, reason: ending.reason, usage: budget.usage }, 'task ended')
  try {
    await parts.host.complete({
      runId: task.runId,
      outcome: ending.outcome,
      reason: ending.reason,
      message: truncate(ending.message, limits.textMaxChars),
      // A completion that does not fit a frame would never arrive.
      summary: truncateJson(ending.summary, limits.documentMaxChars, limits.frameMaxBytes / 2),
      usage: budget.usage,
    })
  } catch (error) {
    logger.error({ err: error }, 'the completion was not delivered')
  }
  parts.inbox.finish(task.runId)
}

interface TaskContext {
  readonly received: ReceivedTask
  readonly parts: LoopParts
  readonly budget: RunBudget
  readonly report: RunReport
  readonly signal: AbortSignal
  readonly logger: Logger
}

/** Opens what the task brings, runs the task, and closes it again. */
async function runTask(context: TaskContext): Promise<RunEnding> {
  const { received, parts, signal } = context
  const { task } = received
  const guidance = signal.aborted ? undefined : await parts.readGuidance?.()
  const skills = await openSkills(context)
  const ending = new AbortController()
  const extensions = await openExtensions(parts.extensions ?? [], {
    task,
    host: toExtensionHost(context),
    taken: new Set(parts.registry.names),
    workspace: { agentPath: 'root', root: defaultRoot },
    signal: AbortSignal.any([signal, ending.signal]),
    logger: context.logger,
  })
  try {
    return await runWithExtensions(extensions, { guidance, skills }, context)
  } finally {
    ending.abort('the run is over')
    await extensions.close()
  }
}

/** Guidance and skills found for the task. */
interface WorkspaceContext {
  readonly guidance: string | undefined
  readonly skills: SkillCatalog | undefined
}

async function runWithExtensions(
  extensions: OpenedExtensions,
  { guidance, skills }: WorkspaceContext,
  { received, parts, budget, report, signal, logger }: TaskContext,
): Promise<RunEnding> {
  const { task } = received
  const hasAgents = parts.agentsFor !== undefined && task.limits.maxAgents > 0 && task.mode !== 'plan'
  const all = parts.registry.with(extensions.tools)
  const registry = selectTools(all, task, (name) => {
    if (isAgentTool(name)) return hasAgents
    if (memoryToolNames.includes(name)) return task.memory !== undefined
    return name !== loadSkillName || (skills?.list.length ?? 0) > 0
  })
  const asked = all.choose(task.askTools)
  const refused = registry.ok ? asked : registry
  if (!registry.ok || !asked.ok) {
    const message = refused.ok ? '' : refused.error.message
    return { outcome: 'failed', reason: 'environment', message, summary: '' }
  }
  const hooks = openHooks(task.hooks, (request, until) =>
    parts.host.runHook({ runId: task.runId, ...request }, until),
  )
  const run: AgentRun = {
    // From here on by name, without patterns.
    task: { ...task, askTools: [...asked.value] },
    agentPath: 'root',
    model: holdModel(parts.modelFor(task), received.steering),
    registry: registry.value,
    workspaceListing: signal.aborted ? '' : await parts.listWorkspace(signal),
    ...(guidance === undefined ? {} : { guidance }),
    ...(skills === undefined ? {} : { skills }),
    report,
    requestApproval: (request, until) => parts.host.requestApproval({ runId: task.runId, ...request }, until),
    ...(hooks === undefined ? {} : { hooks }),
    budget,
    steering: received.steering,
    signal,
    callIds: new CallIds(),
    outputs: new OutputStore(),
    logger,
  }
  if (signal.aborted) return { ...interruption(run, 'nothing was planned'), summary: '' }
  const agents = hasAgents ? parts.agentsFor?.(run, report.of, extensions.toolsFor) : undefined
  try {
    const withAgents = agents === undefined ? run : { ...run, agents }
    return await planAndExecute(withAgents, { ...parts, explorer: parts.explorer ?? createExplorer() })
  } finally {
    await agents?.close()
  }
}

/** Selects the tools that the task allows from all open ones; an unknown name is an error. */
function selectTools(all: Registry, task: Task, isOffered: (name: string) => boolean): Result<Registry> {
  const chosen = all.choose(task.tools ?? ['*'])
  return chosen.ok ? all.select(chosen.value.filter(isOffered)) : chosen
}

/** Opens the run's skills; reports problems of the workspace's skills as a note. */
async function openSkills({
  received,
  parts,
  report,
  signal,
}: TaskContext): Promise<SkillCatalog | undefined> {
  const skills = signal.aborted ? undefined : await parts.openSkills?.(received.task)
  if (skills !== undefined && skills.problems.length > 0) {
    const text = `skills of the workspace: ${skills.problems.join('; ')}`
    await report.event({ type: 'note', level: 'info', text: truncate(text, limits.textMaxChars) })
  }
  return skills
}

function toExtensionHost({ received, parts, report, budget }: TaskContext): ExtensionHost {
  const { runId } = received.task
  const { host } = parts
  return {
    requestApproval: (request, signal) =>
      budget.whileWaiting(host.requestApproval({ runId, ...request }, signal)),
    runHook: (request, signal) => host.runHook({ runId, ...request }, signal),
    callTool: (call, signal) => host.callTool({ runId, ...call }, signal),
    note: (level, text) => report.event({ type: 'note', level, text: truncate(text, limits.textMaxChars) }),
  }
}

/** Reports messages that arrived after the agent's last answer, so that none is lost silently. */
async function noteUnseen(messages: readonly SteerMessage[], report: Report): Promise<void> {
  for (const { text } of messages) {
    const note = truncate(`the run ended before the agent saw this message: ${text}`, limits.textMaxChars)
    await report.event({ type: 'note', level: 'warn', text: note })
  }
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
      leftBehind.resolve({ ...interruption(run, 'work that did not stop was left behind'), summary: '' })
    }, graceMs)
  }
  if (run.signal.aborted) onAbort()
  else run.signal.addEventListener('abort', onAbort, { once: true })
  const guarded = work.catch((error: unknown): RunEnding => {
    logger.error({ err: error }, 'planner or executor threw')
    if (run.signal.aborted) return { ...interruption(run, 'the work broke off'), summary: '' }
    const message = 'the agent failed inside; its log has the details'
    return { outcome: 'failed', reason: 'internal', message, summary: '' }
  })
  const ending = await Promise.race([guarded, leftBehind.promise])
  run.signal.removeEventListener('abort', onAbort)
  clearTimeout(timer)
  return ending
}

/** Creates a report that is silent once the task is completed: abandoned work can report nothing. */
function openReport(runId: string, host: LoopHost): RunReport {
  let open = true
  const of = (agentPath: string): Report => ({
    event: (event) => (open ? host.emitEvent(runId, agentPath, event) : Promise.resolve()),
    delta: (delta) => {
      if (open) host.emitDelta(runId, agentPath, delta)
    },
  })
  return {
    ...of('root'),
    of,
    close: () => {
      open = false
    },
  }
}

/** The root agent's report. */
interface RunReport extends Report {
  /** The report of a sub-agent. */
  of(agentPath: string): Report
  close(): void
}
