/** Plans the replay of a run from what its folder has; nothing of the configuration of now decides about it. */
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { parseConfig } from './config/load.ts'
import { makePolicy } from './egress/policy.ts'
import { newRunId, type RunPaths } from './journal/run-store.ts'
import { McpPins } from './mcp/pins.ts'
import type { ModelProvider } from './providers/providers.ts'
import { Recording, recordedProvider, recordedStepModels } from './recording/replay.ts'
import { type HostState, readSkills } from './resolve-run.ts'
import type { ResumeOptions } from './run-options.ts'
import { PastAnswers } from './runs/replay/answers.ts'
import { readPastLines } from './runs/replay/past-lines.ts'
import { type ReplaySetup, readReplaySetup } from './runs/replay/setup.ts'
import type { PlannedRun, ReplayedRun } from './runs/resolved-run.ts'
import { Secrets } from './secrets/secrets.ts'
import { prepareFolders } from './state/folders.ts'
import { prepareHostTools } from './tools/host-tools.ts'

/** Options of {@link Host.replay}. */
export type ReplayOptions = Pick<ResumeOptions, 'signal' | 'onProgress'>

export interface PlannedReplay {
  readonly plan: Omit<PlannedRun, 'prepareMachine'>
  readonly setup: ReplaySetup
  readonly replays: ReplayedRun
  readonly journal: readonly JournalEvent[]
  readonly answers: PastAnswers
  readonly recording: Recording
}

/** @throws {CaissonError} `not_possible_now` when the run cannot be replayed, `run_busy`, `invalid_recording` */
export async function planReplay(
  paths: RunPaths,
  options: ReplayOptions,
  host: HostState,
): Promise<PlannedReplay> {
  const { runId } = paths
  if (await host.runs.isLive(runId))
    throw new CaissonError('run_busy', `${runId} is active; wait until it ends, then replay it`)
  const journal = await host.runs.read(runId)
  const started = requireStart(runId, journal)
  const setup = await readReplaySetup(paths)
  const recording = await Recording.read(paths.exchanges)
  const answers = new PastAnswers(readPastLines(journal), recording)
  const replays = { runId, task: setup.task, workspaceReady: started.workspaceReady }
  await prepareFolders(host.folders)
  const plan = await planOf({ setup, answers, recording, replays, start: started.start }, options, host)
  return { plan, setup, replays, journal, answers, recording }
}

interface Start {
  readonly start: Extract<JournalEvent['event'], { type: 'run-start' }>
  readonly workspaceReady: ReplayedRun['workspaceReady']
}

function requireStart(runId: string, journal: readonly JournalEvent[]): Start {
  let start: Start['start'] | undefined
  for (const { event } of journal) {
    if (event.type === 'run-start') start = event
    if (start?.mergedFrom !== undefined)
      throw new CaissonError(
        'not_possible_now',
        `${runId} has the merged changes of other runs; no agent made it`,
        {
          remedy: `replay the runs that it merges: ${start.mergedFrom.join(', ')}`,
        },
      )
    if (event.type !== 'workspace-ready' || start === undefined) continue
    if (start.replays !== undefined)
      throw new CaissonError('not_possible_now', `${runId} is a replay itself`, {
        remedy: `replay the run: caisson replay ${start.replays}`,
      })
    if (start.continues !== undefined)
      throw new CaissonError(
        'not_possible_now',
        `${runId} continued another run in its VM, which is not recorded`,
      )
    return { start, workspaceReady: event }
  }
  throw new CaissonError(
    'not_possible_now',
    `${runId} ended before it had its files; there is nothing to replay`,
  )
}

async function planOf(
  {
    setup,
    answers,
    recording,
    replays,
    start,
  }: Pick<PlannedReplay, 'setup' | 'answers' | 'recording' | 'replays'> & Pick<Start, 'start'>,
  { onProgress }: ReplayOptions,
  host: HostState,
): Promise<PlannedReplay['plan']> {
  const { folders, settings, runs } = host
  const config = requireValue(parseConfig({}, 'the configuration of a replay'))
  const { task, approvals, egress, vm } = setup
  const rulesOf = (origin: string) =>
    egress.rules.flatMap((rule) => (rule.origin === origin ? [rule.rule] : []))
  const policy = { configuration: rulesOf('configuration'), run: rulesOf('run'), otherwise: egress.otherwise }
  const { keySource: _, ...recorded } = recordedProvider(recording)
  const provider: ModelProvider = { ...recorded, key: null }
  const runId = newRunId()
  const ownState = { ...folders, home: runs.paths(runId).directory }
  return {
    runId,
    folders,
    ...(onProgress === undefined ? {} : { onProgress }),
    config,
    network: settings.network(config),
    egress: requireValue(makePolicy(policy)),
    secrets: new Secrets({}, settings.resolveKey),
    resolveKey: settings.resolveKey,
    recording,
    provider,
    ...(task.stepModels === undefined
      ? {}
      : {
          stepModels: recordedStepModels(
            recording,
            Object.fromEntries(task.stepModels.map(({ name, id }) => [name, id])),
          ),
        }),
    ...(task.embeddingModel === undefined ? {} : { embeddings: { ...provider, model: task.embeddingModel } }),
    prompt: task.prompt,
    ...(start.images === undefined ? {} : { images: start.images }),
    mode: task.mode ?? 'work',
    approvePlan: start.approvePlan ?? false,
    ...(task.plan === undefined ? {} : { given: { plan: task.plan, from: setup.planFrom ?? '' } }),
    ...(task.workflow === undefined ? {} : { workflow: task.workflow }),
    ...(task.outputSchema === undefined ? {} : { outputSchema: task.outputSchema }),
    ...(task.contextTokens === undefined ? {} : { contextTokens: task.contextTokens }),
    replays,
    keep: false,
    ...(task.memory === undefined ? {} : { memory: { store: host.notes, notes: task.memory } }),
    ...(task.skills === undefined ? {} : { skills: await readSkills(await settings.config(), host) }),
    ...(task.mcpServers === undefined
      ? {}
      : { mcp: { servers: task.mcpServers, pins: new McpPins(ownState) } }),
    directory: start.directory,
    include: setup.include,
    ...(task.tools === undefined ? {} : { tools: task.tools }),
    hostTools: prepareHostTools(answers.hostTools(setup)),
    hooks: answers.hooks(setup),
    limits: task.limits,
    vm: {
      ...(vm.memoryBytes === undefined ? {} : { memoryBytes: vm.memoryBytes }),
      ...(vm.cpus === undefined ? {} : { cpus: vm.cpus }),
      ...(vm.diskBytes === undefined ? {} : { diskBytes: vm.diskBytes }),
      recoveries: 0,
      hibernateAfterMs: 0,
    },
    // Each question has its recorded answer, also where one for the run was revoked or expired.
    approvals: { ...approvals, interactive: answers.hasPerson, keepsRunAnswers: false },
  }
}

function requireValue<T>(result: { ok: true; value: T } | { ok: false; error: string }): T {
  if (result.ok) return result.value
  throw new CaissonError('state_corrupted', result.error)
}
