/** Shell completion: `caisson completion SHELL` prints a script; at each Tab that script calls `caisson complete -- WORDS`. */
import tab from '@bomb.sh/tab'
import tabOverCommander from '@bomb.sh/tab/commander'
import type { Command } from 'commander'
import { type ExitCode, exitCodes } from './exit-codes.ts'
import type { Io } from './io.ts'

/** Prints the script that the user's shell loads, such as `source <(caisson completion bash)`. */
export async function printCompletion(_io: Io, shell: string): Promise<ExitCode> {
  tab.setup('caisson', 'caisson', shell)
  return exitCodes.completed
}

/** Adds the hidden command `complete`, which prints what can follow the words of a command line. */
export function addComplete(program: Command): void {
  // The library adds a `completion` command of its own, and there can be one of that name.
  const commands = program.commands as Command[]
  commands.splice(
    commands.findIndex((command) => command.name() === 'completion'),
    1,
  )
  tabOverCommander(program, { completionCommandName: 'completion' })
}
