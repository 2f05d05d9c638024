/** The commands below `runs`: what is kept of runs, and what a person says to one of another process. */
import type { Command } from 'commander'
import type { Action } from './vm-program.ts'

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

export function addRunsCommands(runs: Command, run: Run, runArgument: string): void {
  runs
    .command('list')
    .description('List all runs, newest first')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await import('./runs.ts')).runsList))
  runs
    .command('show')
    .argument('<run>', runArgument)
    .description('Show what happened in a run')
    .option('--json', 'print the journal as one JSON event per line')
    .action(run(async () => (await import('./runs.ts')).runsShow))
  addControl(runs, run, runArgument)
  runs
    .command('rm')
    .argument('<run...>')
    .description('Remove runs with their journals and change sets')
    .action(run(async () => (await import('./runs.ts')).runsRemove))
}

/** What a person says to a run of another process. */
function addControl(runs: Command, run: Run, runArgument: string): void {
  const load = () => import('./runs-control.ts')
  runs
    .command('steer')
    .argument('<run>', runArgument)
    .argument('<text>', 'what the agent should know')
    .description('Send a message to the agent; it sees the message on its next turn')
    .action(run(async () => (await load()).runsSteer))
  runs
    .command('pause')
    .argument('<run>', runArgument)
    .description('Pause the agent before its next step; the VM keeps running (see: caisson vm pause)')
    .action(run(async () => (await load()).runsPause))
  runs
    .command('resume')
    .argument('<run>', runArgument)
    .description('Resume a paused agent')
    .action(run(async () => (await load()).runsResume))
  runs
    .command('cancel')
    .argument('<run>', runArgument)
    .description('Cancel a run; its changes are collected first')
    .option('--now', 'stop immediately, without collecting changes')
    .action(run(async () => (await load()).runsCancel))
}
