/** The command line: which commands there are, and with which code one exits. Prints whatever fails to stderr. */
import { readFileSync } from 'node:fs'
import { Argument, Command, CommanderError } from 'commander'
import { addApprovalCommands } from './commands/approvals.ts'
import { addAttachCommand } from './commands/attach.ts'
import { addCleanCommand } from './commands/clean.ts'
import { addConfigCommands } from './commands/config.ts'
import { addDoctorCommand } from './commands/doctor.ts'
import { addImageCommands } from './commands/image.ts'
import { addKeyCommands } from './commands/key.ts'
import { addMcpCommands } from './commands/mcp.ts'
import { addMemoryCommands } from './commands/memory.ts'
import { addNoteCommands } from './commands/notes.ts'
import { addPolicyCommands } from './commands/policy.ts'
import { addRunCommand, type Example, settleContinue } from './commands/run.ts'
import { addRunsCommands } from './commands/runs.ts'
import { addSkillCommands } from './commands/skills.ts'
import { addVmCommands } from './commands/vm.ts'
import { addWorkspaceCommands } from './commands/workspace.ts'
import { exitCodeOf, exitCodes } from './exit-codes.ts'
import { type Io, printError } from './io.ts'
import type { RunAction } from './options.ts'

/** The standard streams and environment of this process. */
function processIo(): Io {
  const { stdin, stdout, stderr, env } = process
  // A reader that is gone (`| head`, a closed terminal) does not end a command half-way; `run` listens for it and cancels.
  for (const stream of [stdin, stdout, stderr]) stream.on('error', () => undefined)
  // Some terminals have no size (a container's, a job's); prompts would wrap after every character.
  if (stdout.isTTY && !stdout.columns) Object.assign(stdout, { columns: 80, rows: 24 })
  return { stdin, stdout, stderr, env, version: readVersion() }
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
  const { own, command } = splitCommand(argv)
  const program = buildProgram({
    io,
    onExit: (given) => {
      code = given
    },
    guestCommand: command,
    example,
  })
  if (argv[0] === 'complete') await addComplete(program)
  try {
    await program.parseAsync(own, { from: 'user' })
    return code
  } catch (error) {
    // Commander has printed its own errors already.
    if (error instanceof CommanderError)
      return /help|version/.test(error.code) ? exitCodes.completed : exitCodes.usage
    printError(io, error)
    return exitCodeOf(error)
  }
}

interface ProgramOptions {
  readonly io: Io
  readonly onExit: (code: number) => void
  readonly example?: Example | undefined
  /** What follows `--` of `vm shell`. */
  readonly guestCommand?: readonly string[]
}

/** Each command's options, help and action are in one file of `commands/`; `--help` lists them in this order. */
export function buildProgram({ io, onExit, example, guestCommand = [] }: ProgramOptions): Command {
  const program = new Command('caisson')
    .description('Run an AI agent in a small VM on a copy of your files, then review its changes.')
    .version(io.version)
    .showHelpAfterError('(add --help for usage)')
    .configureOutput({ writeOut: (text) => io.stdout.write(text), writeErr: (text) => io.stderr.write(text) })
    .exitOverride()
  const run: RunAction =
    (action) =>
    async (...args) =>
      onExit(await action(...([io, ...args] as never[])))
  addRunCommand(program, run, example)
  addAttachCommand(program, run)
  addDoctorCommand(program, run)
  addImageCommands(program, run)
  addCleanCommand(program, run)
  addVmCommands(program, run, guestCommand)
  addConfigCommands(program, run)
  addPolicyCommands(program, run)
  addKeyCommands(program, run)
  addRunsCommands(program, run)
  addApprovalCommands(program, run)
  addMemoryCommands(program, run)
  addNoteCommands(program, run)
  addSkillCommands(program, run)
  addMcpCommands(program, run)
  addWorkspaceCommands(program, run)
  program
    .command('completion')
    .addArgument(new Argument('<shell>', 'your shell').choices(['bash', 'zsh', 'fish']))
    .description('Print a shell completion script; for example: source <(caisson completion bash)')
    .action(async (shell: string) =>
      (await import('@bomb.sh/tab')).default.setup('caisson', 'caisson', shell),
    )
  return program
}

/** Adds the hidden command `complete`, which the completion script calls at each Tab with the words so far. */
async function addComplete(program: Command): Promise<void> {
  const { default: addTab } = await import('@bomb.sh/tab/commander')
  // The library adds a `completion` command of its own, and there can be one of that name.
  const commands = program.commands as Command[]
  commands.splice(
    commands.findIndex((command) => command.name() === 'completion'),
    1,
  )
  addTab(program, { completionCommandName: 'completion' })
}

/** Splits what commander cannot: in `run` the task after `--continue`, in `vm shell` the guest's command after `--`. */
function splitCommand(argv: readonly string[]): { own: string[]; command: string[] } {
  if (argv[0] === 'run') return { own: settleContinue(argv), command: [] }
  const at = argv[0] === 'vm' && argv[1] === 'shell' ? argv.indexOf('--') : -1
  return at < 0 ? { own: [...argv], command: [] } : { own: argv.slice(0, at), command: argv.slice(at + 1) }
}

/** From the package's own package.json, two folders up in the repository and three in `dist/`. */
function readVersion(): string {
  for (const place of ['../../package.json', '../../../package.json']) {
    try {
      const found = JSON.parse(readFileSync(new URL(place, import.meta.url), 'utf8')) as {
        name?: string
        version?: string
      }
      if (found.name === 'caisson' && found.version !== undefined) return found.version
    } catch {
      // not there: the other place
    }
  }
  return '0.0.0'
}
