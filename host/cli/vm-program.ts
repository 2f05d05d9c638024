/** The commands below `vm` that use running VMs, of this process's user and any process. */
import type { Command } from 'commander'
import type { Action } from './program.ts'

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

export function addVmCommands(vm: Command, run: Run): void {
  vm.command('list')
    .description('Running VMs: run, state, age, memory, process, directory')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await import('./vm-list.ts')).vmList))
  vm.command('logs')
    .argument('<vm>', 'its id, its run, or the beginning of either; also a run that has ended')
    .description('The console of a VM, or its agent’s log')
    .option('-f, --follow', 'goes on until the VM ends')
    .option('--agent', 'the agent’s log, as JSON lines')
    .action(run(async () => (await import('./vm-list.ts')).vmLogs))
  vm.command('stop')
    .argument('<vm>', 'its id, its run, or the beginning of either')
    .description('Ends a VM; its run is cancelled and brings its changes home first')
    .option('--now', 'ends it at once')
    .action(run(async () => (await import('./vm-list.ts')).vmStop))
}
