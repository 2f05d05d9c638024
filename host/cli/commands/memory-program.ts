/** The commands below `memory`, `notes` and `skills`. */
import type { Command } from 'commander'
import { collect } from '../options.ts'
import type { Action } from './vm-program.ts'

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

export function addMemoryCommands(program: Command, run: Run, runArgument: string): void {
  const memory = program
    .command('memory')
    .description('Manage the notes that runs remember about a workspace')
  const load = () => import('./memory.ts')
  const about = (name: string) =>
    memory.command(name).option('-w, --workspace <dir>', 'workspace directory (default: the current one)')
  const noteArgument = 'ID as listed, or a unique prefix of it'
  about('list')
    .description('List the notes of a workspace and how many wait for review')
    .option('--all', 'list the notes of all workspaces')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await load()).memoryList))
  about('show')
    .argument('<note>', noteArgument)
    .description('Show a note')
    .action(run(async () => (await load()).memoryShow))
  about('add')
    .argument('<text>', 'what later runs should know')
    .option('--tag <word>', 'tag to find the note by; repeatable', collect)
    .description('Add a note')
    .action(run(async () => (await load()).memoryAdd))
  about('edit')
    .argument('<note>', noteArgument)
    .description('Edit a note in your editor')
    .action(run(async () => (await load()).memoryEdit))
  about('rm')
    .argument('<note...>', noteArgument)
    .description('Remove notes')
    .action(run(async () => (await load()).memoryRemove))
  about('move')
    .argument('<old>', 'previous directory of the workspace')
    .description('Assign the notes of a moved workspace to its new directory')
    .action(run(async () => (await load()).memoryMove))
  memory
    .command('keep')
    .argument('<run>', runArgument)
    .argument('[note...]', 'ID of a proposed note (default: all)')
    .description('Keep the notes that a run proposed')
    .action(run(async () => (await load()).memoryKeep))
  memory
    .command('drop')
    .argument('<run>', runArgument)
    .argument('[note...]', 'ID of a proposed note (default: all)')
    .description('Discard the notes that a run proposed')
    .action(run(async () => (await load()).memoryDrop))
  addNoteCommands(program, run)
  program
    .command('skills')
    .description('List your skills')
    .command('list')
    .description('List the skills that runs can use, their folders, and their problems')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await import('./skills.ts')).skillsList))
}

function addNoteCommands(program: Command, run: Run): void {
  const notes = program.command('notes').description('Manage notes of proposals (PROP-…)')
  const load = () => import('./notes.ts')
  notes
    .command('list')
    .argument('[proposal]', 'PROP-… (default: all)')
    .description('List the notes of a proposal')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await load()).notesList))
  notes
    .command('add')
    .argument('<proposal>', 'PROP-…')
    .argument('<text>')
    .description('Add a note to a proposal')
    .action(run(async () => (await load()).notesAdd))
  notes
    .command('rm')
    .argument('<proposal>', 'PROP-…')
    .argument('<note...>', 'ID of a note as listed, or a unique prefix of it')
    .description('Remove notes')
    .action(run(async () => (await load()).notesRemove))
}
