/** What `vm` and `image` accept. */
import { type Command, Option } from 'commander'
import type { ShellFlags } from '../commands/vm-shell.ts'
import type { Io } from '../io.ts'
import {
  addVmOptions,
  type CommandInput,
  collect,
  lazy,
  parseSize,
  type RunAction,
  vmArgument,
} from '../options.ts'

export function addVmCommands(vm: Command, run: RunAction, { guestCommand }: CommandInput): void {
  addVmOptions(vm.command('boot'))
    .description('Boot a VM without a task, print the time of each phase, and stop it on Ctrl-C')
    .option('-w, --workspace <dir>', 'copy this directory into the VM')
    .option('--once', 'stop the VM as soon as it is ready')
    .action(run(lazy(async () => (await import('../commands/vm.ts')).vmBoot)))
  addVmShell(vm, run, guestCommand)
  addVmCopy(vm, run)
  vm.command('forward')
    .argument('<vm>', vmArgument)
    .argument('<ports>', '[HOSTPORT:]GUESTPORT; 0 as HOSTPORT picks a free port')
    .description('Forward connections on 127.0.0.1 to a guest port, until Ctrl-C')
    .action(run(lazy(async () => (await import('../commands/vm.ts')).vmForward)))
  vm.command('list')
    .description('List running VMs')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/vm.ts')).vmList)))
  addVmStats(vm, run)
  addVmLogs(vm, run)
  for (const [name, paused, description] of [
    ['pause', true, 'Pause a VM: its CPUs and its time limits stop'],
    ['resume', false, 'Resume a paused VM'],
  ] as const)
    vm.command(name)
      .argument('<vm>', vmArgument)
      .description(description)
      .action(run(async (io: Io, of: string) => (await import('../commands/vm.ts')).vmPause(io, of, paused)))
  vm.command('stop')
    .argument('<vm>', vmArgument)
    .description('Stop a VM; its run is cancelled and its changes are collected first')
    .option('--now', 'stop immediately, without collecting changes')
    .action(run(lazy(async () => (await import('../commands/vm.ts')).vmStop)))
  addVmTemplates(vm, run)
}

export function addVmShell(vm: Command, run: RunAction, command: readonly string[]): void {
  addVmOptions(vm.command('shell').usage('[options] [vm] [-- command...]'))
    .argument('[vm]', `${vmArgument} (default: the only running VM, else a new one)`)
    .description('Open a shell in a VM, or run the command after -- and return its exit code')
    .option('-w, --workspace <dir>', 'for a new VM: directory to copy into it (default: the current one)')
    .option('--allow-host <host>', 'for a new VM: allow https requests to this host; repeatable', collect)
    .option('--egress <file>', 'for a new VM: file of egress rules')
    .option('--plain', 'print escape sequences of the guest instead of interpreting them')
    .action(
      run(async (io: Io, name: string | undefined, flags: ShellFlags) =>
        (await import('../commands/vm-shell.ts')).vmShell(io, command, name, flags),
      ),
    )
}

export function addVmCopy(vm: Command, run: RunAction): void {
  vm.command('cp')
    .usage('[options] VM:PATH LOCAL|-\n       caisson vm cp [options] LOCAL|- VM:PATH')
    .argument('<from>', 'VM:PATH, a local path, or - for a tar archive on standard input')
    .argument('<to>', 'VM:PATH, a local path, or - for a tar archive on standard output')
    .description('Copy files between this machine and a VM; relative paths of the VM begin at /mnt/workspace')
    .option('--max-size <size>', 'stop when the VM has sent more than this (default: 16G)', parseSize)
    .action(run(lazy(async () => (await import('../commands/vm-copy.ts')).vmCopy)))
}

export function addVmStats(vm: Command, run: RunAction): void {
  vm.command('stats')
    .argument('[vms...]', `${vmArgument} (default: all)`)
    .description("Show what VMs use of this machine, until Ctrl-C; the numbers are the host's")
    .option('--no-stream', 'print once')
    .option('--json', 'print one JSON object per VM and reading')
    .action(run(lazy(async () => (await import('../commands/vm-stats.ts')).vmStats)))
  vm.command('inspect')
    .argument('<vm>', vmArgument)
    .description('Print what the host knows of a VM as JSON')
    .action(run(lazy(async () => (await import('../commands/vm-stats.ts')).vmInspect)))
}

export function addVmLogs(vm: Command, run: RunAction): void {
  vm.command('logs')
    .argument('<vm>', `${vmArgument}; finished runs too`)
    .description('Print the console of a VM, or the log of its agent')
    .option('-f, --follow', 'follow the output until the VM stops')
    .option('--agent', 'print the log of the agent, as JSON lines')
    .action(run(lazy(async () => (await import('../commands/vm-logs.ts')).vmLogs)))
}

export function addVmTemplates(vm: Command, run: RunAction): void {
  vm.command('templates')
    .description('List the VM templates that new VMs start from, and why any could not be created')
    .option('--prune', 'remove templates unused for a week, and the least recently used beyond 4 GiB')
    .option('--all', 'with --prune: remove all templates, and retry those that failed')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/vm-templates.ts')).vmTemplates)))
}

export function addImageCommands(image: Command, run: RunAction): void {
  const add = (name: string) =>
    image
      .command(name)
      .addOption(
        new Option('--arch <name>', 'image architecture').choices(['amd64', 'arm64']).default('amd64'),
      )
  add('build')
    .description('Build the image if its recipe changed or one of its files is damaged')
    .option('--update-lock', 'resolve packages again and write packages.lock.json')
    .action(run(lazy(async () => (await import('../commands/image.ts')).imageBuild)))
  add('info')
    .description('Show the image and its components')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/image.ts')).imageInfo)))
  add('verify')
    .description('Verify the image against its manifest')
    .action(run(lazy(async () => (await import('../commands/image.ts')).imageVerify)))
  add('sbom')
    .description('Print the software bill of materials of image and agent (CycloneDX JSON)')
    .action(run(lazy(async () => (await import('../commands/image.ts')).imageSbom)))
}
