/** Runs one command line and says with which code to exit; everything that fails is told on stderr. */
import { readFileSync } from 'node:fs'
import { CommanderError } from 'commander'
import { exitCodeOf, exitCodes } from './exit-codes.ts'
import { type Io, printError } from './io.ts'
import { buildProgram, exitCodeOfCommander, type ProgramOptions } from './program.ts'
import { settleContinue } from './prompts/continue-option.ts'

/** The standard streams and environment of this process. */
export function processIo(): Io {
  const { stdin, stdout, stderr, env } = process
  // A reader that is gone (`| head`, a closed terminal) ends no command half-way; `run` looks out for it and cancels.
  for (const stream of [stdin, stdout, stderr]) stream.on('error', () => undefined)
  // Some terminals have no size (a container's, a job's); prompts would wrap after every character.
  if (stdout.isTTY && !stdout.columns) Object.assign(stdout, { columns: 80, rows: 24 })
  return { stdin, stdout, stderr, env, version: readVersion() }
}

/** @param argv without node and script */
export async function runCli(
  argv: readonly string[],
  io: Io = processIo(),
  example?: ProgramOptions['example'],
): Promise<number> {
  let code: number = exitCodes.completed
  const onExit = (given: number) => {
    code = given
  }
  const { own, command } = splitCommand(argv)
  const program = buildProgram({ io, onExit, command, ...(example === undefined ? {} : { example }) })
  // Loaded only for a shell that asks: it looks at every command.
  if (argv[0] === 'complete') (await import('./completion.ts')).addComplete(program)
  try {
    await program.parseAsync(own, { from: 'user' })
    return code
  } catch (error) {
    // Commander has told its own errors already.
    if (error instanceof CommanderError) return exitCodeOfCommander(error.code)
    printError(io, error)
    return exitCodeOf(error)
  }
}

/** Settles what commander cannot: of `run` the task behind `--continue`, of `vm shell` the guest's command behind `--`. */
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
