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
    .argument('[task]', 'what the agent should do; optional with --plan-from')
  addRunOptions(runCommand)
    .description('Run a task in a VM on a copy of a directory; show plan, progress and changes')
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
    .option('-w, --workspace <dir>', 'directory to work on (default: the current one)')
    .option(
      '--include <pattern>',
      'also copy matching paths that are ignored or look like secrets; repeatable',
      collect,
    )
    .option('--accept-ignore-rules', 'accept the ignore rules as changed by earlier runs')
    .option('-m, --model <id>', 'model to use (default: CAISSON_MODEL, else the configured one)')
    .option('--tool <name>', 'allow only this tool; repeatable', collect)
    .option('--mcp <file>', 'JSON file of MCP servers (mcpServers format)')
    .option('--approve <how>', 'how to decide approvals: ask, all, none, or a file of rules', 'ask')
    .option('--apply', 'apply changes that are neither flagged nor in conflict, without asking')
    .option('--no-apply', 'apply nothing, without asking')
    .option('--accept-memory', 'keep the notes that a completed run proposes, without asking')
    .option('--replay <run>', 'replay a recorded run, without network access')
    .option('--json', 'print one JSON event per line; read decisions as JSON lines from standard input')
    .optionsGroup('Plan:')
    .option('--plan-only', 'make a plan and stop; files stay read-only in the VM')
    .option('--approve-plan', 'ask for approval of the plan, and of each revision, before it runs')
    .option('--plan-from <run>', 'run the plan of an earlier run, or a plan in a JSON file')
  addEgressOptions(command.optionsGroup('Network access:'))
  command
    .optionsGroup('Limits:')
    .option('--max-time <duration>', 'wall-clock time, for example 20m', parseDuration)
    .option('--max-tokens <count>', 'input and output tokens', parseCount)
    .option('--max-requests <count>', 'model requests', parseCount)
    .option('--max-cost <dollars>', 'cost in US dollars, by the configured prices', parseDollars)
    .option('--max-agents <count>', 'sub-agents; 0 disables them', parseCountOrNone)
    .optionsGroup('VM:')
    .option('--continue [run]', 'continue a run (default: the most recently started one on this directory)')
    .option('--keep-vm', 'keep the VM for a later --continue; implied by --continue')
    .option('--no-template', 'boot the VM instead of restoring it from a template')
  return addVmOptions(command)
}
