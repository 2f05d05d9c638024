/** The command `run` and its options. */
import type { Command } from 'commander'
import type { Io } from '../io.ts'
import {
  addEgressOptions,
  addVmOptions,
  collect,
  parseCount,
  parseCountOrNone,
  parseDollars,
  parseDuration,
} from '../options.ts'
import type { Action } from './vm-program.ts'

/** @param example what is done without a task */
export function addRunCommand(
  program: Command,
  run: (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>,
  example: { readonly task: string; readonly workspace: string } | undefined,
): void {
  const runCommand = program
    .command('run')
    .argument('[task]', 'what the agent is to do; not needed with --plan-from')
  addRunOptions(runCommand)
    .description('Runs a task in a VM on a workspace; shows plan, progress and changes')
    .action(
      run(async () => {
        const { runTask } = await import('./run.ts')
        return (cli: Io, task: string | undefined, flags: never) => runTask(cli, task, flags, example)
      }),
    )
}

function addRunOptions(command: Command): Command {
  command
    .optionsGroup('Task and files:')
    .option('-w, --workspace <dir>', 'the directory to work on (default: the current one)')
    .option(
      '--include <pattern>',
      'takes ignored or secret paths in all the same; may be given again',
      collect,
    )
    .option(
      '--accept-ignore-rules',
      'lets paths in that stayed out until an earlier run changed the ignore rules',
    )
    .option('-m, --model <id>', 'the model (default: CAISSON_MODEL or the provider’s)')
    .option('--tool <name>', 'allows only these tools; may be given again', collect)
    .option('--mcp <file>', 'a JSON file of MCP servers, in the usual mcpServers form')
    .option('--approve <how>', 'ask, all, none, or a file of rules', 'ask')
    .option('--apply', 'applies what is not flagged and does not conflict, without asking')
    .option('--no-apply', 'applies nothing, without asking')
    .option('--keep-memory', 'keeps what a run that completed proposes to remember, without asking')
    .option('--from-recording <run>', 'repeats a run by what was recorded of it, without any network')
    .option('--json', 'one event a line on standard output, decisions as JSON lines on standard input')
    .optionsGroup('Plan:')
    .option('--plan-only', 'makes the plan and ends with it; nothing in the VM can change the files')
    .option('--approve-plan', 'asks before the plan, and each change of it, is carried out')
    .option('--plan-from <run>', 'carries out the plan of an earlier run, or of a file with a plan as JSON')
  addEgressOptions(command.optionsGroup('Ways out of the VM:'))
  command
    .optionsGroup('Bounds:')
    .option('--max-time <duration>', 'wall time of the run, such as 20m', parseDuration)
    .option('--max-tokens <count>', 'tokens of the run, in and out', parseCount)
    .option('--max-requests <count>', 'model requests of the run', parseCount)
    .option('--max-cost <dollars>', 'US dollars of the run, by the prices of the configuration', parseDollars)
    .option('--max-agents <count>', 'sub-agents of the run, 0 for none', parseCountOrNone)
    .optionsGroup('VM:')
    .option('--continue [run]', 'goes on where a run ended: the one named, or the last on this directory')
    .option('--keep', 'keeps the VM at the end, to be continued; --continue does that too')
    .option('--cold', 'boots the VM instead of copying a template')
  return addVmOptions(command)
}
