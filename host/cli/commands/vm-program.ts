/** The commands below `vm` that use running VMs, of this process's user and any process. */
import type { Command } from 'commander'
import type { Io } from '../io.ts'

/** What a command returns: the process's exit code. */
export type Action = (...args: never[]) => Promise<number>

type Run = (load: () => Promise<Action>) => (...args: unknown[]) => Promise<void>

const vmArgument = 'its id, its run, the beginning of either, or "last"'

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
    .argument('[vm]', `${vmArgument} (default: the only one, or a new one)`)
    .description('A shell in a VM, or behind -- one command whose exit code is passed on')
    .option(
      '-w, --workspace <dir>',
      'for a new VM: takes a copy of this directory in (default: the current one)',
    )
    .option('--plain', 'shows escape sequences of the guest and does not obey them')
    .action(
      run(async () => {
        const { vmShell } = await import('./vm-shell.ts')
        return (io: Io, name: string | undefined, flags: never) => vmShell(io, command, name, flags)
      }),
    )
  vm.command('forward')
    .argument('<vm>', vmArgument)
    .argument('<ports>', '[HOSTPORT:]GUESTPORT; 0 as the first is any free port')
    .description('Listens on 127.0.0.1 and leads connections to a port of the guest, until Ctrl-C')
    .action(run(async () => (await import('./vm-forward.ts')).vmForward))
  vm.command('list')
    .description('Running VMs: run, state, age, memory, process, directory')
    .option('--json', 'one JSON object a line')
    .action(run(async () => (await import('./vm-list.ts')).vmList))
  vm.command('logs')
    .argument('<vm>', `${vmArgument}; also a run that has ended`)
    .description('The console of a VM, or its agent’s log')
    .option('-f, --follow', 'goes on until the VM ends')
    .option('--agent', 'the agent’s log, as JSON lines')
    .action(run(async () => (await import('./vm-list.ts')).vmLogs))
  for (const [command, paused, description] of [
    ['pause', true, 'Lets the processors of a VM stand still; its time limits do so too'],
    ['resume', false, 'Lets a paused VM go on'],
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
    .description('Ends a VM; its run is cancelled and brings its changes home first')
    .option('--now', 'ends it at once')
    .action(run(async () => (await import('./vm-list.ts')).vmStop))
  vm.command('templates')
    .description('The saved VMs that new ones begin from: how, size, age, last use; what could not be made')
    .option('--prune', 'removes those that nobody used for a week, or beyond 4 GiB of those used last')
    .option('--all', 'with --prune: removes all, and tries again what failed')
    .option('--json', 'as JSON')
    .action(run(async () => (await import('./vm-templates.ts')).vmTemplates))
}
