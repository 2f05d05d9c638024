/** The commands below `runs`: what is kept of runs, and what a person says to one of another process. */
import type { Command } from 'commander'
import type { Action } from './vm-program.ts'

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

export function addRunsCommands(runs: Command, run: Run, runArgument: string): void {
  runs
    .command('list')
    .description('All runs, newest first')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await import('./runs.ts')).runsList))
  runs
    .command('show')
    .argument('<run>', runArgument)
    .description('What happened in a run')
    .option('--json', 'the journal, one event a line')
    .action(run(async () => (await import('./runs.ts')).runsShow))
  addControl(runs, run, runArgument)
  runs
    .command('rm')
    .argument('<run...>')
    .description('Removes runs with their journals and change sets')
    .action(run(async () => (await import('./runs.ts')).runsRemove))
}

/** What a person says to a run of another process. */
function addControl(runs: Command, run: Run, runArgument: string): void {
  const load = () => import('./runs-control.ts')
  runs
    .command('steer')
    .argument('<run>', runArgument)
    .argument('<text>', 'what the agent should know')
    .description('Sends a message to the agent of a run; it has it from its next turn on')
    .action(run(async () => (await load()).runsSteer))
  runs
    .command('pause')
    .argument('<run>', runArgument)
    .description('Has the agent hold before its next step; its VM runs on (to stop that: caisson vm pause)')
    .action(run(async () => (await load()).runsPause))
  runs
    .command('resume')
    .argument('<run>', runArgument)
    .description('Lets an agent that holds go on')
    .action(run(async () => (await load()).runsResume))
  runs
    .command('cancel')
    .argument('<run>', runArgument)
    .description('Cancels a run; its changes come home first')
    .option('--now', 'ends it at once')
    .action(run(async () => (await load()).runsCancel))
}
