/** What tests of the files of `examples/` share: which command lines and variables a host takes. */
import { PassThrough } from 'node:stream'
import { buildProgram } from '../../host/cli/main.ts'

/**
 * Parses a command line by the declarations of the commands, and runs nothing. @returns the names of its commands
 * @throws {CommanderError} for an unknown command, option or argument
 */
export async function parseCommand(argv: readonly string[]): Promise<string> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const program = await buildProgram({
    io: { stdin, stdout, stderr, env: {}, version: '0' },
    onExit: () => undefined,
    words: argv,
    guestCommand: [],
    runCommand: () => Promise.resolve(0),
  })
  let command = program
  let names = 'caisson'
  for (const word of argv) {
    const below = command.commands.find((one) => one.name() === word)
    if (below === undefined) break
    command = below
    names += ` ${word}`
  }
  command.action(() => undefined)
  await program.parseAsync(argv, { from: 'user' })
  return names
}

/** The command lines of caisson in a shell command, without quotes. */
export function caissonCommandsIn(shell: string): string[][] {
  return [...shell.matchAll(/\bcaisson ([^;&|]+)/g)].map(([, words = '']) =>
    words
      .trim()
      .split(/\s+/)
      .map((word) => word.replaceAll('"', '')),
  )
}

/** Variables that note in `asked` which of them somebody looks at. */
export function watchNames<T extends object>(variables: T, asked: Set<string>): T {
  return new Proxy(variables, {
    get: (target, name) => {
      asked.add(String(name))
      return Reflect.get(target, name)
    },
  })
}
