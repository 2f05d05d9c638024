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
    .option('--include <pattern>', 'also copies paths that match, ignored or secret; repeatable', collect)
    .option('--accept-ignore-rules', 'accepts the ignore rules as earlier runs changed them')
    .option('-m, --model <id>', 'the model (default: CAISSON_MODEL or the provider’s)')
    .option('--tool <name>', 'allows only this tool; repeatable', collect)
    .option('--mcp <file>', 'a JSON file of MCP servers, in the usual mcpServers form')
    .option('--approve <how>', 'ask, all, none, or a file of rules', 'ask')
    .option('--apply', 'applies changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'applies nothing, without asking')
    .option('--accept-memory', 'keeps the notes that a completed run proposes, without asking')
    .option('--replay <run>', 'replays a recorded run, without any network')
    .option('--json', 'prints one JSON event per line; reads decisions as JSON lines from standard input')
    .optionsGroup('Plan:')
    .option('--plan-only', 'makes a plan and stops; files stay read-only in the VM')
    .option('--approve-plan', 'asks before the plan, or a revision of it, runs')
    .option('--plan-from <run>', 'runs the plan of an earlier run, or from a JSON file')
  addEgressOptions(command.optionsGroup('Network access:'))
  command
    .optionsGroup('Limits:')
    .option('--max-time <duration>', 'wall time, such as 20m', parseDuration)
    .option('--max-tokens <count>', 'tokens, in and out', parseCount)
    .option('--max-requests <count>', 'model requests', parseCount)
    .option('--max-cost <dollars>', 'US dollars, by the configured prices', parseDollars)
    .option('--max-agents <count>', 'sub-agents; 0 for none', parseCountOrNone)
    .optionsGroup('VM:')
    .option('--continue [run]', 'continues a run: the one named, or the last on this directory')
    .option('--keep-vm', 'keeps the VM for a later --continue, which implies it')
    .option('--no-template', 'boots the VM instead of restoring it from a template')
  return addVmOptions(command)
}
