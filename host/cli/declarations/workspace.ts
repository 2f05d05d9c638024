/** What `workspace` accepts. */
import type { Command } from 'commander'
import { lazy, type RunAction, runArgument } from '../options.ts'

export function addWorkspaceCommands(workspace: Command, run: RunAction): void {
  workspace
    .command('diff')
    .argument('<run>', runArgument)
    .argument('[path...]', 'path to show; a directory includes its content')
    .option('--patch', 'print a plain patch, as git apply reads it')
    .description('Show the changes of a run')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/workspace.ts')).workspaceDiff)))
  workspace
    .command('show')
    .argument('<run>', runArgument)
    .argument('<path>', 'path of a change')
    .option('--base', 'the version that went into the VM instead of the one of the run')
    .option('-o, --output <file>', 'write to a new file instead of standard output')
    .description('Print a file as a run made it')
    .action(run(lazy(async () => (await import('../commands/workspace-versions.ts')).workspaceShow)))
  workspace
    .command('blame')
    .argument('<run>', runArgument)
    .argument('<file>', 'path of a change, or PATH:LINE for all that is behind one line')
    .description('Show which call of a run made each line of a file, and why')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/blame.ts')).workspaceBlame)))
  workspace
    .command('merge')
    .argument('<run>', runArgument)
    .argument('<path>', 'path of a change, usually one in conflict')
    .option('-o, --output <file>', 'the new file (default: PATH.caisson-RUN beside it)')
    .description('Merge your file and that of a run into a new file, with conflict markers; needs git')
    .action(run(lazy(async () => (await import('../commands/workspace-versions.ts')).workspaceMerge)))
  workspace
    .command('apply')
    .argument('<run>', runArgument)
    .argument(
      '[path...]',
      'path to apply, or PATH:HUNKS such as a.txt:2,4-6; flagged paths are applied only if named here',
    )
    .option('--all', 'apply everything that is neither flagged nor in conflict')
    .description('Apply the changes of a run to your files')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/workspace.ts')).workspaceApply)))
  workspace
    .command('undo')
    .argument('<run>', runArgument)
    .description('Undo the applied changes of a run')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/workspace.ts')).workspaceUndo)))
}
