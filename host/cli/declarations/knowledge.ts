/** What `memory`, `notes`, `skills` and `mcp` accept. */
import type { Command } from 'commander'
import type { Io } from '../io.ts'
import { collect, lazy, parseCountOrNone, type RunAction, runArgument } from '../options.ts'

export function addMemoryCommands(memory: Command, run: RunAction): void {
  const add = (name: string) =>
    memory.command(name).option('-w, --workspace <dir>', 'workspace directory (default: the current one)')
  const noteArgument = 'ID as listed, or a unique prefix of it'
  add('list')
    .description('List the notes of a workspace and how many wait for review')
    .option('--all', 'list the notes of all workspaces')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/memory.ts')).memoryList)))
  add('show')
    .argument('<note>', noteArgument)
    .description('Show a note')
    .action(run(lazy(async () => (await import('../commands/memory.ts')).memoryShow)))
  add('add')
    .argument('<text>', 'what later runs should know')
    .option('--tag <word>', 'tag to find the note by; repeatable', collect)
    .description('Add a note')
    .action(run(lazy(async () => (await import('../commands/memory.ts')).memoryAdd)))
  add('edit')
    .argument('<note>', noteArgument)
    .description('Edit a note in your editor')
    .action(run(lazy(async () => (await import('../commands/memory.ts')).memoryEdit)))
  add('rm')
    .argument('<note...>', noteArgument)
    .description('Remove notes')
    .action(run(lazy(async () => (await import('../commands/memory.ts')).memoryRemove)))
  add('move')
    .argument('<old>', 'previous directory of the workspace')
    .description('Assign the notes of a moved workspace to its new directory')
    .action(run(lazy(async () => (await import('../commands/memory.ts')).memoryMove)))
  for (const [name, decision, description] of [
    ['keep', { keep: true }, 'Keep the notes that a run proposed'],
    ['drop', { keep: false }, 'Discard the notes that a run proposed'],
  ] as const)
    memory
      .command(name)
      .argument('<run>', runArgument)
      .argument('[note...]', 'ID of a proposed note (default: all)')
      .description(description)
      .action(
        run(async (io: Io, of: string, notes: string[]) =>
          (await import('../commands/memory.ts')).decide(io, of, notes, decision),
        ),
      )
}

export function addNoteCommands(notes: Command, run: RunAction): void {
  notes
    .command('list')
    .argument('[proposal]', 'PROP-… (default: all)')
    .description('List the notes of a proposal')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/notes.ts')).notesList)))
  notes
    .command('add')
    .argument('<proposal>', 'PROP-…')
    .argument('<text>')
    .description('Add a note to a proposal')
    .action(run(lazy(async () => (await import('../commands/notes.ts')).notesAdd)))
  notes
    .command('rm')
    .argument('<proposal>', 'PROP-…')
    .argument('<note...>', 'ID of a note as listed, or a unique prefix of it')
    .description('Remove notes')
    .action(run(lazy(async () => (await import('../commands/notes.ts')).notesRemove)))
}

export function addSkillCommands(command: Command, run: RunAction): void {
  command
    .command('list')
    .description('List the skills that runs can use, their folders, and their problems')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/skills.ts')).skillsList)))
}

export function addMcpCommands(mcp: Command, run: RunAction): void {
  mcp
    .command('serve')
    .description('Serve runs to MCP clients over standard input and output, or over HTTP with --port')
    .option('--port <port>', 'serve HTTP on this port of 127.0.0.1; 0 for a free one', parseCountOrNone)
    .option('--service <url>', 'address of the service (default: that of this user on this machine)')
    .option('-w, --workspace <dir>', 'workspace of tasks that name none (default: an empty one)')
    .option('--all-runs', 'also show runs that no MCP client started')
    .option(
      '--state-key-file <file>',
      'key that signs questions, the same for each server (default: one in the state folder)',
    )
    .option('--allow-host-name <name>', 'another name of this server, as behind a proxy; repeatable', collect)
    .action(run(lazy(async () => (await import('../commands/mcp-serve.ts')).mcpServe)))
  mcp
    .command('list')
    .description('List approved MCP servers, and your sign-ins')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/mcp.ts')).mcpList)))
  mcp
    .command('login')
    .argument('<server>', 'name of an MCP server of the configuration')
    .option('--device', 'sign in with a code on another device')
    .option('--mcp <file>', 'take the server from this JSON file, as in caisson run --mcp')
    .option('--json', 'print one JSON object per line')
    .description('Sign in to an MCP server by OAuth; the host keeps the tokens')
    .action(run(lazy(async () => (await import('../commands/mcp-sign-in.ts')).mcpLogin)))
  mcp
    .command('logout')
    .argument('<server...>', 'name of a server as listed')
    .description('Revoke and forget the tokens of MCP servers')
    .action(run(lazy(async () => (await import('../commands/mcp-sign-in.ts')).mcpLogout)))
  mcp
    .command('forget')
    .argument('<name...>', 'name of a server as listed')
    .option('-w, --workspace <dir>', 'only approvals for this workspace')
    .description('Revoke the approval of servers; the next run asks again')
    .action(run(lazy(async () => (await import('../commands/mcp.ts')).mcpForget)))
}
