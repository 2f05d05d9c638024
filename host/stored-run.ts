/**
 * What a run was started with, in its folder until it has ended, so that another process can continue it. Holds
 * what the user configured for MCP servers, keys included, so only the user may read it; it never enters the VM.
 */
import { readFile } from 'node:fs/promises'
import * as z from 'zod'
import { CaissonError, hasCode } from '#specs/errors.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { Task } from '#specs/protocol/task.ts'
import { checkRunOptions } from './check-options.ts'
import { replaceFile } from './files/durable.ts'
import { parseJson } from './files/json.ts'
import type { RunPaths } from './journal/run-store.ts'
import type { ResumeOptions, RunOptions } from './run-options.ts'

export interface StoredRun {
  /** Without functions: the application passes those again. */
  readonly options: RunOptions
  /** As the first agent got it. */
  readonly task: Task
  /** Names of the host tools, and number of hooks, that the application passed as functions. */
  readonly functions: { readonly hostTools: readonly string[]; readonly hooks: number }
}

const Stored = z.strictObject({
  version: z.literal(1),
  options: z.looseObject({}),
  task: Task,
  functions: z.strictObject({ hostTools: z.array(z.string()), hooks: z.int().min(0) }),
})

export async function storeRun(
  { options: file }: Pick<RunPaths, 'options'>,
  options: RunOptions,
  task: Task,
): Promise<void> {
  const { onApproval: _, signal: __, onProgress: ___, onNotes: ____, extensions = {}, ...plain } = options
  const { hostTools = {}, hooks = [], mcpServers } = extensions
  const stored: z.input<typeof Stored> = {
    version: 1,
    options: { ...plain, ...(mcpServers === undefined ? {} : { extensions: { mcpServers } }) },
    task,
    functions: { hostTools: Object.keys(hostTools), hooks: hooks.length },
  }
  await replaceFile(file, `${JSON.stringify(stored)}\n`)
}

/** @throws {CaissonError} `not_possible_now` when the run has ended or is of another version, `state_corrupted` */
export async function readStoredRun({ runId, options: file }: RunPaths): Promise<StoredRun> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new CaissonError('not_possible_now', `${runId} cannot be continued: ${file} is not there`, {
      cause: error,
      remedy: `run the task again; what the run did: caisson runs show ${runId}`,
    })
  })
  const parsed = Stored.safeParse(parseJson(text), plainMessages)
  if (!parsed.success)
    throw new CaissonError(
      'state_corrupted',
      `${file}: ${describeIssues(parsed.error, { root: 'the file', max: 1 })}`,
    )
  const { options, task, functions } = parsed.data
  try {
    return { options: checkRunOptions(options as unknown as RunOptions), task, functions }
  } catch (error) {
    if (!hasCode(error, 'invalid_options')) throw error
    throw new CaissonError('state_corrupted', `${file}: ${error.message}`)
  }
}

/**
 * The options to continue a run with. A run that it continued, and a plan from elsewhere, are in its task.
 * @throws {CaissonError} `invalid_options` when the application does not pass the same functions
 */
export function resumedOptions({ options, task, functions }: StoredRun, given: ResumeOptions): RunOptions {
  const { continue: _, plan: { from: __, ...plan } = {}, ...stored } = options
  const { interactive, extensions = {}, ...functionsGiven } = given
  const missing = functions.hostTools.filter((name) => !Object.hasOwn(extensions.hostTools ?? {}, name))
  if (missing.length > 0 || (extensions.hooks ?? []).length !== functions.hooks)
    throw new CaissonError(
      'invalid_options',
      `the run was started with the host tools ${functions.hostTools.join(', ') || '(none)'} and ${functions.hooks} hooks; pass the same to continue it`,
    )
  const isInteractive = interactive ?? given.onApproval !== undefined
  return {
    ...stored,
    ...functionsGiven,
    prompt: task.prompt,
    plan,
    approvals: { ...stored.approvals, interactive: isInteractive },
    extensions: { ...stored.extensions, ...extensions },
  }
}
