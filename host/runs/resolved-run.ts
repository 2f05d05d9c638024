/** All settings of a run, decided before it starts and never changed, and what the VM and the agent get of them. */

import { CaissonError } from '#specs/errors.ts'
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import type { RunSection } from '#specs/protocol/context-section.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { McpServer, MemoryNote } from '#specs/protocol/extension.ts'
import { limits as protocolLimits } from '#specs/protocol/limits.ts'
import type { Effort } from '#specs/protocol/plan.ts'
import { type AnswerForm, type RunLimits, Task } from '#specs/protocol/task.ts'
import type { Workflow } from '#specs/protocol/workflow.ts'
import type { ApprovalMode } from '../approvals/queue.ts'
import { toolsNamedByRules } from '../approvals/rules.ts'
import type { Config } from '../config/schema.ts'
import type { EgressPolicy } from '../egress/policy.ts'
import { checkArguments } from '../files/check-arguments.ts'
import { priceOf } from '../gateway/budget.ts'
import type { Hook } from '../hooks/hook.ts'
import { agentHooksOf } from '../hooks/run-hooks.ts'
import type { Image } from '../image/image.ts'
import type { RunSource } from '../journal/run-source.ts'
import type { KeySource } from '../keys/key-source.ts'
import type { Secret } from '../keys/secret.ts'
import type { McpPins } from '../mcp/pins.ts'
import type { NoteStore } from '../memory/note-store.ts'
import type { Network } from '../net/network.ts'
import { smallestContext } from '../providers/model-choice.ts'
import type { ModelProvider } from '../providers/providers.ts'
import type { SharedKeys } from '../providers/shared-keys.ts'
import type { Turn } from '../queue/run-queue.ts'
import type { Recording } from '../recording/replay.ts'
import { placeholderOf } from '../secrets/placeholders.ts'
import type { Secrets } from '../secrets/secrets.ts'
import type { UserSkills } from '../skills/user-skills.ts'
import type { Folders } from '../state/folders.ts'
import type { PreparedTool } from '../tools/host-tools.ts'
import type { StartVmOptions } from '../vm/vm.ts'
import type { RunVmOptions } from '../vm/vm-options.ts'
import type { VmPool } from '../vm/vm-pool.ts'
import { foldersContext, type NamedFolder } from './added-folders.ts'
import type { ContinuedRun } from './continued-run.ts'
import type { GivenPlan } from './given-plan.ts'
import type { TaskImage } from './task-images.ts'

/** What a run needs for its VM. */
export interface RunMachine {
  readonly image: Image
  /** VMs that were started in advance. Absent: the run starts one. */
  readonly pool?: VmPool
}

/** Progress of what is built for a VM, as lines for people. */
export interface BuildOptions {
  readonly onProgress: (text: string) => void
  readonly signal: AbortSignal
}

/** A run with what it needs for its VM. */
export interface ResolvedRun extends PlannedRun, RunMachine {}

/** What a replay repeats. */
export interface ReplayedRun {
  readonly runId: string
  /** As its agent got it. */
  readonly task: Task
  /** What its journal says of its workspace, which is in the folder of the replay. */
  readonly workspaceReady: Extract<HostEvent, { type: 'workspace-ready' }>
}

/** All settings of a run, decided before it starts. */
export interface PlannedRun {
  readonly runId: string
  readonly folders: Folders
  /** Builds the image if it is missing. */
  readonly prepareMachine: (options: BuildOptions) => Promise<RunMachine>
  /** Also gets the progress of the image and the template, which watchers of the run see. */
  readonly onProgress?: (text: string) => void
  /** The user's configuration at the start of the run. */
  readonly config: Config
  /** The host's connection to the internet. */
  readonly network: Network
  /** Egress policy for everything except the model. */
  readonly egress: EgressPolicy
  /** The user's secrets for requests of the guest. */
  readonly secrets: Secrets
  /** Reads a key from its configured source. */
  readonly resolveKey: (source: KeySource) => Promise<Result<Secret, string>>
  readonly provider: ModelProvider
  /** Asked in this order where the provider's model cannot answer. Absent: none. */
  readonly fallbacks?: readonly ModelProvider[]
  /** What steps and sub-agents may use instead, by name. Absent: nothing. */
  readonly stepModels?: ReadonlyMap<string, ModelProvider>
  /** Provider of embeddings. Absent: no embeddings. */
  readonly embeddings?: ModelProvider
  /** Replaces the model's server and the web; the run then uses no network. */
  readonly recording?: Recording
  readonly prompt: string
  /** Images in the workspace that the task is about. Absent: none. */
  readonly images?: readonly TaskImage[]
  /** Options that have no effect with its model, for people. Absent: none. */
  readonly notes?: readonly string[]
  /** `plan`: the workspace is read-only, programs have no network access, and the run ends with its plan. */
  readonly mode: 'work' | 'plan'
  /** Whether a plan and each revision need approval. */
  readonly approvePlan: boolean
  /** The plan to execute and its source. Absent: the model makes one. */
  readonly given?: GivenPlan
  /** The workflow whose steps the given plan has. Absent: none. */
  readonly workflow?: Workflow
  /** Schema that the final answer fits. Absent: the answer is text. */
  readonly outputSchema?: AnswerForm
  /** How much the model reasons. Absent: as it does by itself. */
  readonly effort?: Effort
  /** Size of the model's context window in tokens. Absent: not configured. */
  readonly contextTokens?: number
  readonly context?: Readonly<Record<string, string>>
  /** Sections of the application. Absent: none. */
  readonly sections?: readonly RunSection[]
  readonly metadata?: Readonly<Record<string, string>>
  /** For a run that another process began: the task as the agent got it then, and whether to start it again. */
  readonly resumed?: {
    readonly task: Task
    readonly fromBeginning?: boolean
    /** Whether it ends in order when it was cancelled in that process. Absent: it continues. */
    readonly endIfCancelled?: boolean
    /** Lines of its journal that came with an archive: nothing is permitted by them. Absent: none. */
    readonly importedLines?: number
  }
  /** The run that this one replays. Absent: it is no replay. */
  readonly replays?: ReplayedRun
  /** Its part in the queue of the host. Absent: the host has none, and the run begins at once. */
  readonly turn?: Turn
  /** Whether the run leaves this process when it goes to sleep. */
  readonly leavesOnSleep?: boolean
  /** Whether another host of a fleet can try what fails for a reason of this host. Absent: no. */
  readonly isOfFleet?: boolean
  /** Of its fleet, whose runs its forks become. Absent: they are runs of this machine alone. */
  readonly source?: RunSource
  /** What the hosts of a fleet know of model keys together. Absent: no other host uses them. */
  readonly sharedKeys?: SharedKeys
  /** The run that this one continues; its VM is used if it was kept. */
  readonly continues?: ContinuedRun
  /** Whether to save the VM at the end for a run that continues this one. */
  readonly keep: boolean
  /** The notes that the run may read and propose additions to, and the part in its prompt. Absent: no memory. */
  readonly memory?: { readonly store: NoteStore; readonly notes: readonly MemoryNote[] }
  /** The user's skills. Absent: none. */
  readonly skills?: UserSkills
  /** The user's MCP servers and earlier approvals of servers. Absent: no servers. */
  readonly mcp?: { readonly servers: Readonly<Record<string, McpServer>>; readonly pins: McpPins }
  /** The workspace on the host. */
  readonly directory: string
  /** Folders that the run gets besides the workspace, read-only. Absent: none. */
  readonly addedFolders?: readonly NamedFolder[]
  /** Ignored or secret paths to copy anyway. */
  readonly include: readonly string[]
  /** Content in the place of what the disk has, by path in the workspace. Absent: none. */
  readonly contents?: ReadonlyMap<string, Buffer>
  /** Whether to accept the ignore rules as earlier runs left them. */
  readonly acceptIgnoreRules?: boolean
  /** Names and patterns of allowed tools. Absent: all. */
  readonly tools?: readonly string[]
  /** The application's tools by name. Absent: none. */
  readonly hostTools?: ReadonlyMap<string, PreparedTool>
  /** Hooks in the order of their calls. Absent: none. */
  readonly hooks?: readonly Hook[]
  readonly limits: RunLimits
  readonly vm: Omit<RunVmOptions, 'keep'>
  readonly approvals: {
    readonly mode: ApprovalMode
    readonly rules: readonly ApprovalRule[]
    readonly interactive: boolean
    /** See {@link ApprovalQueueOptions}. */
    readonly keepsRunAnswers?: boolean
  }
}

/** The workflow that the run carries out. */
export function workflowOf({
  workflow,
  resumed,
}: Pick<PlannedRun, 'workflow' | 'resumed'>): Workflow | undefined {
  return workflow ?? resumed?.task.workflow
}

/** Start options of the VM for a run. */
export function vmOptions(
  {
    folders,
    vm: { start: _, hibernateAfterMs: __, sleepAfterMs: _3, recoveries: ___, disk, ...options },
    image,
  }: Pick<ResolvedRun, 'folders' | 'vm' | 'image'>,
  start: Pick<StartVmOptions, 'workspaceDisk' | 'checkpointDisk' | 'signal'>,
): StartVmOptions {
  return { ...options, image: disk ?? image, folders, stopsWhenDiskFull: true, ...start }
}

/**
 * The task for the agent; excludes what the agent must not know.
 * @param approvesPlan whether a person must approve every plan
 */
export function taskOf(plan: PlannedRun, approvesPlan: boolean): Task {
  if (plan.replays !== undefined) return replayedTask(plan.runId, plan.replays)
  const { runId, prompt, provider, limits, tools, approvals, continues, secrets } = plan
  const { mode, given, workflow, outputSchema, effort, contextTokens, embeddings, mcp, images } = plan
  const context = {
    ...secretsContext(secrets),
    ...foldersContext(plan.addedFolders ?? []),
    ...continues?.context,
    ...plan.context,
  }
  const hostTools = [...(plan.hostTools?.values() ?? [])].map(({ offer }) => offer)
  const ofAgent = agentHooksOf(plan.hooks ?? [])
  const price = priceOf(provider)
  return {
    runId,
    prompt,
    ...(images === undefined ? {} : { images: images.map(({ path }) => path) }),
    model: provider.model,
    ...(price === null ? {} : { price: { input: price.input, output: price.output } }),
    askTools: toolsNamedByRules(approvals.rules, ['*']),
    limits,
    ...(mode === 'work' ? {} : { mode }),
    ...(approvesPlan ? { approvePlan: true } : {}),
    ...(given === undefined ? {} : { plan: given.plan }),
    ...(workflow === undefined ? {} : { workflow }),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    ...(effort === undefined ? {} : { effort }),
    ...(contextTokens === undefined ? {} : { contextTokens }),
    ...stepModelsOf(plan),
    ...(Object.keys(context).length === 0 ? {} : { context }),
    ...(plan.sections === undefined ? {} : { sections: [...plan.sections] }),
    ...(tools === undefined ? {} : { tools: [...tools] }),
    ...(embeddings === undefined ? {} : { embeddingModel: embeddings.model }),
    ...(hostTools.length === 0 ? {} : { hostTools }),
    ...(mcp === undefined ? {} : { mcpServers: { ...mcp.servers } }),
    ...(ofAgent.length === 0 ? {} : { hooks: ofAgent }),
    ...knowledgeOf(plan),
  }
}

/** As the agent knows them. */
function stepModelsOf({ config, stepModels, fallbacks = [] }: PlannedRun): Pick<Task, 'stepModels'> {
  if (stepModels === undefined || stepModels.size === 0) return {}
  const known = [...stepModels].map(([name, provider]) => {
    const price = priceOf(provider)
    const contextTokens = smallestContext(config, [provider, ...fallbacks])
    return {
      name,
      id: provider.model,
      ...(price === null ? {} : { price: { input: price.input, output: price.output } }),
      ...(contextTokens === undefined ? {} : { contextTokens }),
    }
  })
  return { stepModels: known }
}

/** The same task, in which calls without an id of the model get the same ids. */
function replayedTask(runId: string, { runId: replayed, task }: ReplayedRun): Task {
  return { ...task, runId, idSeed: task.idSeed ?? replayed }
}

/** For the id and the method of the message. */
const messageOverheadBytes = 1_024

/** Before a VM starts for it. @throws {CaissonError} `invalid_options` for a task that the agent cannot be given */
export function requireTask(plan: PlannedRun): void {
  const task = taskOf(plan, plan.approvePlan)
  const what = 'the agent cannot be given the task'
  checkArguments(what, Task, task)
  const bytes = Buffer.byteLength(JSON.stringify(task))
  const maxBytes = protocolLimits.frameMaxBytes - messageOverheadBytes
  if (bytes > maxBytes)
    throw new CaissonError(
      'invalid_options',
      `${what}: prompt, context, plan and host tools have ${bytes} bytes, expected at most ${maxBytes}`,
    )
}

/** Names beyond these are not listed: they would fill the prompt. */
const listedMaxCount = 100

/** An entry of the task's context; none where there are no secrets. */
function secretsContext(secrets: Secrets): Readonly<Record<string, string>> {
  const bindings = secrets.list()
  if (bindings.length === 0) return {}
  const lines = bindings
    .slice(0, listedMaxCount)
    .map(({ name, hosts }) => `${placeholderOf(name)}: for ${hosts.join(', ')}`)
  const rest = bindings.length > listedMaxCount ? [`and ${bindings.length - listedMaxCount} more`] : []
  const intro =
    'Write such a placeholder in a header of web_fetch, for example authorization: "Bearer {{NAME}}"; the host puts the ' +
    'value in, over https and for these hosts alone. You never see it. A program has it put in by asking an http:// address ' +
    'with the header caisson-upgrade: https.'
  return { secrets: [intro, ...lines, ...rest].join('\n') }
}

/** The part that is sent with the task. */
function knowledgeOf({ skills, memory }: PlannedRun): Pick<Task, 'skills' | 'memory'> {
  const heads = skills?.heads() ?? []
  return {
    ...(heads.length === 0 ? {} : { skills: heads }),
    ...(memory === undefined ? {} : { memory: [...memory.notes] }),
  }
}
