/**
 * Runs one task from its prompt to its end: opens what it brings, obtains a plan, asks for approval where required,
 * and executes it; or only plans.
 */
import type { Logger } from 'pino'
import type { Model } from '#runtime/llm/model.ts'
import { nameInLine } from '#specs/node/path-text.ts'
import type { Result, RunReason } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { OpenExtension } from './extensions/extension.ts'
import { type OpenedExtensions, openExtensions } from './extensions/extension-set.ts'
import { beginTask } from './plan/begin-task.ts'
import { interruption } from './plan/ending.ts'
import { executePlan } from './plan/executor.ts'
import { boundsOf, findPlanProblems } from './plan/parse-plan.ts'
import { adoptAllowed, askConsent, describePlan } from './plan/plan-approval.ts'
import { createExplorer } from './plan/plan-only.ts'
import { PlanState } from './plan/plan-state.ts'
import { makePlan, type PlanFailure, type Planner } from './plan/planner.ts'
import type { RunBudget } from './run/budget.ts'
import { atEffort } from './run/effort.ts'
import { openHooks } from './run/hooks.ts'
import { loggedModel } from './run/logged-model.ts'
import { openRunModel } from './run/pause.ts'
import {
  type AgentRun,
  CallIds,
  type Report,
  type RunEnding,
  type RunHost,
  type TaskImage,
} from './run/run.ts'
import type { RunLog } from './run/run-log.ts'
import type { Steering } from './run/steering.ts'
import { atModel } from './run/step-model.ts'
import type { SubAgents } from './run/sub-agents.ts'
import { OutputStore } from './run/tool-outputs.ts'
import type { RunAgents } from './subagents/create-agents.ts'
import { runSubAgentTask, withoutFrame } from './subagents/own-vm.ts'
import { truncate } from './text/truncate.ts'
import type { Registry } from './tool-calls/registry.ts'
import type { Picture, SkillCatalog } from './tool-calls/tool.ts'
import { addStepsName } from './tools/add-steps.ts'
import { loadSkillName } from './tools/load-skill.ts'
import { memoryToolNames } from './tools/memory.ts'
import { createRevisePlanTool } from './tools/revise-plan.ts'
import { createAgentTools, isAgentTool } from './tools/run-agents.ts'
import { findWorkflowProblems } from './workflow/workflow-problems.ts'
import { defaultRoot } from './workspace/file-access.ts'

/** What the stages of a run call; absent: the agent's own. */
export interface Stages {
  readonly planner?: Planner
  /** Planner for runs that only plan. */
  readonly explorer?: Planner
  readonly executor?: typeof executePlan
}

export interface RunParts extends Stages {
  readonly registry: Registry
  /** Extensions that a task can use; absent: none. */
  readonly extensions?: readonly OpenExtension[]
  /** Creates sub-agents for a run, each reporting under its own path; absent: none. */
  agentsFor?(
    run: AgentRun,
    reportFor: (agentPath: string) => Report,
    extensionTools: OpenedExtensions['toolsFor'],
  ): RunAgents
  /** Opens the task's model; called with its first request. */
  modelFor(task: Task): Model | Promise<Model>
  /** Lists the workspace for the prompts. */
  listWorkspace(signal: AbortSignal): Promise<string>
  /** Reads the workspace's AGENTS.md; absent, or undefined: there is none. */
  readGuidance?(): Promise<string | undefined>
  /** Reads an image of the workspace; absent: the task's images are not shown. */
  readImage?(path: string): Promise<Result<Omit<Picture, 'name'>, string>>
  /** Opens the skills of a task; absent: none. */
  openSkills?(task: Task): Promise<SkillCatalog>
}

/** One task with its clock, its person's messages, and its access to the host. */
export interface TaskContext {
  readonly task: Task
  readonly steering: Steering
  readonly subAgents: SubAgents
  readonly budget: RunBudget
  readonly host: RunHost
  /** The root agent's. */
  readonly report: Report
  readonly signal: AbortSignal
  /** Aborted when the run is cancelled, whatever its budget. */
  readonly cancelled: AbortSignal
  /** Time for a turn to conclude, once the budget has tripped. */
  readonly concludeMs: number
  readonly logger: Logger
}

/** Maximum number of replans after a person's feedback. */
const replansMax = 3

/** Opens what the task brings, plans and executes the task, and closes what was opened. */
export async function runTask(context: TaskContext, parts: RunParts): Promise<RunEnding> {
  const { task, steering, subAgents, budget, host, report, signal, cancelled, concludeMs, logger } = context
  await using opened = new AsyncDisposableStack()
  const { log } = host
  const guidance = signal.aborted
    ? undefined
    : ((await log.once('guidance', async () => (await parts.readGuidance?.()) ?? null)) ?? undefined)
  const skills = signal.aborted ? undefined : await parts.openSkills?.(task)
  if (skills !== undefined && skills.problems.length > 0)
    await host.note('info', `skills of the workspace: ${skills.problems.join('; ')}`)
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
  if (!tools.ok) return failed({ reason: 'environment', message: tools.error.message })
  const hooks = openHooks(task.hooks, host.runHook)
  const { stepModels = [], stepModel } = task
  const modelOf = (name: string) =>
    loggedModel(
      openRunModel(() => parts.modelFor({ ...task, model: name }), steering),
      log,
    )
  const images = signal.aborted ? [] : await readImages(task.images ?? [], parts, log)
  const asIs: AgentRun = {
    ...(images.length === 0 ? {} : { images }),
    task: { ...task, askTools: tools.value.askTools },
    askPatterns: task.askTools,
    ...(extensions.makeFunction === undefined ? {} : { makeFunction: extensions.makeFunction }),
    agentPath: task.subAgent === undefined ? 'root' : parentOf(task.subAgent.agentPath),
    model: modelOf(task.model),
    ...(stepModels.length === 0
      ? {}
      : { stepModels: new Map(stepModels.map((one) => [one.name, { ...one, model: modelOf(one.name) }])) }),
    registry: withModels(
      tools.value.registry,
      stepModels.map(({ name }) => name),
    ),
    workspaceListing: signal.aborted ? '' : await log.once('listing', () => parts.listWorkspace(signal)),
    ...(guidance === undefined ? {} : { guidance }),
    ...(skills === undefined ? {} : { skills }),
    report,
    requestApproval: host.requestApproval,
    ...(hooks === undefined ? {} : { hooks }),
    budget,
    steering,
    subAgents,
    signal,
    cancelled,
    concludeMs,
    callIds: new CallIds(task.idSeed ?? task.runId),
    outputs: new OutputStore(),
    log,
    logger,
  }
  const run = atEffort(atModel(asIs, stepModel), task.effort)
  if (signal.aborted) return { ...interruption(run, 'nothing was planned'), summary: '' }
  const { subAgent } = task
  const reportFor = (agentPath: string): Report =>
    agentPath === subAgent?.agentPath ? withoutFrame(host.reportOf(agentPath)) : host.reportOf(agentPath)
  const agents = hasAgents ? parts.agentsFor?.(run, reportFor, extensions.toolsFor) : undefined
  opened.defer(() => agents?.close())
  if (subAgent !== undefined && agents !== undefined)
    return await runSubAgentTask({ ...task, subAgent }, agents, signal)
  return await planAndExecute(agents === undefined ? run : { ...run, agents }, parts)
}

/** The tools that start work, which may name a model where there are several. */
function withModels(registry: Registry, models: readonly string[]): Registry {
  if (models.length === 0) return registry
  const tools = [createRevisePlanTool(models), ...createAgentTools(models)]
  return registry.with(tools.filter(({ name }) => registry.byName.has(name)))
}

/** The images of the task as they are when it begins, also for an agent that continues it. */
async function readImages(
  paths: readonly string[],
  { readImage }: Pick<RunParts, 'readImage'>,
  log: RunLog,
): Promise<TaskImage[]> {
  const images: TaskImage[] = []
  for (const path of paths) {
    const name = nameInLine(path)
    let url: string | undefined
    const known = await log.once(`image ${path}`, async () => {
      const read = (await readImage?.(path)) ?? { ok: false, error: 'this agent reads no images' }
      if (!read.ok) return { problem: read.error }
      url = read.value.url
      log.keepImage(read.value.image.sha256, url)
      return { image: read.value.image }
    })
    if ('problem' in known) images.push({ name, problem: known.problem })
    else {
      url ??= log.image(known.image.sha256)
      images.push(
        url === undefined ? { name, problem: 'its bytes are lost' } : { name, image: known.image, url },
      )
    }
  }
  return images
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
  // Steps of a workflow have that tool, the run does not.
  const asked = all.choose(task.askTools.filter((name) => name !== addStepsName))
  if (!asked.ok) return asked
  return { ok: true, value: { registry: registry.value, askTools: [...asked.value] } }
}

/** Obtains a plan, reports it, asks for approval where required, and executes it; or only plans. */
export async function planAndExecute(
  run: AgentRun,
  { planner = planOrBegin, explorer = createExplorer(), executor = executePlan }: Stages = {},
): Promise<RunEnding> {
  const isOnlyPlanned = run.task.mode === 'plan'
  const planned = await planFirst(run, isOnlyPlanned ? explorer : planner)
  if (run.signal.aborted) return { ...interruption(run, 'the plan was not executed'), summary: '' }
  if (!planned.ok) return failed(planned.error)
  const { plan, corrections } = planned.value
  await noteCorrections(corrections, run)
  const book = await PlanState.open(plan, run)
  if (isOnlyPlanned) {
    const summary = truncate(describePlan(plan), limits.documentMaxChars)
    return {
      outcome: 'completed',
      reason: 'completed',
      message: `planned ${plan.steps.length} steps; nothing was executed`,
      summary,
    }
  }
  const refusal = await agree(book, run, planner)
  if (run.signal.aborted) return { ...interruption(run, 'the plan was not executed'), summary: '' }
  return refusal === null ? executor(book, run, { begun: planned.value.begun }) : failed(refusal)
}

/** Asks for a plan where a person is to see it first, or another one is replaced. */
const planOrBegin: Planner = (run, signal, former) =>
  run.task.approvePlan === true || former !== undefined
    ? makePlan(run, signal, former)
    : beginTask(run, signal)

/** The plan in the task, or a new one. */
async function planFirst(run: AgentRun, planner: Planner): ReturnType<Planner> {
  const { plan } = run.task
  if (plan === undefined) return planner(run, run.signal)
  const problems = [...(await findPlanProblems(plan, boundsOf(run))), ...findWorkflowProblems(plan, run)]
  if (problems.length === 0) return { ok: true, value: { plan, corrections: [] } }
  const message = `the plan of the task cannot be executed: ${problems.join('; ')}`
  return { ok: false, error: { reason: 'plan_invalid', message: truncate(message, limits.textMaxChars) } }
}

/** Asks until a plan is approved, then returns null. A denial with feedback starts a replan. */
async function agree(book: PlanState, run: AgentRun, planner: Planner): Promise<PlanFailure | null> {
  for (let round = 0; ; round++) {
    const consent = await askConsent(book.plan, run, () => boundsOf(run), run.signal)
    if (consent.allowed) {
      if (consent.isEdited)
        await adoptAllowed(book, { ...consent, isEdited: false }, 'edited by the person', run)
      return null
    }
    const { hint } = consent
    if (hint === undefined || round === replansMax || run.task.workflow !== undefined) {
      const why = hint === undefined ? 'the plan was denied' : `the plan was denied: ${hint}`
      return { reason: 'denied', message: truncate(why, limits.textMaxChars) }
    }
    const planned = await planner(run, run.signal, { plan: book.plan, states: {}, why: { hint } })
    if (!planned.ok) return planned.error
    await noteCorrections(planned.value.corrections, run)
    await book.adopt(planned.value.plan, `replanned: ${hint}`, run)
  }
}

async function noteCorrections(corrections: readonly string[], run: AgentRun): Promise<void> {
  if (corrections.length === 0) return
  const text = truncate(`the model's plan was corrected: ${corrections.join('; ')}`, limits.textMaxChars)
  await run.report.event({ type: 'note', level: 'info', text })
}

function parentOf(agentPath: string): string {
  return agentPath.slice(0, agentPath.lastIndexOf('/'))
}

function failed({ reason, message }: { reason: RunReason; message: string }): RunEnding {
  return { outcome: 'failed', reason, message, summary: '' }
}
