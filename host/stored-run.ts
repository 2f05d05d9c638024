/**
 * What a run was started with, in its folder until it has ended, so that another process can continue it. Holds
 * what the user configured for MCP servers, keys included, so only the user may read it; it never enters the VM.
 */
import { readFile } from 'node:fs/promises'
import * as z from 'zod'
import { CaissonError, hasCode } from '#specs/errors.ts'
import type { Result } from '#specs/protocol/error.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { type RunLimits, Task } from '#specs/protocol/task.ts'
import type { Withheld } from './archive/format.ts'
import { checkRunOptions } from './check-options.ts'
import { storedContext } from './context-options.ts'
import { replaceFile } from './files/durable.ts'
import { parseJson } from './files/json.ts'
import type { RunPaths } from './journal/run-store.ts'
import type { ResumeOptions, RunOptions } from './run-options.ts'
import { withoutValues } from './runs/replay/setup.ts'

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
  const {
    onApproval: _,
    signal: __,
    onProgress: ___,
    onNotes: ____,
    leaveOnSleep: _____,
    extensions = {},
    context,
    ...plain
  } = options
  const { hostTools = {}, hooks = [], mcpServers } = extensions
  const stored: z.input<typeof Stored> = {
    version: 1,
    options: {
      ...plain,
      ...(context === undefined ? {} : { context: storedContext(context) }),
      ...(mcpServers === undefined ? {} : { extensions: { mcpServers } }),
    },
    task,
    functions: { hostTools: Object.keys(hostTools), hooks: hooks.length },
  }
  await replaceFile(file, `${JSON.stringify(stored)}\n`)
}

/** Says where the workspace of a run is on this machine; another one stored where it was there. */
export async function relocateStored(
  { options: file }: Pick<RunPaths, 'options'>,
  workspace: string,
): Promise<void> {
  const { success, data } = Stored.safeParse(parseJson(await readFile(file, 'utf8')))
  // Whoever resumes it says what is wrong with the file.
  if (!success || data.options.workspace === workspace) return
  await replaceFile(file, `${JSON.stringify({ ...data, options: { ...data.options, workspace } })}\n`)
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

/** The text of `run.json` for another machine, without values of environments and headers, and without functions. */
export function storedWithoutKeys({ options, task, functions }: StoredRun): string {
  const { extensions: { mcpServers = {} } = {}, ...plain } = options
  const servers = Object.entries(mcpServers).map(([name, server]) => [name, withoutKeys(server)])
  const stored: z.input<typeof Stored> = {
    version: 1,
    options: {
      ...plain,
      ...(servers.length === 0 ? {} : { extensions: { mcpServers: Object.fromEntries(servers) } }),
    },
    task: withoutValues(task),
    functions: { hostTools: [...functions.hostTools], hooks: functions.hooks },
  }
  return `${JSON.stringify(stored)}\n`
}

function withoutKeys(server: unknown): unknown {
  if (typeof server !== 'object' || server === null) return server
  return Object.fromEntries(Object.entries(server).filter(([key]) => key !== 'env' && key !== 'headers'))
}

/**
 * The text of `run.json` of an archive for this machine. It keeps what says what the run does: not what was permitted
 * elsewhere, nor a path of another machine.
 */
export function importedStore(
  text: string,
  { runId, workspace }: { readonly runId: string; readonly workspace: string },
): Result<string, string> {
  const parsed = Stored.safeParse(parseJson(text), plainMessages)
  if (!parsed.success)
    return { ok: false, error: `run.json: ${describeIssues(parsed.error, { root: 'the file', max: 1 })}` }
  const { options, task, functions } = parsed.data
  if (task.runId !== runId) return { ok: false, error: 'run.json is of another run' }
  try {
    const checked = checkRunOptions(options as unknown as RunOptions)
    const {
      prompt,
      model,
      effort,
      fallback,
      stepModels,
      tools,
      context,
      metadata,
      outputSchema,
      limits,
      plan,
      vm,
      extensions,
    } = checked
    const { memoryBytes, cpus, diskBytes, recoveries } = vm ?? {}
    const kept = withoutUndefined({
      prompt,
      model,
      effort,
      fallback,
      stepModels,
      tools,
      context,
      metadata,
      outputSchema,
      limits,
      workspace,
      plan: withoutUndefined({ only: plan?.only, approve: plan?.approve }),
      vm: withoutUndefined({ memoryBytes, cpus, diskBytes, recoveries }),
      extensions: withoutUndefined({ mcpServers: extensions?.mcpServers }),
    })
    const stored: z.input<typeof Stored> = { version: 1, options: kept, task, functions }
    return { ok: true, value: `${JSON.stringify(stored)}\n` }
  } catch (error) {
    if (!hasCode(error, 'invalid_options')) throw error
    return { ok: false, error: `run.json: ${error.message}` }
  }
}

function withoutUndefined(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined))
}

type Servers = NonNullable<Task['mcpServers']>

/**
 * The task of a run that was imported, with the values that its archive left out, from the servers of this machine.
 * Refuses a server that has the name of one of this machine and is another program or address: it would get the values,
 * and what it offers would be remembered in the place of what the user's offered.
 * @param servers `own`: those that the run would have, with the archive's and with tokens;
 * `configured`: those of this machine's configuration
 * @throws {CaissonError} `invalid_options` naming what is missing or another
 */
export function withValues(
  task: Task,
  withheld: Withheld,
  { own, configured }: { readonly own: Servers; readonly configured: Servers },
): Task {
  for (const [name, server] of [...Object.entries(task.mcpServers ?? {}), ...Object.entries(own)]) {
    const here = Object.hasOwn(configured, name) ? configured[name] : undefined
    if (here !== undefined && whereOf(here) !== whereOf(server))
      throw new CaissonError(
        'invalid_options',
        `the MCP server ${name} of the imported run is another program or address than your ${name}`,
        { remedy: `to continue the run, remove mcpServers.${name} from the configuration meanwhile` },
      )
  }
  const filled = Object.entries(task.mcpServers ?? {}).map(([name, server]) => {
    const names = Object.hasOwn(withheld, name) ? withheld[name] : undefined
    if (names === undefined) return [name, server]
    const here = Object.hasOwn(configured, name) ? configured[name] : undefined
    const { env = {} } = here ?? {}
    const headers = {
      ...here?.headers,
      ...tokenHeader(server, Object.hasOwn(own, name) ? own[name] : undefined),
    }
    const missing = [
      ...names.env.filter((one) => !Object.hasOwn(env, one)),
      ...names.headers.filter((one) => !Object.hasOwn(headers, one)),
    ]
    if (missing.length > 0)
      throw new CaissonError(
        'invalid_options',
        `the MCP server ${name} needs values that no archive has: ${missing.join(', ')}`,
        { remedy: remedyFor(name, server, missing) },
      )
    return [name, { ...server, env, headers }]
  })
  return filled.length === 0 ? task : { ...task, mcpServers: Object.fromEntries(filled) }
}

/** The placeholder of its token, where the user is signed in to the server. */
function tokenHeader(server: Servers[string], planned: Servers[string] | undefined): Record<string, string> {
  const header = planned?.headers?.Authorization
  return header === undefined || planned === undefined || whereOf(planned) !== whereOf(server)
    ? {}
    : { Authorization: header }
}

/** A server with an address takes a sign-in in the place of a header. */
function remedyFor(name: string, { url = '' }: Servers[string], missing: readonly string[]): string {
  const configure = `configure it here, as mcpServers.${name} of the configuration`
  return missing.includes('Authorization') && url.startsWith('https:')
    ? `sign in to it: caisson mcp login ${name}; or, where the header is a key, ${configure}`
    : configure
}

/** What decides who gets the values of a server. */
function whereOf({ transport, command, args = [], cwd, url }: Servers[string]): string {
  return JSON.stringify([transport, command, args, cwd, url])
}

/**
 * The options to continue a run with, whose limits {@link withinLimits} has lowered. A run that it continued, and a plan
 * from elsewhere, are in its task.
 * @throws {CaissonError} `invalid_options` when the application does not pass the same functions
 */
export function resumedOptions({ options, task, functions }: StoredRun, given: ResumeOptions): RunOptions {
  const { continue: _, plan: { from: __, ...plan } = {}, ...stored } = options
  const {
    interactive,
    extensions = {},
    takeOver: ___,
    fromBeginning: ____,
    endIfCancelled: _____,
    limits: ______,
    context = {},
    ...functionsGiven
  } = given
  const missing = functions.hostTools.filter((name) => !Object.hasOwn(extensions.hostTools ?? {}, name))
  if (missing.length > 0 || (extensions.hooks ?? []).length !== functions.hooks)
    throw new CaissonError(
      'invalid_options',
      `the run was started with the host tools ${functions.hostTools.join(', ') || '(none)'} and ${functions.hooks} hooks; pass the same to continue it`,
    )
  const isInteractive =
    interactive === 'stored'
      ? (stored.approvals?.interactive ?? true)
      : (interactive ?? given.onApproval !== undefined)
  return {
    ...stored,
    ...functionsGiven,
    prompt: task.prompt,
    plan,
    approvals: { ...stored.approvals, interactive: isInteractive },
    extensions: { ...stored.extensions, ...extensions },
    context: { ...stored.context, ...context },
  }
}

type Bounds = Readonly<{ [Name in keyof RunLimits]?: number | undefined }>

/**
 * The run, bound by these limits where they are lower. The host keeps to those of the options, the agent to those of the
 * task; an archive may have others in each. Options that name no limit have that of the task.
 */
export function withinLimits(stored: StoredRun, bounds: Bounds): StoredRun {
  const { options, task } = stored
  const limits = lowered(options.limits ?? {}, bounds, task.limits)
  return {
    ...stored,
    options: { ...options, limits },
    task: { ...task, limits: lowered(task.limits, bounds) },
  }
}

/** @param others where `limits` has none */
function lowered<L extends Partial<RunLimits>>(limits: L, bounds: Bounds, others: Bounds = {}): L {
  const own: Readonly<Record<string, number | undefined>> = { ...others, ...limits }
  const lower = Object.entries(bounds).filter(
    ([name, bound]) => bound !== undefined && bound < (own[name] ?? Number.POSITIVE_INFINITY),
  )
  return { ...limits, ...Object.fromEntries(lower) }
}
