/** What `run`, `chat`, `attach`, `runs` and `approvals` accept. */
import { type Command, Option } from 'commander'
import type { AnswerReach, ApprovalScope } from '#specs/protocol/approval.ts'
import type { ChatFlags } from '../commands/chat.ts'
import type { RunFlags } from '../commands/run.ts'
import type { Io } from '../io.ts'
import {
  addConfigOption,
  addDetailOptions,
  addEgressOptions,
  addVmOptions,
  type CommandInput,
  collect,
  lazy,
  parseCount,
  parseCountOrNone,
  parseDollars,
  parseDuration,
  type RunAction,
  runArgument,
} from '../options.ts'

export function addRunCommand(command: Command, run: RunAction, { example }: CommandInput): void {
  command
    .argument(
      '[task]',
      'what the agent should do, or "-" to read it from standard input; optional with --plan-from',
    )
    .action(
      run(async (io: Io, task: string | undefined, flags: RunFlags) =>
        (await import('../commands/run.ts')).runTask(io, task, flags, example),
      ),
    )
    .optionsGroup('Task and files:')
    .option('-w, --workspace <dir>', 'directory to work on (default: the current one)')
    .option(
      '--add-dir <dir>',
      'also copy this folder, read-only, to /mnt/folders/NAME; NAME=DIR names it; repeatable',
      collect,
    )
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

export function addChatCommand(command: Command, run: RunAction, { runCommand }: CommandInput): void {
  command
    .argument('[run-options...]', 'options of `caisson run` for every task, after --')
    .option('-w, --workspace <dir>', 'directory to work on (default: the current one)')
    .option('--add-dir <dir>', 'also copy this folder, read-only, as with `caisson run`; repeatable', collect)
    .option('-m, --model <id>', 'model to use')
    .option('--continue <run>', `run to continue: ${runArgument}`)
    .action(
      run(async (io: Io, options: string[], flags: ChatFlags) =>
        (await import('../commands/chat.ts')).converse(io, options, flags, runCommand),
      ),
    )
}

export function addAttachCommand(command: Command, run: RunAction): void {
  addDetailOptions(command)
    .argument('<run>', runArgument)
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .action(run(lazy(async () => (await import('../commands/attach.ts')).attach)))
}

export function addRunsCommands(runs: Command, run: RunAction): void {
  runs
    .command('list')
    .description('List runs, newest first')
    .option(
      '--filter <key=value>',
      'list only runs with this status, workspace, model or metadata=KEY=VALUE; repeatable',
      collect,
    )
    .option('-n, --last <count>', 'list only the last runs', parseCount)
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsList)))
  const add = (name: string) => runs.command(name).argument('<run>', runArgument)
  addDetailOptions(add('show'))
    .description('Show what happened in a run')
    .option('--json', 'print the journal as one JSON event per line')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsShow)))
  add('steer')
    .argument('<text>', 'what the agent should know')
    .description('Send a message to the agent; it sees the message on its next turn')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsSteer)))
  add('pause')
    .description('Pause the agent before its next step; the VM keeps running (see: caisson vm pause)')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsPause)))
  addDetailOptions(runs.command('resume').argument('[run]', runArgument))
    .description('Resume a paused agent, or continue a run whose host process ended')
    .option('--all', 'continue each run whose host process ended, one after the other')
    .option('--apply', 'apply changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsResume)))
  add('cancel')
    .description('Cancel a run; its changes are collected first')
    .option('--now', 'stop immediately, without collecting changes')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsCancel)))
  runs
    .command('rm')
    .argument('<run...>')
    .description('Remove runs with their journals and change sets')
    .action(run(lazy(async () => (await import('../commands/runs.ts')).runsRemove)))
}

export function addApprovalCommands(approvals: Command, run: RunAction): void {
  const add = (name: string) =>
    approvals
      .command(name)
      .showHelpAfterError('(to list the open approvals and their IDs: caisson approvals list)')
      .argument('<run>', runArgument)
      .argument('<approval>', 'ID as listed, or a unique prefix of it')
  const scope = (choices: readonly ApprovalScope[]) =>
    new Option('--scope <scope>', 'how long the decision is valid').choices(choices).default('once')
  approvals
    .command('list')
    .argument('[run]', `${runArgument} (default: all active runs)`)
    .description('List open approvals and questions')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsList)))
  add('answer')
    .argument(
      '[value...]',
      'the answer, or several of the choices; put values that start with a dash after --',
    )
    .description('Answer a question of the agent')
    .option('--default', 'use the default answer of the question')
    .option('--hint <text>', 'a comment for the agent')
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsAnswer)))
  add('allow')
    .description('Allow a tool call, a plan or network access')
    .addOption(scope(['once', 'run', 'always']))
    .addOption(
      new Option(
        '--reach <reach>',
        'for network access: how much to allow around the address; for a command with --scope run: only the same command',
      ).choices(['host', 'suffix', 'path', 'command'] satisfies AnswerReach[]),
    )
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsAllow)))
  add('deny')
    .description('Deny an approval, or decline to answer a question')
    .addOption(scope(['once', 'run']))
    .option('--hint <text>', 'what the agent should do instead')
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsDeny)))
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
