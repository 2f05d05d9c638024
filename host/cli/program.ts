/** The command line: what commands there are and what they take. Each command's work is in a file of its own. */
import { Argument, Command, Option } from 'commander'
import { addApprovalCommands } from './commands/approvals-program.ts'
import { addMcpCommands } from './commands/mcp-program.ts'
import { addMemoryCommands } from './commands/memory-program.ts'
import { addRunCommand } from './commands/run-program.ts'
import { addRunsCommands } from './commands/runs-program.ts'
import { type Action, addVmCommands } from './commands/vm-program.ts'
import { exitCodes } from './exit-codes.ts'
import type { Io } from './io.ts'
import { addEgressOptions, addVmOptions, parseAge } from './options.ts'

const completionShells = ['bash', 'zsh', 'fish']
const runArgument = 'its id, the beginning of it, or "last"'

export interface ProgramOptions {
  readonly io: Io
  /** For `run` without a task. */
  readonly example?: { readonly task: string; readonly workspace: string }
  readonly onExit: (code: number) => void
  /** For `vm shell`: what stands behind `--`. */
  readonly command?: readonly string[]
}

export function buildProgram(options: ProgramOptions): Command {
  const { io } = options
  const program = new Command('caisson')
    .description('Runs an AI agent in a small VM on a copy of your files; you review what comes back.')
    .version(io.version)
    .showHelpAfterError('(add --help for what is possible)')
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .exitOverride()
  /** Loads a command's file only when it is called, so that `--help` and a second start stay quick. */
  const run =
    (load: () => Promise<Action>) =>
    async (...args: unknown[]) =>
      options.onExit(await (await load())(...([io, ...args] as never[])))

  addRunCommand(program, run, options.example)

  program
    .command('attach')
    .argument('<run>', runArgument)
    .description(
      'Watches a run of another process from its start on, answers its questions, steers or cancels it',
    )
    .option('--json', 'one event a line on standard output, decisions as JSON lines on standard input')
    .action(run(async () => (await import('./commands/attach.ts')).attach))

  program
    .command('doctor')
    .description('Looks at this machine: QEMU, accelerator, confinement, image, memory, disk, keys')
    .option('--json', 'print the findings as JSON')
    .action(run(async () => (await import('./commands/doctor.ts')).doctor))

  const image = program.command('image').description('The VM image')
  program
    .command('clean')
    .description('Shows what Caisson keeps on disk; with --yes frees what is old or left over')
    .option('--yes', 'frees what is listed as going; without it nothing is removed')
    .option('--all', 'also what is current: the next run builds and downloads it again')
    .option('--runs', 'also ended runs, with their journals and change sets')
    .option('--older-than <age>', 'of the runs those that began so long ago (default: 30d)', parseAge)
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/clean.ts')).clean))

  const arch = () =>
    new Option('--arch <name>', 'architecture of the image').choices(['amd64', 'arm64']).default('amd64')
  image
    .command('build')
    .description('Builds the image if its recipe changed or a file of it is damaged')
    .addOption(arch())
    .option('--update-lock', 'resolve the packages anew and write packages.lock.json')
    .action(run(async () => (await import('./commands/image.ts')).imageBuild))
  image
    .command('info')
    .description('What the image is made of')
    .addOption(arch())
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/image.ts')).imageInfo))
  image
    .command('verify')
    .description('Checks every byte of the image against its manifest')
    .addOption(arch())
    .action(run(async () => (await import('./commands/image.ts')).imageVerify))
  image
    .command('sbom')
    .description('Prints the bill of materials of image and agent, CycloneDX JSON')
    .addOption(arch())
    .action(run(async () => (await import('./commands/image.ts')).imageSbom))

  const vm = program.command('vm').description('Virtual machines')
  addVmOptions(vm.command('boot'))
    .description('Boots a VM without a task, shows how long each phase took, and ends it at Ctrl-C')
    .option('-w, --workspace <dir>', 'takes a copy of this directory in')
    .option('--once', 'end it as soon as it is ready')
    .action(run(async () => (await import('./commands/vm.ts')).vmBoot))
  addVmCommands(vm, run, addVmOptions, options.command ?? [])

  const config = program.command('config').description('The configuration file')
  config
    .command('path')
    .description('Where it is, whether or not it is there')
    .action(run(async () => (await import('./commands/config.ts')).configPath))
  config
    .command('check')
    .description('Whether it fits, which model is asked of whom, and whether keys are where it says')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/config.ts')).configCheck))

  const policy = program.command('policy').description('What may leave a VM')
  addEgressOptions(policy.command('check').argument('<url>', 'a whole http or https address'))
    .description(
      'Whether a request and a tunnel to an address would be let out, by which rule, and where it leads',
    )
    .option('--method <name>', 'of the request', 'GET')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/policy.ts')).policyCheck))
  addEgressOptions(policy.command('explain'))
    .description('The rules in force, the strongest first, and where each comes from')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/policy.ts')).policyExplain))
  policy
    .command('revoke')
    .argument('[number...]', 'as listed; none: lists what was answered for always')
    .description('Takes back answers about ways out that were given for always')
    .action(run(async () => (await import('./commands/policy-revoke.ts')).policyRevoke))

  const key = program.command('key').description("Keys in the system's keyring")
  key
    .command('set')
    .argument('<name>', 'of the provider, or as the configuration names it')
    .description('Stores a key, typed unseen or piped to standard input')
    .action(run(async () => (await import('./commands/key.ts')).keySet))
  key
    .command('list')
    .description('The names of stored keys')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await import('./commands/key.ts')).keyList))
  key
    .command('rm')
    .argument('<name>')
    .description('Removes a key')
    .action(run(async () => (await import('./commands/key.ts')).keyRemove))

  addRunsCommands(
    program.command('runs').description('Runs that have ended, and those at work'),
    run,
    runArgument,
  )

  addApprovalCommands(
    program.command('approvals').description('What runs at work wait for a person to answer'),
    run,
    runArgument,
  )

  addMemoryCommands(program, run, runArgument)

  addMcpCommands(
    program.command('mcp').description('What MCP servers said of themselves when they were allowed'),
    run,
  )

  const workspace = program.command('workspace').description('What runs changed')
  workspace
    .command('diff')
    .argument('<run>', runArgument)
    .description('Shows the changes of a run')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/workspace.ts')).workspaceDiff))
  workspace
    .command('apply')
    .argument('<run>', runArgument)
    .argument('[path...]', 'what to apply; flagged paths only when named here')
    .option('--all', 'everything that is not flagged and does not conflict')
    .description('Applies changes of a run')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/workspace.ts')).workspaceApply))
  workspace
    .command('undo')
    .argument('<run>', runArgument)
    .description('Takes back what was applied')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./commands/workspace.ts')).workspaceUndo))
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'your shell').choices(completionShells))
    .description('Prints a completion script, for example: source <(caisson completion bash)')
    .action(run(async () => (await import('./completion.ts')).printCompletion))

  return program
}

/** Commander's own ends (help, version, wrong usage) as exit codes. */
export function exitCodeOfCommander(code: string): number {
  return code === 'commander.helpDisplayed' || code === 'commander.help' || code === 'commander.version'
    ? exitCodes.completed
    : exitCodes.usage
}
