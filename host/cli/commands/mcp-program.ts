/** The commands below `mcp`. */
import type { Command } from 'commander'
import type { Action } from './vm-program.ts'

export function addMcpCommands(
  mcp: Command,
  run: (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>,
): void {
  const load = () => import('./mcp.ts')
  mcp
    .command('list')
    .description('What was allowed of MCP servers, by server')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await load()).mcpList))
  mcp
    .command('forget')
    .argument('<name...>', 'servers as listed')
    .option('-w, --workspace <dir>', 'only what was allowed for this workspace')
    .description('Forgets what was allowed, so that it is asked about again')
    .action(run(async () => (await load()).mcpForget))
}
