/** The commands below `memory`, `notes` and `skills`. */
import type { Command } from 'commander'
import { collect } from '../options.ts'
import type { Action } from './vm-program.ts'

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

export function addMemoryCommands(program: Command, run: Run, runArgument: string): void {
  const memory = program.command('memory').description('What is remembered of a workspace')
  const load = () => import('./memory.ts')
  const about = (name: string) =>
    memory.command(name).option('-w, --workspace <dir>', 'of this directory (default: the current one)')
  const noteArgument = 'its id as listed, or the beginning of it'
  about('list')
    .description('What is kept of a workspace, and what waits in its runs')
    .option('--all', 'of all workspaces')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await load()).memoryList))
  about('show')
    .argument('<note>', noteArgument)
    .description('All of a note')
    .action(run(async () => (await load()).memoryShow))
  about('add')
    .argument('<text>', 'what later runs should know')
    .option('--tag <word>', 'by which it is found again; may be given again', collect)
    .description('Keeps a note of yours')
    .action(run(async () => (await load()).memoryAdd))
  about('edit')
    .argument('<note>', noteArgument)
    .description('Changes a note in your editor')
    .action(run(async () => (await load()).memoryEdit))
  about('rm')
    .argument('<note...>', noteArgument)
    .description('Removes notes')
    .action(run(async () => (await load()).memoryRemove))
  about('move')
    .argument('<old>', 'the directory where the workspace was before')
    .description('Puts the notes of a directory that was moved under its new place')
    .action(run(async () => (await load()).memoryMove))
  memory
    .command('keep')
    .argument('<run>', runArgument)
    .argument('[note...]', 'as the run proposed them (default: all)')
    .description('Keeps what a run proposed')
    .action(run(async () => (await load()).memoryKeep))
  memory
    .command('drop')
    .argument('<run>', runArgument)
    .argument('[note...]', 'as the run proposed them (default: all)')
    .description('Drops what a run proposed')
    .action(run(async () => (await load()).memoryDrop))
  addNoteCommands(program, run)
  program
    .command('skills')
    .description('Your skills')
    .command('list')
    .description('The skills that runs are told of, their roots, and what is wrong with them')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await import('./skills.ts')).skillsList))
}

function addNoteCommands(program: Command, run: Run): void {
  const notes = program.command('notes').description('Notes of proposals (PROP-…)')
  const load = () => import('./notes.ts')
  notes
    .command('list')
    .argument('[proposal]', 'PROP-… (default: all)')
    .description('The notes of a proposal')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await load()).notesList))
  notes
    .command('add')
    .argument('<proposal>', 'PROP-…')
    .argument('<text>')
    .description('Adds a note of yours')
    .action(run(async () => (await load()).notesAdd))
  notes
    .command('rm')
    .argument('<proposal>', 'PROP-…')
    .argument('<note...>', 'their ids as listed, or the beginnings')
    .description('Removes notes')
    .action(run(async () => (await load()).notesRemove))
}
