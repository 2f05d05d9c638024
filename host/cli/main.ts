/**
 * The command line: which commands there are, and with which code one exits. Prints whatever fails to stderr. Loads
 * what a command accepts only when an argument names it, and what it does only when it runs, so that help and completion
 * start fast.
 */
import { Argument, Command, CommanderError } from 'commander'
import { readPackageVersion } from '../files/package-version.ts'
import { exitCodeOf, exitCodes } from './exit-codes.ts'
import { addHelpEnd } from './help.ts'
import type { Io } from './io.ts'
import type { CommandInput, Example, RunAction } from './options.ts'
import { sanitizeBlock } from './render/sanitize.ts'

/** The standard streams and environment of this process. */
function processIo(): Io {
  const { stdin, stdout, stderr, env } = process
  // A reader that is gone (`| head`, a closed terminal) does not end a command half-way; `run` listens for it and cancels.
  for (const stream of [stdin, stdout, stderr]) stream.on('error', () => undefined)
  // Some terminals have no size (a container's, a job's); prompts would wrap after every character.
  if (stdout.isTTY && !stdout.columns) Object.assign(stdout, { columns: 80, rows: 24 })
  return { stdin, stdout, stderr, env, version: readPackageVersion() }
}

/**
 * @param argv without node and script
 * @param example for `run` without a task
 */
export async function runCli(
  argv: readonly string[],
  io: Io = processIo(),
  example?: Example,
): Promise<number> {
  let code: number = exitCodes.completed
  // Alone in a terminal it is a conversation; for a program it prints the help.
  const isConversation = argv.length === 0 && io.stdin.isTTY === true && io.stdout.isTTY === true
  const given = isConversation ? ['chat'] : argv
  const { own, command } = await splitCommand(given)
  const program = await buildProgram({
    io,
    onExit: (given) => {
      code = given
    },
    words: given,
    guestCommand: command,
    runCommand: (other, within) => runCli(other, { ...io, ...within }),
    example,
  })
  if (argv[0] === 'complete')
    await (await import('./completion.ts')).addComplete(program, io, argv.slice(argv.indexOf('--') + 1))
  try {
    await program.parseAsync(own, { from: 'user' })
    return code
  } catch (error) {
    // Commander has printed its own errors already.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.completed : exitCodes.usage
    const { printError } = await import('./io.ts')
    printError(io, error)
    return exitCodeOf(error)
  }
}

interface CommandRow {
  readonly name: string
  readonly description: string
  /** Gives the function that declares arguments, options, subcommands and actions. */
  readonly load: () => Promise<(command: Command, run: RunAction, given: CommandInput) => void>
}

/** In the order of `--help`. */
const commands: readonly CommandRow[] = [
  {
    name: 'run',
    description: 'Run a task in a VM on a copy of a directory; show plan, progress and changes',
    load: async () => (await import('./declarations/runs.ts')).addRunCommand,
  },
  {
    name: 'chat',
    description: 'Give tasks one after another in one VM; also: caisson alone in a terminal',
    load: async () => (await import('./declarations/runs.ts')).addChatCommand,
  },
  {
    name: 'attach',
    description: 'Watch a run of another process or host from its start; answer, steer or cancel it',
    load: async () => (await import('./declarations/runs.ts')).addAttachCommand,
  },
  {
    name: 'replay',
    description: 'Run a recorded run again without any network, and show the first difference',
    load: async () => (await import('./declarations/runs.ts')).addReplayCommand,
  },
  {
    name: 'doctor',
    description: 'Check this machine: QEMU, accelerator, sandbox, image, memory, disk, keys',
    load: async () => (await import('./declarations/machine.ts')).addDoctorCommand,
  },
  {
    name: 'image',
    description: 'Build and inspect the VM image',
    load: async () => (await import('./declarations/vm.ts')).addImageCommands,
  },
  {
    name: 'clean',
    description: 'List what Caisson stores on disk; with --yes, remove what is old or left over',
    load: async () => (await import('./declarations/machine.ts')).addCleanCommand,
  },
  {
    name: 'vm',
    description: 'Manage virtual machines',
    load: async () => (await import('./declarations/vm.ts')).addVmCommands,
  },
  {
    name: 'config',
    description: 'Locate and check the configuration file',
    load: async () => (await import('./declarations/machine.ts')).addConfigCommands,
  },
  {
    name: 'models',
    description: 'List the models of the configured servers, with what is known of each',
    load: async () => (await import('./declarations/machine.ts')).addModelsCommand,
  },
  {
    name: 'policy',
    description: 'Inspect network access rules and revoke permanent grants',
    load: async () => (await import('./declarations/machine.ts')).addPolicyCommands,
  },
  {
    name: 'key',
    description: "Manage keys in the system's keyring",
    load: async () => (await import('./declarations/machine.ts')).addKeyCommands,
  },
  {
    name: 'runs',
    description: 'List, inspect, steer and remove runs',
    load: async () => (await import('./declarations/runs.ts')).addRunsCommands,
  },
  {
    name: 'approvals',
    description: 'Answer the approvals that active runs wait for',
    load: async () => (await import('./declarations/runs.ts')).addApprovalCommands,
  },
  {
    name: 'serve',
    description: 'Serve runs over HTTP: start, watch, answer, review and apply them',
    load: async () => (await import('./declarations/service.ts')).addServeCommand,
  },
  {
    name: 'fleet',
    description: 'Operate a fleet of hosts that share one PostgreSQL',
    load: async () => (await import('./declarations/fleet.ts')).addFleetCommands,
  },
  {
    name: 'acp',
    description: 'Serve an editor on standard input and output (Agent Client Protocol)',
    load: async () => (await import('./declarations/service.ts')).addAcpCommand,
  },
  {
    name: 'memory',
    description: 'Manage the notes that runs remember about a workspace',
    load: async () => (await import('./declarations/knowledge.ts')).addMemoryCommands,
  },
  {
    name: 'notes',
    description: 'Manage notes of proposals (PROP-…)',
    load: async () => (await import('./declarations/knowledge.ts')).addNoteCommands,
  },
  {
    name: 'skills',
    description: 'List your skills',
    load: async () => (await import('./declarations/knowledge.ts')).addSkillCommands,
  },
  {
    name: 'mcp',
    description: 'Serve runs to MCP clients; manage approved MCP servers and sign-ins',
    load: async () => (await import('./declarations/knowledge.ts')).addMcpCommands,
  },
  {
    name: 'workspace',
    description: 'Review, apply and undo the changes of runs',
    load: async () => (await import('./declarations/workspace.ts')).addWorkspaceCommands,
  },
  {
    name: 'workflow',
    description: 'Run, check, draw and publish workflow files',
    load: async () => (await import('./declarations/runs.ts')).addWorkflowCommands,
  },
]

interface ProgramOptions extends CommandInput {
  readonly io: Io
  readonly onExit: (code: number) => void
  /** Arguments that may name commands; the others have no options and no action. Absent: all are complete. */
  readonly words?: readonly string[]
}

export async function buildProgram(options: ProgramOptions): Promise<Command> {
  const { io, onExit, words } = options
  const program = new Command('caisson')
    .description('Run an AI agent in a small VM on a copy of your files, then review its changes.')
    .version(io.version)
    .showHelpAfterError('(add --help for usage)')
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      // It quotes the command line.
      outputError: (text, write) => write(`${sanitizeBlock(text, '')}\n`),
    })
    .configureHelp({ subcommandTerm: (command) => command.name() })
    .exitOverride()
  const run: RunAction =
    (action) =>
    async (...args) =>
      onExit(await action(...([io, ...args] as never[])))
  for (const { name, description, load } of commands) {
    const command = program.command(name).description(description)
    if (words?.includes(name) !== false) (await load())(command, run, options)
  }
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'your shell').choices(['bash', 'zsh', 'fish']))
    .description('Print a shell completion script; for example: source <(caisson completion bash)')
    .action(async (shell: string) => (await import('./completion.ts')).printCompletion(shell, io))
  for (const command of program.commands) addHelpEnd(command)
  return program
}

/** Splits what commander cannot: in `run` the task after `--continue`, in `vm shell` the guest's command after `--`. */
async function splitCommand(argv: readonly string[]): Promise<{ own: string[]; command: string[] }> {
  if (argv[0] === 'run')
    return { own: (await import('./declarations/runs.ts')).settleContinue(argv), command: [] }
  const at = argv[0] === 'vm' && argv[1] === 'shell' ? argv.indexOf('--') : -1
  return at < 0 ? { own: [...argv], command: [] } : { own: argv.slice(0, at), command: argv.slice(at + 1) }
}
