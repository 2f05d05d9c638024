/** What `fleet` accepts. */
import type { Command } from 'commander'
import { lazy, type RunAction } from '../options.ts'

export function addFleetCommands(fleet: Command, run: RunAction): void {
  addAddressOptions(fleet.command('prepare'))
    .description("Make or upgrade a fleet's tables as their owner, and grant a role the rights of a host")
    .option('--role <name>', 'role of the hosts, which gets the rights of a host and no others')
    .option(
      '--removes-runs',
      'let the role remove ended runs with their journals: caisson runs rm, and kept.fleet of the configuration',
    )
    .option('--print', 'print the SQL for psql and change nothing')
    .action(run(lazy(async () => (await import('../commands/fleet-prepare.ts')).prepare)))
  addAddressOptions(fleet.command('status'))
    .description('Count the runs of a fleet, its hosts, and what no host can serve')
    .action(run(lazy(async () => (await import('../commands/fleet.ts')).fleetStatus)))
  addAddressOptions(fleet.command('hosts'))
    .description('List the hosts of a fleet, which take runs, what they have and when they were seen')
    .action(run(lazy(async () => (await import('../commands/fleet.ts')).fleetHosts)))
  addAddressOptions(fleet.command('drain'))
    .argument('<host>', 'name or ID of the host')
    .description('Let a host take no more runs and give those that it has to others')
    .option('--undo', 'let it take runs again')
    .action(run(lazy(async () => (await import('../commands/fleet.ts')).fleetDrain)))
  addAddressOptions(fleet.command('move'))
    .argument('<run>', 'whole ID of the run')
    .argument('[host]', 'name or ID of the host that takes it (default: any other)')
    .description('Let another host continue a run')
    .action(run(lazy(async () => (await import('../commands/fleet.ts')).fleetMove)))
}

function addAddressOptions(command: Command): Command {
  return command
    .option('--fleet <address>', 'PostgreSQL of the fleet, without a password (default: CAISSON_FLEET)')
    .option('--fleet-file <file>', 'file whose first line is the address of the fleet, with its password')
    .option('--json', 'print JSON')
}
