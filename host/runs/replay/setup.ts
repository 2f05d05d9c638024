/**
 * What a run was set up with, in its folder for as long as the folder is there, so that the run can be replayed. Holds no
 * value of an environment or a header: those are keys, and a replay needs none.
 */
import { readFile } from 'node:fs/promises'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { ApprovalRules } from '#specs/protocol/approval.ts'
import { EgressRule } from '#specs/protocol/egress.ts'
import type { McpServer } from '#specs/protocol/extension.ts'
import { HookPoint } from '#specs/protocol/hook.ts'
import { imagesMaxCount } from '#specs/protocol/image.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { Task } from '#specs/protocol/task.ts'
import { Line } from '#specs/protocol/text.ts'
import { asksAboutPlan } from '../../approvals/plan-question.ts'
import { replaceFile } from '../../files/durable.ts'
import { parseJson } from '../../files/json.ts'
import type { RunPaths } from '../../journal/run-store.ts'
import { type PlannedRun, taskOf } from '../resolved-run.ts'

export const ReplaySetup = z.strictObject({
  version: z.literal(1),
  /** As the first agent got it, without the values of environments and headers. */
  task: Task,
  approvals: z.strictObject({
    mode: z.enum(['ask', 'all', 'none']),
    rules: ApprovalRules.shape.rules,
    interactive: z.boolean(),
  }),
  egress: z.strictObject({
    rules: z
      .array(z.strictObject({ origin: z.enum(['configuration', 'run']), rule: EgressRule }))
      .max(10_000),
    otherwise: z.enum(['deny', 'ask']),
  }),
  /** Ignored or secret paths that were copied anyway. */
  include: z.array(z.string()).max(1_000 + imagesMaxCount),
  vm: z.strictObject({
    memoryBytes: z.int().min(1).optional(),
    cpus: z.int().min(1).optional(),
    diskBytes: z.int().min(1).optional(),
  }),
  hooks: z
    .array(
      z.strictObject({
        name: z.string(),
        point: HookPoint,
        tools: z.array(z.string()).optional(),
        onFailure: z.enum(['allow', 'deny']),
      }),
    )
    .max(1_000),
  /** Host tools whose calls ask a person. */
  askingTools: z.array(Line).max(256),
  /** Where the plan came from; absent: the model made it. */
  planFrom: z.string().optional(),
  /** Folders that the run got besides the workspace. */
  folders: z.array(z.strictObject({ name: z.string(), root: z.string() })).max(16),
})
export type ReplaySetup = z.infer<typeof ReplaySetup>

/** Far above the size of any task. */
const maxBytes = 32 * 1024 * 1024

/** @throws the disk's errors */
export async function keepReplaySetup(
  { setup: file }: Pick<RunPaths, 'setup'>,
  plan: PlannedRun,
): Promise<void> {
  await replaceFile(file, `${JSON.stringify(setupOf(plan))}\n`)
}

function setupOf(plan: PlannedRun): ReplaySetup {
  const { memoryBytes, cpus, diskBytes } = plan.vm
  const { mode, rules, interactive } = plan.approvals
  return {
    version: 1,
    task: withoutValues(taskOf(plan, plan.approvePlan || asksAboutPlan(rules))),
    approvals: { mode, rules: [...rules], interactive },
    egress: {
      rules: plan.egress.rules.flatMap(({ origin, rule }) =>
        origin === 'configuration' || origin === 'run' ? [{ origin, rule }] : [],
      ),
      otherwise: plan.egress.otherwise,
    },
    include: [...plan.include],
    vm: {
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
      ...(cpus === undefined ? {} : { cpus }),
      ...(diskBytes === undefined ? {} : { diskBytes }),
    },
    hooks: (plan.hooks ?? []).map(({ name, point, tools, onFailure }) => ({
      name,
      point,
      ...(tools === undefined ? {} : { tools: [...tools] }),
      onFailure,
    })),
    askingTools: [...(plan.hostTools ?? [])].flatMap(([name, { asks }]) => (asks ? [name] : [])),
    ...(plan.given === undefined ? {} : { planFrom: plan.given.from }),
    folders: (plan.addedFolders ?? []).map(({ name, root }) => ({ name, root })),
  }
}

/** The task without what may be a key: values in the environment and the headers of MCP servers. */
export function withoutValues(task: Task): Task {
  if (task.mcpServers === undefined) return task
  const servers = Object.entries(task.mcpServers).map(([name, { env: _, headers: __, ...server }]) => [
    name,
    server satisfies McpServer,
  ])
  return { ...task, mcpServers: Object.fromEntries(servers) }
}

/** @throws {CaissonError} `not_possible_now` for a run of before there was such a file, `state_corrupted` */
export async function readReplaySetup({ runId, setup: file }: Pick<RunPaths, 'runId' | 'setup'>) {
  const bytes = await readFile(file).catch((error: unknown) => {
    throw new CaissonError('not_possible_now', `${runId} cannot be replayed: ${file} is not there`, {
      cause: error,
      remedy: 'replay a run of this version; with the same task: caisson run --replay RUN "TASK"',
    })
  })
  const parsed = ReplaySetup.safeParse(
    bytes.length > maxBytes ? undefined : parseJson(bytes.toString()),
    plainMessages,
  )
  if (parsed.success) return parsed.data
  const issues = describeIssues(parsed.error, { root: 'the file', max: 1 })
  throw new CaissonError('state_corrupted', `${file} cannot be read: ${issues}`)
}
