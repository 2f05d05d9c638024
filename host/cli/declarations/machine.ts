/** What `doctor`, `clean`, `config`, `models`, `policy` and `key` accept. */
import type { Command } from 'commander'
import {
  addConfigOption,
  addEgressOptions,
  addEnvFileOption,
  lazy,
  parseAge,
  type RunAction,
} from '../options.ts'

export function addDoctorCommand(command: Command, run: RunAction): void {
  addEnvFileOption(command)
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/doctor.ts')).doctor)))
}

export function addCleanCommand(command: Command, run: RunAction): void {
  command
    .option('--yes', 'remove the entries listed as "remove"; without it, nothing is removed')
    .option('--all', 'also remove current entries; the next run builds and downloads them again')
    .option('--runs', 'also remove finished runs with their journals and change sets')
    .option(
      '--older-than <age>',
      'with --runs: only runs that started at least this long ago (default: 30d)',
      parseAge,
    )
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/clean.ts')).clean)))
}

export function addConfigCommands(config: Command, run: RunAction): void {
  config
    .command('path')
    .description('Print the path of the configuration file, even if it does not exist')
    .action(run(lazy(async () => (await import('../commands/config.ts')).configPath)))
  addEnvFileOption(addConfigOption(config.command('check')))
    .description('Check the configuration file, the models and their providers, and the keys')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/config.ts')).configCheck)))
}

export function addModelsCommand(command: Command, run: RunAction): void {
  addEnvFileOption(addConfigOption(command.argument('[provider]', 'name of one provider; without it, all')))
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/models.ts')).models)))
}

export function addPolicyCommands(policy: Command, run: RunAction): void {
  addEgressOptions(policy.command('check').argument('<url>', 'full http or https URL'))
    .description('Check whether a request to a URL and a tunnel to its host are allowed, and by which rule')
    .option('--method <name>', 'HTTP method of the request', 'GET')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/policy.ts')).policyCheck)))
  addEgressOptions(policy.command('explain'))
    .description('List the rules in force and their sources, highest precedence first')
    .option('--json', 'print as JSON')
    .action(run(lazy(async () => (await import('../commands/policy.ts')).policyExplain)))
  policy
    .command('revoke')
    .argument('[number...]', 'number of a grant; without one, list all permanent grants')
    .description('Revoke permanent network grants')
    .action(run(lazy(async () => (await import('../commands/policy.ts')).policyRevoke)))
}

export function addKeyCommands(key: Command, run: RunAction): void {
  key
    .command('set')
    .argument('<name>', 'name of the provider, or the name that the configuration uses')
    .description('Store a key; type it (not shown) or pipe it to standard input')
    .action(run(lazy(async () => (await import('../commands/key.ts')).keySet)))
  key
    .command('list')
    .description('List the names of stored keys')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/key.ts')).keyList)))
  key
    .command('rm')
    .argument('<name>')
    .description('Remove a key')
    .action(run(lazy(async () => (await import('../commands/key.ts')).keyRemove)))
}
