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
const runArgument = 'run ID, a unique prefix of it, or "last" (most recently started)'

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
    .description('Run an AI agent in a small VM on a copy of your files, then review its changes.')
    .version(io.version)
    .showHelpAfterError('(add --help for usage)')
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
    .description('Watch a run of another process from its start; answer, steer or cancel it')
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .action(run(async () => (await import('./commands/attach.ts')).attach))

  program
    .command('doctor')
    .description('Check this machine: QEMU, accelerator, sandbox, image, memory, disk, keys')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/doctor.ts')).doctor))

  const image = program.command('image').description('Build and inspect the VM image')
  program
    .command('clean')
    .description('List what Caisson stores on disk; with --yes, remove what is old or left over')
    .option('--yes', 'remove the entries listed as "remove"; without it, nothing is removed')
    .option('--all', 'also remove current entries; the next run builds and downloads them again')
    .option('--runs', 'also remove finished runs with their journals and change sets')
    .option(
      '--older-than <age>',
      'with --runs: only runs that started at least this long ago (default: 30d)',
      parseAge,
    )
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/clean.ts')).clean))

  const arch = () =>
    new Option('--arch <name>', 'image architecture').choices(['amd64', 'arm64']).default('amd64')
  image
    .command('build')
    .description('Build the image if its recipe changed or one of its files is damaged')
    .addOption(arch())
    .option('--update-lock', 'resolve packages again and write packages.lock.json')
    .action(run(async () => (await import('./commands/image.ts')).imageBuild))
  image
    .command('info')
    .description('Show the image and its components')
    .addOption(arch())
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/image.ts')).imageInfo))
  image
    .command('verify')
    .description('Verify the image against its manifest')
    .addOption(arch())
    .action(run(async () => (await import('./commands/image.ts')).imageVerify))
  image
    .command('sbom')
    .description('Print the software bill of materials of image and agent (CycloneDX JSON)')
    .addOption(arch())
    .action(run(async () => (await import('./commands/image.ts')).imageSbom))

  const vm = program.command('vm').description('Manage virtual machines')
  addVmOptions(vm.command('boot'))
    .description('Boot a VM without a task, print the time of each phase, and stop it on Ctrl-C')
    .option('-w, --workspace <dir>', 'copy this directory into the VM')
    .option('--once', 'stop the VM as soon as it is ready')
    .action(run(async () => (await import('./commands/vm.ts')).vmBoot))
  addVmCommands(vm, run, addVmOptions, options.command ?? [])

  const config = program.command('config').description('Locate and check the configuration file')
  config
    .command('path')
    .description('Print the path of the configuration file, even if it does not exist')
    .action(run(async () => (await import('./commands/config.ts')).configPath))
  config
    .command('check')
    .description('Check the configuration file, the models and their providers, and the keys')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/config.ts')).configCheck))

  const policy = program
    .command('policy')
    .description('Inspect network access rules and revoke permanent grants')
  addEgressOptions(policy.command('check').argument('<url>', 'full http or https URL'))
    .description('Check whether a request to a URL and a tunnel to its host are allowed, and by which rule')
    .option('--method <name>', 'HTTP method of the request', 'GET')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/policy.ts')).policyCheck))
  addEgressOptions(policy.command('explain'))
    .description('List the rules in force and their sources, highest precedence first')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/policy.ts')).policyExplain))
  policy
    .command('revoke')
    .argument('[number...]', 'number of a grant; without one, list all permanent grants')
    .description('Revoke permanent network grants')
    .action(run(async () => (await import('./commands/policy-revoke.ts')).policyRevoke))

  const key = program.command('key').description("Manage keys in the system's keyring")
  key
    .command('set')
    .argument('<name>', 'name of the provider, or the name that the configuration uses')
    .description('Store a key; type it (not shown) or pipe it to standard input')
    .action(run(async () => (await import('./commands/key.ts')).keySet))
  key
    .command('list')
    .description('List the names of stored keys')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await import('./commands/key.ts')).keyList))
  key
    .command('rm')
    .argument('<name>')
    .description('Remove a key')
    .action(run(async () => (await import('./commands/key.ts')).keyRemove))

  addRunsCommands(
    program.command('runs').description('List, inspect, steer and remove runs'),
    run,
    runArgument,
  )

  addApprovalCommands(
    program.command('approvals').description('Answer the approvals that active runs wait for'),
    run,
    runArgument,
  )

  addMemoryCommands(program, run, runArgument)

  addMcpCommands(program.command('mcp').description('Manage approved MCP servers'), run)

  const workspace = program.command('workspace').description('Review, apply and undo the changes of runs')
  workspace
    .command('diff')
    .argument('<run>', runArgument)
    .description('Show the changes of a run')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/workspace.ts')).workspaceDiff))
  workspace
    .command('apply')
    .argument('<run>', runArgument)
    .argument('[path...]', 'path to apply; flagged paths are applied only if named here')
    .option('--all', 'apply everything that is neither flagged nor in conflict')
    .description('Apply the changes of a run to your files')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/workspace.ts')).workspaceApply))
  workspace
    .command('undo')
    .argument('<run>', runArgument)
    .description('Undo the applied changes of a run')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./commands/workspace.ts')).workspaceUndo))
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'your shell').choices(completionShells))
    .description('Print a shell completion script; for example: source <(caisson completion bash)')
    .action(run(async () => (await import('./completion.ts')).printCompletion))

  return program
}

/** Commander's own ends (help, version, wrong usage) as exit codes. */
export function exitCodeOfCommander(code: string): number {
  return code === 'commander.helpDisplayed' || code === 'commander.help' || code === 'commander.version'
    ? exitCodes.completed
    : exitCodes.usage
}
