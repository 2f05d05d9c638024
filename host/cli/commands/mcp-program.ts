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
    .description('List approved MCP servers')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await load()).mcpList))
  mcp
    .command('forget')
    .argument('<name...>', 'name of a server as listed')
    .option('-w, --workspace <dir>', 'only approvals for this workspace')
    .description('Revoke the approval of servers; the next run asks again')
    .action(run(async () => (await load()).mcpForget))
}
