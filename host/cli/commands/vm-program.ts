/** The commands below `vm` that use running VMs, of this process's user and any process. */
import type { Command } from 'commander'
import type { Io } from '../io.ts'

/** What a command returns: the process's exit code. */
export type Action = (...args: never[]) => Promise<number>

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

const vmArgument = 'VM ID, run ID, a unique prefix of either, or "last" (most recently started)'

/**
 * @param addVmOptions adds the options of a VM's size and machine
 * @param command what stands behind `--`
 */
export function addVmCommands(
  vm: Command,
  run: Run,
  addVmOptions: (command: Command) => Command,
  command: readonly string[],
): void {
  addVmOptions(vm.command('shell').usage('[options] [vm] [-- command...]'))
    .argument('[vm]', `${vmArgument} (default: the only running VM, else a new one)`)
    .description('Open a shell in a VM, or run the command after -- and return its exit code')
    .option('-w, --workspace <dir>', 'for a new VM: directory to copy into it (default: the current one)')
    .option('--plain', 'print escape sequences of the guest instead of interpreting them')
    .action(
      run(async () => {
        const { vmShell } = await import('./vm-shell.ts')
        return (io: Io, name: string | undefined, flags: never) => vmShell(io, command, name, flags)
      }),
    )
  vm.command('forward')
    .argument('<vm>', vmArgument)
    .argument('<ports>', '[HOSTPORT:]GUESTPORT; 0 as HOSTPORT picks a free port')
    .description('Forward connections on 127.0.0.1 to a guest port, until Ctrl-C')
    .action(run(async () => (await import('./vm-forward.ts')).vmForward))
  vm.command('list')
    .description('List running VMs')
    .option('--json', 'print one JSON object per line')
    .action(run(async () => (await import('./vm-list.ts')).vmList))
  vm.command('logs')
    .argument('<vm>', `${vmArgument}; finished runs too`)
    .description('Print the console of a VM, or the log of its agent')
    .option('-f, --follow', 'follow the output until the VM stops')
    .option('--agent', 'print the log of the agent, as JSON lines')
    .action(run(async () => (await import('./vm-list.ts')).vmLogs))
  for (const [command, paused, description] of [
    ['pause', true, 'Pause a VM: its CPUs and its time limits stop'],
    ['resume', false, 'Resume a paused VM'],
  ] as const) {
    vm.command(command)
      .argument('<vm>', vmArgument)
      .description(description)
      .action(
        run(async () => {
          const { vmPause } = await import('./vm-list.ts')
          return (io: Io, name: string) => vmPause(io, name, paused)
        }),
      )
  }
  vm.command('stop')
    .argument('<vm>', vmArgument)
    .description('Stop a VM; its run is cancelled and its changes are collected first')
    .option('--now', 'stop immediately, without collecting changes')
    .action(run(async () => (await import('./vm-list.ts')).vmStop))
  vm.command('templates')
    .description('List the VM templates that new VMs start from, and why any could not be created')
    .option('--prune', 'remove templates unused for a week, and the least recently used beyond 4 GiB')
    .option('--all', 'with --prune: remove all templates, and retry those that failed')
    .option('--json', 'print as JSON')
    .action(run(async () => (await import('./vm-templates.ts')).vmTemplates))
}
