/** What `run`, `chat`, `attach`, `runs`, `approvals` and `workflow` accept. */
import { type Command, Option } from 'commander'
import type { AnswerReach, ApprovalScope } from '#specs/protocol/approval.ts'
import type { ChatFlags } from '../commands/chat.ts'
import type { RunFlags } from '../commands/run-flags.ts'
import type { WorkflowRunFlags } from '../commands/workflow-run.ts'
import type { Io } from '../io.ts'
import {
  addConfigOption,
  addDetailOptions,
  addEgressOptions,
  addEnvFileOption,
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
        (await import('../commands/run.ts')).runTask(
          await (await import('../env-file.ts')).withEnvFile(io, flags.envFile),
          task,
          flags,
          example,
        ),
      ),
    )
  addWorkOptions(command.optionsGroup('Task and files:'))
    .option('--image <file>', 'image in the directory that the model sees with the task; repeatable', collect)
    .option('--replay <run>', 'replay a recorded run, without network access')
  addShowOptions(command)
    .addOption(
      new Option('--detach', 'run in a background process; see: caisson attach, caisson approvals').conflicts(
        ['json', 'quiet', 'output'],
      ),
    )
    .addOption(
      new Option(
        '--here',
        'run in this process, also while a service of yours runs (caisson serve)',
      ).conflicts(['fleet']),
    )
    .option(
      '--fleet',
      'let any host of the fleet of your service run it; each needs the folder at the same path',
    )
    .addOption(
      new Option('--web', 'show the run on the web page too; questions can be answered there').conflicts([
        'json',
        'quiet',
        'detach',
      ]),
    )
  addAnswerOption(command).option(
    '--output-schema <file>',
    'make the final answer JSON that fits the JSON schema in this file',
  )
  addDetailOptions(command)
  command
    .optionsGroup('Plan:')
    .option('--plan-only', 'make a plan and stop; files stay read-only in the VM')
    .option('--approve-plan', 'ask for approval of the plan, and of each revision, before it runs')
    .option('--plan-from <run|file>', 'run the plan of an earlier run, or a plan in a JSON file')
  addBounds(command)
    .optionsGroup('VM:')
    .option('--continue [run]', 'continue a run (default: the most recently started one on this directory)')
  addVm(command)
}

/** `caisson workflow run`. */
function addWorkflowRunCommand(command: Command, run: RunAction): void {
  command
    .argument('<file>', 'workflow file, or AGENT@VERSION of a published one')
    .description('Run a workflow')
    .action(
      run(async (io: Io, file: string, flags: WorkflowRunFlags) =>
        (await import('../commands/workflow-run.ts')).workflowRun(
          await (await import('../env-file.ts')).withEnvFile(io, flags.envFile),
          file,
          flags,
        ),
      ),
    )
    .optionsGroup('Input and files:')
    .option('--input <json|@file>', 'input of the workflow as JSON, or a file with it (default: null)')
  addShowOptions(addWorkOptions(command))
  addDetailOptions(addAnswerOption(command))
  addBounds(command).optionsGroup('VM:')
  addVm(command)
}

/** What a run works on, and what it may do. */
function addWorkOptions(command: Command): Command {
  command
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
  addReasoningOptions(command).option(
    '--step-model <id>',
    'model that the agent may choose for a step or a sub-agent; NAME=ID names it; repeatable',
    collect,
  )
  addConfigOption(addEnvFileOption(command))
    .option('--tool <name>', 'allow only this tool; repeatable', collect)
    .option('--mcp <file>', 'JSON file of MCP servers (mcpServers format)')
    .option('--approve <how>', 'how to decide approvals: ask, all, none, or a file of rules', 'ask')
    .option('--apply', 'apply changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--accept-memory', 'keep the notes that a completed run proposes, without asking')
    .option('--metadata <key=value>', 'fact about the run for lists, such as ticket=T-1; repeatable', collect)
  return command
}

/** What goes with the model of a run. */
function addReasoningOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--effort <level>', 'how much the model reasons (default: as it does by itself)').choices([
        'none',
        'low',
        'medium',
        'high',
      ]),
    )
    .option(
      '--fallback <id>',
      'model to ask where the other cannot answer; repeatable, in this order',
      collect,
    )
}

function addShowOptions(command: Command): Command {
  return command
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .addOption(
      new Option(
        '-q, --quiet',
        'print the final answer alone; problems and questions go to standard error',
      ).conflicts('json'),
    )
}

function addAnswerOption(command: Command): Command {
  return command.option('-o, --output <file>', 'write the final answer of a completed run to this file')
}

/** Network access and limits. */
function addBounds(command: Command): Command {
  addEgressOptions(command.optionsGroup('Network access:'))
  return command
    .optionsGroup('Limits:')
    .option('--max-time <duration>', 'wall-clock time, for example 20m', parseDuration)
    .option('--max-tokens <count>', 'input and output tokens', parseCount)
    .option('--max-requests <count>', 'model requests', parseCount)
    .option('--max-cost <dollars>', 'cost in US dollars, by the configured prices', parseDollars)
    .option('--max-agents <count>', 'sub-agents; 0 disables them', parseCountOrNone)
    .option('--max-depth <count>', 'depth of sub-agents that start their own, 1 to 5', parseCount)
}

function addVm(command: Command): void {
  command
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
  addEnvFileOption(addReasoningOptions(command))
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

export function addReplayCommand(command: Command, run: RunAction): void {
  addDetailOptions(command)
    .argument('<run>', runArgument)
    .option('--json', 'print one JSON event per line, then the result')
    .action(run(lazy(async () => (await import('../commands/replay.ts')).replay)))
}

export function addRunsCommands(runs: Command, run: RunAction): void {
  runs
    .command('list')
    .description('List runs, newest first')
    .option(
      '--filter <key=value>',
      'list only runs with this status (completed, failed, cancelled, running, waiting, sleeping, interrupted or damaged), workspace, model or metadata=KEY=VALUE; repeatable',
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
    .option('--agent <path>', 'send it to this sub-agent, such as tests')
    .description('Send a message to the agent; it sees the message on its next turn')
    .action(run(lazy(async () => (await import('../commands/act-on-run.ts')).runsSteer)))
  add('pause')
    .description('Pause the agent before its next step; the VM keeps running (see: caisson vm pause)')
    .action(run(lazy(async () => (await import('../commands/act-on-run.ts')).runsPause)))
  addDetailOptions(runs.command('resume').argument('[run]', runArgument))
    .description('Resume a paused agent, or continue a run whose host process ended or that sleeps')
    .option('--all', 'continue each run without a host process that waits for no answer, one after the other')
    .addOption(new Option('--detach', 'continue in a background process').conflicts('json'))
    .option('--take-over', 'end the process that has the run first; it may be stopped')
    .option('--restart', 'start the run again from its beginning')
    .option('--apply', 'apply changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .action(run(lazy(async () => (await import('../commands/act-on-run.ts')).runsResume)))
  addDetailOptions(add('fork').argument('[words...]', 'what to say to each new run, one argument each'))
    .description('Continue a run from an earlier moment in new runs; the run itself stays as it is')
    .requiredOption('--at <step>', 'step before which the new runs begin, or "start", "end" or "now"')
    .option('-n, --count <count>', 'number of new runs (default: one for each message, else 1)', parseCount)
    .option('--no-start', 'make the new runs without starting them')
    .option('--apply', 'with one new run: apply changes that are neither flagged nor in conflict')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--json', 'print one JSON event per line')
    .action(run(lazy(async () => (await import('../commands/forks.ts')).runsFork)))
  addDetailOptions(add('rewind').argument('[words]', 'what to say to the run from there'))
    .description('Continue a run from an earlier moment in a run that takes its place')
    .requiredOption('--to <step>', 'step before which the new run begins, or "start", or "end"')
    .option('--despite-effects', 'rewind although the run had effects outside its VM since, which stay')
    .option('--no-start', 'make the new run without starting it')
    .option('--apply', 'apply changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .action(run(lazy(async () => (await import('../commands/forks.ts')).runsRewind)))
  runs
    .command('compare')
    .argument('<run...>', 'two or more runs that began with the same files, such as forks')
    .description('Show the changes of several runs side by side')
    .option(
      '--test <command>',
      'run this command over the result of each run, in a VM without network access',
    )
    .option('--test-timeout <duration>', 'end each test after this time', parseDuration)
    .option('--json', 'print one JSON object')
    .action(run(lazy(async () => (await import('../commands/compare.ts')).runsCompare)))
  runs
    .command('merge')
    .argument('<run...>', 'two or more runs that began with the same files, such as forks')
    .description('Merge the changes of several runs into those of a new run, to review and apply')
    .option(
      '--take <run:path[:hunks]>',
      'use this change, or these hunks of it, such as a1b2:src/a.ts:1,3; repeatable',
      collect,
    )
    .option('--json', 'print one JSON object')
    .action(run(lazy(async () => (await import('../commands/compare.ts')).runsMerge)))
  add('cancel')
    .description('Cancel a run; its changes are collected first')
    .addOption(
      new Option('--now', 'stop immediately, without collecting changes').conflicts(['agent', 'reason']),
    )
    .option('--agent <path>', 'cancel only this sub-agent, such as tests; the run continues')
    .option('--reason <text>', 'with --agent: what the agent that started it should know')
    .action(run(lazy(async () => (await import('../commands/act-on-run.ts')).runsCancel)))
  add('export')
    .option('-o, --output <file>', 'write to this file instead of standard output')
    .description('Write a run as one file, without keys and secrets')
    .action(run(lazy(async () => (await import('../commands/transfer.ts')).runsExport)))
  runs
    .command('import')
    .argument('<file>', 'file of `caisson runs export`')
    .option('-w, --workspace <dir>', 'directory that the changes are for (default: the current one)')
    .description('Make a run of an exported file')
    .action(run(lazy(async () => (await import('../commands/transfer.ts')).runsImport)))
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
      .option('--digest <digest>', 'answer only the question that list --json shows with this digest')
  const scope = (choices: readonly ApprovalScope[]) =>
    new Option('--scope <scope>', 'how long the decision is valid').choices(choices).default('once')
  const duration = () =>
    new Option('--for <duration>', 'with --scope run: how long, for example 10m').argParser(parseDuration)
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
    .addOption(duration())
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
    .addOption(duration())
    .option('--hint <text>', 'what the agent should do instead')
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsDeny)))
  approvals
    .command('remembered')
    .argument('<run>', runArgument)
    .description('List the answers for a run that apply to its later calls')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsRunAnswers)))
  approvals
    .command('revoke')
    .showHelpAfterError('(to list the answers for a run and their IDs: caisson approvals remembered RUN)')
    .argument('<run>', runArgument)
    .argument('<approval>', 'ID as listed by remembered, or a unique prefix of it')
    .description('Revoke an answer for a run, so that later calls are asked about again')
    .action(run(lazy(async () => (await import('../commands/approvals.ts')).approvalsRevoke)))
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

export function addWorkflowCommands(workflow: Command, run: RunAction): void {
  addWorkflowRunCommand(workflow.command('run'), run)
  workflow
    .command('check')
    .argument('<file...>', 'workflow file, or AGENT@VERSION of a published one')
    .description('Check workflow files; print every problem with its line')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowCheck)))
  workflow
    .command('draw')
    .argument('<file>', 'workflow file, or AGENT@VERSION of a published one')
    .option('--svg', 'draw an SVG image instead of a Mermaid flowchart')
    .option('-o, --output <file>', 'write to a new file instead of standard output')
    .description('Draw a workflow as a Mermaid flowchart or an SVG image')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowDraw)))
  workflow
    .command('list')
    .argument('[folder]', 'folder with workflow files; without it, the current directory')
    .description('List the workflow files of a folder; without a folder also the published ones')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowList)))
  workflow
    .command('publish')
    .argument('<file...>', 'workflow file')
    .description('Publish workflow files under their AGENT@VERSION, which never changes')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowPublish)))
  workflow
    .command('show')
    .argument('<name>', 'AGENT@VERSION of a published workflow')
    .description('Print a published workflow')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowShow)))
  workflow
    .command('rm')
    .argument('<name...>', 'AGENT@VERSION of a published workflow')
    .description('Remove published workflows; runs keep their copies')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowRemove)))
  workflow
    .command('schema')
    .description('Print the JSON schema of workflow files, for editors')
    .action(run(lazy(async () => (await import('../commands/workflow.ts')).workflowSchema)))
}
