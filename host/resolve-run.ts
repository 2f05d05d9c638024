/**
 * Decides all settings of a run from its options and the configuration. Refuses what cannot work before a run
 * exists.
 */
import path from 'node:path'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import { ApprovalRules } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { refuseVoidRules } from './approvals/rules.ts'
import { checkEgressRules } from './check-options.ts'
import type { Config } from './config/schema.ts'
import { resolveContext } from './context-options.ts'
import { type EgressPolicy, makePolicy } from './egress/policy.ts'
import { OptionsError, readOptions } from './files/check-arguments.ts'
import { describeMissingPrice, priceOf } from './gateway/budget.ts'
import { codeHook } from './hooks/code-hook.ts'
import { ensureImage, findRoot, type Image } from './image/image.ts'
import { newRunId, type RunStore } from './journal/run-store.ts'
import { mcpServersOf } from './mcp/config.ts'
import { signInServersOf } from './mcp/oauth-settings.ts'
import type { McpPins } from './mcp/pins.ts'
import { notesForTask } from './memory/memory-service.ts'
import type { NoteStore } from './memory/note-store.ts'
import { searchProgram } from './processes/programs.ts'
import { smallestContext } from './providers/model-choice.ts'
import type { ProviderChoice } from './providers/providers.ts'
import { openRecording, type Recording, recordedProvider, recordedStepModels } from './recording/replay.ts'
import { notesOnOptions } from './run-notes.ts'
import { type PlanOptions, type RunOptions, runDefaults } from './run-options.ts'
import { nameFolders } from './runs/added-folders.ts'
import { findContinued } from './runs/continued-run.ts'
import { readGivenContents } from './runs/given-contents.ts'
import {
  findGivenPlan,
  type GivenPlan,
  givenPlanOf,
  requireAgents,
  requireModels,
} from './runs/given-plan.ts'
import { checkOutputSchema } from './runs/output-schema.ts'
import type { BuildOptions, PlannedRun } from './runs/resolved-run.ts'
import { patternOf, readTaskImages } from './runs/task-images.ts'
import { type SecretChanges, Secrets } from './secrets/secrets.ts'
import type { Settings } from './settings.ts'
import type { McpSignIns } from './sign-in/mcp-sign-ins.ts'
import { withTokens } from './sign-in/server-token.ts'

import { skillRoots, UserSkills } from './skills/user-skills.ts'
import { type Folders, ownPlaces, prepareFolders } from './state/folders.ts'
import { prepareHostTools } from './tools/host-tools.ts'
import { requirePossible, toolListOf } from './tools/tool-list.ts'
import { probeRequested } from './vm/qemu/accelerator.ts'
import { QEMU } from './vm/qemu/qemu-programs.ts'
import type { VmOptions } from './vm/vm-options.ts'
import { checkDirectory } from './workspace/index.ts'

/** What a host lends to its runs. */
export interface HostState {
  readonly env: Readonly<Record<string, string | undefined>>
  readonly folders: Folders
  readonly settings: Settings
  readonly runs: RunStore
  readonly secrets: SecretChanges
  readonly notes: NoteStore
  readonly mcpPins: McpPins
  readonly signIns: McpSignIns
}

/**
 * All settings of the run, without its machine. Fetches the keys.
 * @param warn receives notes about the model where the options have no callback
 * @throws {CaissonError} naming the option or the setting that cannot be used
 */
export async function resolveRun(
  options: RunOptions,
  host: HostState,
  warn: (notes: readonly string[]) => void,
): Promise<Omit<PlannedRun, 'prepareMachine'>> {
  const { approvals = {}, context, extensions = {}, files = {}, onProgress, plan = {}, vm = {} } = options
  const { folders, settings } = host
  const hostTools = readOptions('the host tools cannot be used', () =>
    prepareHostTools(extensions.hostTools ?? runDefaults.extensions.hostTools),
  )
  const tools = toolListOf(options.tools)
  const outputSchema =
    options.outputSchema === undefined ? undefined : await checkOutputSchema(options.outputSchema)
  const given = await readGivenPlan(plan, host.runs, options.workspace)
  const prompt = options.prompt.trim() === '' && given !== undefined ? promptOf(given) : options.prompt
  const config = await settings.config()
  const network = settings.network(config)
  // Before a key is fetched: from then on no program, such as one that prints a key, comes from it.
  const directory = requireDirectory(options.workspace ?? process.cwd(), folders)
  const { choice, recording } = await chooseProvider(options, config, host, true)
  const limits = RunLimits.parse({ ...config.limits, ...options.limits })
  if (given !== undefined) requireAgents(given, limits.maxAgents)
  const vectors = await settings.chooseEmbeddings(config, limits.maxCostUsd)
  const unpriced = describeMissingPrice(limits.maxCostUsd, priceOf(choice), choice.model)
  if (unpriced !== null) throw new CaissonError('price_unknown', unpriced)
  const contents = readGivenContents(files.contents ?? {}, directory)
  const images = readTaskImages(options.images ?? [], directory, contents)
  const addedFolders = nameFolders(options.folders ?? runDefaults.folders, directory, folders)
  const { rules } = ApprovalRules.parse({ rules: approvals.rules ?? runDefaults.approvals.rules })
  refuseVoidRules(rules, 'the approval rules')
  const continues =
    options.continue === undefined ? undefined : await findContinued(host.runs, options.continue, directory)
  const provider = await settings.fetchKey(choice)
  const fallbacks =
    recording === undefined
      ? await settings.fallbacks(config, choice, limits.maxCostUsd, options.fallback)
      : []
  const stepModels =
    recording === undefined
      ? await settings.stepModels(config, limits.maxCostUsd, options.stepModels)
      : recordedStepModels(recording, options.stepModels ?? config.stepModels ?? [])
  if (given !== undefined) requireModels(given, [...stepModels.keys()])
  // A recording needs no server, and so no key.
  const embeddings =
    vectors && (await settings.fetchKey(recording === undefined ? vectors : { ...vectors, keySource: null }))
  const mcpServers = readOptions('the MCP servers cannot be used', () =>
    mcpServersOf(config.mcpServers, extensions.mcpServers),
  )
  if (!mcpServers.ok) throw new CaissonError('invalid_config', mcpServers.error)
  const signedIn = await withTokens(
    mcpServers.value,
    signInServersOf(config.mcpServers, extensions.mcpServers),
    host.signIns,
  )
  requirePossible(tools ?? [], {
    hostTools: hostTools.keys(),
    mcpServers: Object.keys(mcpServers.value),
    directory,
  })
  const effort = options.effort ?? config.effort
  const contextTokens = smallestContext(config, [provider, ...fallbacks])
  const egress = resolveEgress(config, options.egress?.rules)
  const runId = newRunId()
  const told = await resolveContext(context ?? runDefaults.context, runId, options.signal)
  const hooks = [
    ...(await settings.hooks(config)),
    ...readOptions('the hooks cannot be used', () =>
      (extensions.hooks ?? runDefaults.extensions.hooks).map(codeHook),
    ),
    ...told.hooks,
  ]
  const { fallback } = options
  const isOneModel = stepModels.size === 0 && embeddings === undefined
  const asked = {
    ...{ hasImages: images.length > 0, effort: options.effort, fallback, fallbacks },
    maxCostUsd: isOneModel ? options.limits?.maxCostUsd : undefined,
  }
  const onOptions = recording === undefined ? notesOnOptions(choice, asked) : []
  const notes = [...choice.notes, ...onOptions]
  if (options.onNotes !== undefined) giveNotes(options.onNotes, notes)
  else if (onProgress === undefined) warn(notes)
  const { keep = continues !== undefined, sleepAfterMs = config.vm.sleepAfterMs, ...machine } = vm
  await requireAccelerator(machine, folders, options.signal)
  await prepareFolders(folders)
  return {
    mode: (plan.only ?? runDefaults.plan.only) ? 'plan' : 'work',
    approvePlan: plan.approve ?? runDefaults.plan.approve,
    ...(given === undefined ? {} : { given }),
    ...(outputSchema === undefined ? {} : { outputSchema }),
    ...(effort === undefined ? {} : { effort }),
    ...(contextTokens === undefined ? {} : { contextTokens }),
    ...(continues === undefined ? {} : { continues }),
    keep,
    leavesOnSleep: options.leaveOnSleep ?? false,
    runId,
    folders,
    ...(onProgress === undefined ? {} : { onProgress }),
    config,
    network,
    egress,
    secrets: new Secrets(config.secrets, settings.resolveKey, host.secrets, { tokens: signedIn.tokens }),
    resolveKey: settings.resolveKey,
    ...(recording === undefined ? {} : { recording }),
    provider,
    ...(fallbacks.length === 0 ? {} : { fallbacks }),
    ...(stepModels.size === 0 ? {} : { stepModels }),
    ...(embeddings === undefined ? {} : { embeddings }),
    prompt,
    ...(images.length === 0 ? {} : { images }),
    ...(onOptions.length === 0 ? {} : { notes: onOptions }),
    ...(await readTaskContext(config, await readSkills(config, host), host.notes, directory, onProgress)),
    directory,
    addedFolders,
    include: [...(files.include ?? runDefaults.files.include), ...images.map(patternOf)],
    ...(contents.size === 0 ? {} : { contents }),
    acceptIgnoreRules: files.acceptIgnoreRules ?? runDefaults.files.acceptIgnoreRules,
    limits,
    vm: { ...machine, ...(sleepAfterMs === undefined ? {} : { sleepAfterMs }) },
    approvals: {
      mode: approvals.mode ?? runDefaults.approvals.mode,
      rules,
      interactive: approvals.interactive ?? options.onApproval !== undefined,
    },
    ...(told.context === undefined ? {} : { context: told.context }),
    ...(told.sections === undefined ? {} : { sections: told.sections }),
    ...(options.metadata === undefined ? {} : { metadata: options.metadata }),
    ...(tools === undefined ? {} : { tools }),
    hostTools,
    mcp: { servers: signedIn.servers, pins: host.mcpPins },
    hooks,
  }
}

function giveNotes(onNotes: NonNullable<RunOptions['onNotes']>, notes: readonly string[]): void {
  try {
    onNotes(notes)
  } catch (cause) {
    const message = `the function threw: ${errorMessage(cause)}`
    throw new OptionsError('the options of the run cannot be used', [{ field: 'onNotes', message }], cause)
  }
}

/**
 * The provider of the run, or its recording.
 * @param ask whether its server is asked for its list, with its key, where nobody names a model
 */
export async function chooseProvider(
  { model, replay, workspace }: Pick<RunOptions, 'model' | 'replay' | 'workspace'>,
  config: Config,
  { settings, runs }: HostState,
  ask: boolean,
): Promise<{ readonly choice: ProviderChoice; readonly recording?: Recording }> {
  if (replay === undefined)
    return {
      choice: await (ask ? settings.chooseProvider(config, model) : settings.chooseServer(config, model)),
    }
  const recording = await openRecording(replay, (name) => runs.find(name, workspace))
  return { choice: recordedProvider(recording), recording }
}

/**
 * @throws {CaissonError} `invalid_rules` naming the rule of the configuration or of the run that cannot be
 * used
 */
export function resolveEgress({ egress }: Config, rules: readonly EgressRule[] = []): EgressPolicy {
  const own = checkEgressRules(rules)
  const policy = makePolicy({ configuration: egress.rules, run: own, otherwise: egress.default })
  if (policy.ok) return policy.value
  throw new CaissonError('invalid_rules', policy.error)
}

/** Refuses the directory before an image or a run exists. @throws {CaissonError} `workspace_refused` */
export function requireDirectory(workspace: string, folders: Folders): string {
  const checked = checkDirectory(workspace, ownPlaces(folders))
  if (checked.ok) return checked.value
  throw new CaissonError('workspace_refused', checked.error.message)
}

/** Refuses an accelerator that does not work here, before an image is built. @throws VmError `accelerator_unavailable` */
export async function requireAccelerator(
  { accelerator = 'auto', confine = 'auto' }: Pick<VmOptions, 'accelerator' | 'confine'>,
  { cache }: Pick<Folders, 'cache'>,
  signal?: AbortSignal,
): Promise<void> {
  if (accelerator === 'auto' || accelerator === 'tcg') return
  const qemu = (await searchProgram(QEMU)).path
  // The start says what is missing.
  if (qemu === undefined) return
  const root = await findRoot({ cacheDir: cache }).catch(() => undefined)
  await probeRequested(accelerator, {
    qemu,
    ...(root === undefined ? {} : { kernel: path.join(root.directory, 'vmlinuz') }),
    cacheDirectory: cache,
    confine,
    ...(signal === undefined ? {} : { signal }),
  })
}

/** Builds the image if it is missing. */
export async function prepareImage(
  { onProgress = () => undefined, signal }: Partial<BuildOptions>,
  folders: Folders,
): Promise<Image> {
  await prepareFolders(folders)
  return await ensureImage({
    cacheDir: folders.cache,
    onProgress,
    ...(signal === undefined ? {} : { signal }),
  })
}

/** The skills of the user and of the configuration. */
export async function readSkills(
  config: Config,
  { folders, env }: Pick<HostState, 'folders' | 'env'>,
): Promise<UserSkills> {
  return await UserSkills.read(skillRoots(config, folders, env))
}

/** Problems with skills and notes are reported to `say` and never stop a run. */
async function readTaskContext(
  { memory }: Pick<Config, 'memory'>,
  skills: UserSkills,
  notes: NoteStore,
  directory: string,
  say: (text: string) => void = () => undefined,
): Promise<Pick<PlannedRun, 'memory' | 'skills'>> {
  if (skills.problems.length > 0)
    say(`problems with skills: ${skills.problems.length}; to see them: caisson skills list`)
  if (!memory.enabled) return { skills }
  try {
    const damaged = (await notes.damaged()).length
    if (damaged > 0) say(`unreadable notes: ${damaged}; to see them: caisson memory list`)
    return { skills, memory: { store: notes, notes: await notesForTask(notes, directory) } }
  } catch (error) {
    if (!(error instanceof CaissonError)) throw error
    say(`this run has no memory: ${error.message}`)
    return { skills }
  }
}

/** @throws {CaissonError} `invalid_plan` @throws {CaissonError} `state_unavailable` */
async function readGivenPlan(
  { only, from }: PlanOptions,
  runs: RunStore,
  directory: string | undefined,
): Promise<GivenPlan | undefined> {
  if (from === undefined) return undefined
  if (only === true)
    throw new CaissonError(
      'invalid_plan',
      'a run either makes a plan or executes one that exists: leave out plan.only (--plan-only) or plan.from (--plan-from)',
    )
  return typeof from === 'string' ? await findGivenPlan(runs, from, directory) : givenPlanOf(from)
}

/** The task that a plan without one stands for. */
function promptOf({ plan, prompt }: GivenPlan): string {
  return prompt ?? plan.goal
}
