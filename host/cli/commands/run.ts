/** `caisson run`: starts a run, shows it, puts approvals before the person, and brings the changes home. */

import path from 'node:path'
import { type Command, Option } from 'commander'
import { CaissonError } from '#specs/errors.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { ApprovalMode } from '../../approvals/queue.ts'
import { readApprovalRules } from '../../approvals/rules.ts'
import type { Host, RunOptions } from '../../host.ts'
import { readMetadata } from '../../journal/run-query.ts'
import { readOutputSchema } from '../../runs/output-schema.ts'
import type { Run } from '../../runs/run.ts'
import { type ExitCode, exitCodeOfEnd, exitCodes } from '../exit-codes.ts'
import { Interrupts } from '../interrupts.ts'
import { findRun, hostOf, type Io } from '../io.ts'
import {
  addConfigOption,
  addDetailOptions,
  addEgressOptions,
  addVmOptions,
  type CommandInput,
  collect,
  type Example,
  parseCount,
  parseCountOrNone,
  parseDollars,
  parseDuration,
  type RunAction,
  type VmFlags,
  vmOptionsOf,
  withFlags,
} from '../options.ts'
import { askRules } from '../prompts/ignore-rules-prompt.ts'
import { captureInput } from '../prompts/terminal-input.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { ProgressView } from '../render/progress.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import type { Detail } from '../render/turn-lines.ts'
import { checkOutputFile, giveAnswer } from './answer-output.ts'
import { follow, followAsJson } from './follow.ts'
import { loadMcpFile } from './mcp.ts'
import { rulesOfFlags } from './policy.ts'
import { reviewAndApply } from './review-changes.ts'
import { keepNotes, noteChoice, reviewNotes } from './review-notes.ts'
import { readTaskInput } from './task-input.ts'

export function addRunCommand(command: Command, run: RunAction, { example }: CommandInput): void {
  command
    .argument(
      '[task]',
      'what the agent should do, or "-" to read it from standard input; optional with --plan-from',
    )
    .action(run((io: Io, task: string | undefined, flags: RunFlags) => runTask(io, task, flags, example)))
    .optionsGroup('Task and files:')
    .option('-w, --workspace <dir>', 'directory to work on (default: the current one)')
    .option(
      '--include <pattern>',
      'also copy matching paths that are ignored or look like secrets; repeatable',
      collect,
    )
    .option('--accept-ignore-rules', 'accept the ignore rules as changed by earlier runs')
    .option('-m, --model <id>', 'model to use (default: CAISSON_MODEL, else the configured one)')
  addConfigOption(command)
    .option('--tool <name>', 'allow only this tool; repeatable', collect)
    .option('--mcp <file>', 'JSON file of MCP servers (mcpServers format)')
    .option('--approve <how>', 'how to decide approvals: ask, all, none, or a file of rules', 'ask')
    .option('--apply', 'apply changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--accept-memory', 'keep the notes that a completed run proposes, without asking')
    .option('--metadata <key=value>', 'fact about the run for lists, such as ticket=T-1; repeatable', collect)
    .option('--replay <run>', 'replay a recorded run, without network access')
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .addOption(
      new Option(
        '-q, --quiet',
        'print the final answer alone; problems and questions go to standard error',
      ).conflicts('json'),
    )
    .option('-o, --output <file>', 'write the final answer of a completed run to this file')
    .option('--output-schema <file>', 'make the final answer JSON that fits the JSON schema in this file')
  addDetailOptions(command)
  command
    .optionsGroup('Plan:')
    .option('--plan-only', 'make a plan and stop; files stay read-only in the VM')
    .option('--approve-plan', 'ask for approval of the plan, and of each revision, before it runs')
    .option('--plan-from <run|file>', 'run the plan of an earlier run, or a plan in a JSON file')
  addEgressOptions(command.optionsGroup('Network access:'))
  command
    .optionsGroup('Limits:')
    .option('--max-time <duration>', 'wall-clock time, for example 20m', parseDuration)
    .option('--max-tokens <count>', 'input and output tokens', parseCount)
    .option('--max-requests <count>', 'model requests', parseCount)
    .option('--max-cost <dollars>', 'cost in US dollars, by the configured prices', parseDollars)
    .option('--max-agents <count>', 'sub-agents; 0 disables them', parseCountOrNone)
    .optionsGroup('VM:')
    .option('--continue [run]', 'continue a run (default: the most recently started one on this directory)')
    .option('--keep-vm', 'keep the VM for a later --continue; implied by --continue')
    .option('--no-template', 'boot the VM instead of restoring it from a template')
  addVmOptions(command)
}

/** What `RunStore.find` can find; whatever else stands behind `--continue` is the task. */
const runName = /^(last|run-\S*|[0-9a-f]{1,20})$/

/** The arguments of `caisson run` with `--continue=last` where a task follows, or nothing that could be its value. */
export function settleContinue(argv: readonly string[]): string[] {
  const end = argv.indexOf('--')
  return argv.map((argument, at) => {
    if (argument !== '--continue' || (end >= 0 && at > end)) return argument
    const next = argv[at + 1]
    return next === undefined || next.startsWith('-') || runName.test(next) ? argument : '--continue=last'
  })
}

interface RunFlags extends VmFlags, Detail {
  readonly workspace?: string
  readonly include?: string[]
  readonly acceptIgnoreRules?: boolean
  readonly model?: string
  /** `KEY=VALUE` over the configuration. */
  readonly config?: string[]
  readonly tool?: string[]
  /** A file of MCP servers. */
  readonly mcp?: string
  readonly approve: string
  /** `KEY=VALUE`. */
  readonly metadata?: string[]
  readonly planOnly?: boolean
  readonly approvePlan?: boolean
  /** A run, or a file. */
  readonly planFrom?: string
  /** A run, or the directory of one. */
  readonly replay?: string
  readonly allowHost?: string[]
  /** A file of rules of egress. */
  readonly egress?: string
  /** True, false for `--no-apply`, absent for neither. */
  readonly apply?: boolean
  /** Keeps what the run proposes to remember. */
  readonly acceptMemory?: boolean
  readonly maxTime?: number
  readonly maxTokens?: number
  readonly maxRequests?: number
  readonly maxCost?: number
  readonly maxAgents?: number
  readonly json?: boolean
  /** Prints the final answer alone. */
  readonly quiet?: boolean
  /** A file for the final answer. */
  readonly output?: string
  /** A file with a JSON schema. */
  readonly outputSchema?: string
  /** True for the last run on the directory, or the name of a run. */
  readonly continue?: true | string
  readonly keepVm?: boolean
  /** Boots the VM instead of copying a template. */
  /** `--no-template`. */
  readonly template?: false
}

async function runTask(
  io: Io,
  task: string | undefined,
  flags: RunFlags,
  example: Example | undefined,
): Promise<ExitCode> {
  const isGiven = flags.planFrom !== undefined
  const input = await readTaskInput(io, {
    task,
    isJson: flags.json === true,
    isOptional: isGiven || example !== undefined,
  })
  const isExample = input.task === undefined && !isGiven
  const prompt = input.task ?? (isExample ? example?.task : undefined) ?? ''
  if (prompt.trim() === '' && !isGiven)
    throw new CaissonError('invalid_options', 'no task given; expected: caisson run "TASK"')
  const output = flags.output === undefined ? undefined : await checkOutputFile(flags.output)
  const place = flags.workspace ?? (isExample ? example?.workspace : undefined)
  const options = {
    ...(await optionsOf(io, prompt, await nameLast(io, flags, place))),
    ...(place === undefined ? {} : { workspace: place }),
    ...(input.context === undefined ? {} : { context: input.context }),
  }
  // What a quiet run has to say beside its answer goes to standard error, questions included.
  const shown = flags.quiet === true ? { ...io, stdout: io.stderr } : io
  const { code, end } =
    flags.json === true ? await runJson(io, options, flags) : await runShown(shown, options, flags)
  await giveAnswer(io, end, { output, quiet: flags.quiet })
  return code
}

interface Ended {
  readonly code: ExitCode
  readonly end: RunState['end']
}

/** The flags with the id of a run in the place of `last`. */
async function nameLast(io: Io, flags: RunFlags, place: string | undefined): Promise<RunFlags> {
  const named = { ...flags, ...(flags.continue === true ? { continue: 'last' } : {}) }
  const uses = (['continue', 'replay', 'planFrom'] as const).filter((flag) => named[flag] === 'last')
  if (uses.length === 0) return named
  const runId = await findRun(io, 'last', place)
  return { ...named, ...Object.fromEntries(uses.map((flag) => [flag, runId])) }
}

async function optionsOf(io: Io, prompt: string, flags: RunFlags): Promise<RunOptions> {
  const modes: readonly string[] = ['ask', 'all', 'none']
  const rules = modes.includes(flags.approve) ? [] : await readApprovalRules(flags.approve)
  const given = <T>(name: string, value: T | undefined) => (value === undefined ? {} : { [name]: value })
  return {
    prompt,
    ...given('model', flags.model),
    ...given('tools', flags.tool),
    ...given('continue', flags.continue),
    ...given('replay', flags.replay),
    ...given('metadata', flags.metadata === undefined ? undefined : readMetadata(flags.metadata)),
    ...given(
      'outputSchema',
      flags.outputSchema === undefined ? undefined : await readOutputSchema(flags.outputSchema),
    ),
    files: {
      ...given('include', flags.include),
      ...given('acceptIgnoreRules', flags.acceptIgnoreRules),
    },
    plan: {
      ...given('only', flags.planOnly),
      ...given('from', flags.planFrom),
      ...given('approve', flags.approvePlan),
    },
    approvals: {
      mode: rules.length > 0 || !modes.includes(flags.approve) ? 'ask' : (flags.approve as ApprovalMode),
      rules,
      interactive:
        flags.json === true ||
        (io.stdin.isTTY === true && (flags.quiet === true ? io.stderr : io.stdout).isTTY === true),
    },
    egress: { rules: await rulesOfFlags(flags) },
    limits: {
      ...given('maxWallMs', flags.maxTime),
      ...given('maxTokens', flags.maxTokens),
      ...given('maxRequests', flags.maxRequests),
      ...given('maxCostUsd', flags.maxCost),
      ...given('maxAgents', flags.maxAgents),
    },
    vm: {
      ...vmOptionsOf(flags),
      start: flags.template === false ? 'cold' : 'auto',
      ...given('keep', flags.keepVm),
    },
    extensions: given('mcpServers', flags.mcp === undefined ? undefined : await loadMcpFile(flags.mcp)),
  }
}

/** For people: progress on stdout, questions where a terminal is. */
async function runShown(io: Io, given: RunOptions, flags: RunFlags): Promise<Ended> {
  const host = hostOf(io, flags.config)
  const isInteractive = given.approvals?.interactive === true
  const isAsked = isInteractive && given.files?.acceptIgnoreRules !== true
  const options =
    isAsked && (await askRules(io, host, given.workspace))
      ? { ...given, files: { ...given.files, acceptIgnoreRules: true } }
      : given
  using view = new ProgressView(io.stdout, {
    isQuiet: flags.quiet === true,
    verbose: flags.verbose,
    reasoning: flags.reasoning,
  })
  const run = await startShown(io, host, options, view)
  {
    const onFirst = () => view.lines(['Cancelling; press Ctrl-C again to stop immediately.'])
    using interrupts = new Interrupts(run, io.stdout, onFirst)
    await follow(io, view, run, interrupts, { isInteractive, folder: host.runs.paths(run.id).directory })
  }
  const state = await run.ended
  view.end(state)
  if (flags.quiet !== true) io.stdout.write(`Run ${run.id} · journal head ${run.journalHead.slice(0, 16)}\n`)
  if (flags.quiet !== true && options.plan?.only === true && state.end?.outcome === 'completed')
    io.stdout.write(`Run the plan: ${howToCarryOut(run.id, options.workspace)}\n`)
  const asked = isInteractive && state.end?.outcome !== 'cancelled'
  const review = () =>
    reviewNotes(io, host, run.id, { choice: noteChoice(flags.acceptMemory, asked, state), state })
  if (state.changes === null) {
    await review()
    return { code: exitCodeOfEnd(state.end), end: state.end }
  }
  const choice = flags.apply ?? (asked ? 'ask' : 'nobody')
  const isSilent = flags.quiet === true && choice !== 'ask'
  const home = await reviewAndApply(io, host, run.id, {
    choice,
    state,
    ...(isSilent ? { emit: async () => undefined } : {}),
  })
  if (isSilent && home !== exitCodes.completed)
    io.stdout.write(`caisson: changes were not applied; to see them: caisson workspace diff ${run.id}\n`)
  await review()
  return { code: state.end?.outcome === 'completed' ? home : exitCodeOfEnd(state.end), end: state.end }
}

/**
 * Keys that are typed before the run is there say nothing to anybody, and do not stand in the status line;
 * then they are for who follows it.
 */
async function startShown(io: Io, host: Host, options: RunOptions, view: ProgressView): Promise<Run> {
  using keys = options.approvals?.interactive === true ? captureInput(io.stdin, () => undefined) : undefined
  const run = await host.run({
    ...options,
    onProgress: (text) => view.hint(text),
    onNotes: (notes) => view.lines(notes.map(withFlags)),
  })
  keys?.handOver()
  return run
}

/** For programs: one JSON object a line. */
async function runJson(io: Io, options: RunOptions, flags: RunFlags): Promise<Ended> {
  const host = hostOf(io, flags.config)
  const run = await host.run({
    ...options,
    onProgress: (text) => io.stderr.write(`${sanitizeLine(text)}\n`),
    onNotes: (notes) => io.stderr.write(notes.map((note) => `${withFlags(note)}\n`).join('')),
  })
  {
    using _ = new Interrupts(run, io.stdout, () =>
      io.stderr.write('cancelling; interrupt again to stop immediately\n'),
    )
    // When nobody can answer any more, what waits and what comes is denied.
    await followAsJson(io, run, () => void run.detach())
  }
  const state = await run.ended
  const emit = (event: object) => writeJsonLine(io.stdout, { ...event, journalHead: run.journalHead })
  if (state.proposedNotes.length > 0 && noteChoice(flags.acceptMemory, false, state) === 'keep') {
    const decided = await keepNotes(io, host, run.id)
    if (decided !== null) await emit({ source: 'notes', runId: run.id, ...decided })
  }
  if (state.changes === null) return { code: exitCodeOfEnd(state.end), end: state.end }
  const home = await reviewAndApply(io, host, run.id, { choice: flags.apply ?? 'nobody', state, emit })
  return { code: state.end?.outcome === 'completed' ? home : exitCodeOfEnd(state.end), end: state.end }
}

/** The command that carries a plan out where it was made. */
function howToCarryOut(runId: string, workspace: string | undefined): string {
  const elsewhere = workspace !== undefined && path.resolve(workspace) !== process.cwd()
  return `caisson run${elsewhere ? ` -w ${quote(workspace)}` : ''} --plan-from ${runId}`
}

function quote(word: string): string {
  return /^[\w./-]+$/.test(word) ? word : `'${sanitizeLine(word).replaceAll("'", "'\\''")}'`
}
