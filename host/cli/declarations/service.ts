/** What `serve`, `serve keys` and `acp` accept. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { UnstablePart } from '../../acp/agent.ts'
import {
  addConfigOption,
  addVmOptions,
  collect,
  lazy,
  parseAge,
  parseCount,
  parseCountOrNone,
  parseDollars,
  type RunAction,
} from '../options.ts'

export function addServeCommand(command: Command, run: RunAction): void {
  addConfigOption(command)
    .option(
      '--address <address>',
      'address to listen on; one that other machines reach needs TLS (default: 127.0.0.1)',
    )
    .option(
      '--port <port>',
      'port to listen on; 0 for a free one (default: PORT, else 3789)',
      parseCountOrNone,
    )
    .option('--socket <file>', 'also listen on this Unix socket (default: one in the state folder)')
    .option('--tls-cert <file>', 'certificate in PEM form; needs --tls-key')
    .option('--tls-key <file>', 'key of the certificate in PEM form')
    .option(
      '--allow-workspace <dir>',
      'let runs work on this folder and those below it; repeatable (default: the current one)',
      collect,
    )
    .option('--pool <count>', 'VMs to keep ready, so that runs start at once (default: 0)', parseCountOrNone)
    .option(
      '--allow-host-name <name>',
      'another name of this service, as behind a proxy; repeatable',
      collect,
    )
    .option(
      '--allow-origin <origin>',
      'let pages of this origin call the service; repeatable (default: CORS_ORIGINS)',
      collect,
    )
    .option(
      '--public-url <url>',
      'address by which people reach this service; messages about questions then have links that answer (default: none)',
    )
    .option(
      '--parallel-runs <count>',
      'runs at work at once, the others wait; 0 with --fleet: none here (default: two for each processor, as the memory allows)',
      parseCountOrNone,
    )
    .option('--max-queue <count>', 'runs that may wait at once (default: 1000)', parseCountOrNone)
    .option(
      '--max-queue-per-key <count>',
      'runs of one key or subject that may wait at once (default: 200)',
      parseCountOrNone,
    )
    .option(
      '--fleet <address>',
      'share runs with the hosts that use this PostgreSQL, postgres://USER@HOST/DATABASE without a password (default: CAISSON_FLEET)',
    )
    .option('--fleet-file <file>', 'file whose first line is the address of the fleet, with its password')
    .option(
      '--fleet-files <place>',
      'where the hosts of the fleet keep the files of runs: a directory that all of them see, or s3://BUCKET/PREFIX',
    )
    .option(
      '--fleet-labels <labels>',
      'labels of this host, which runs may require: NAME or NAME=VALUE, with commas between them',
    )
    .option('--fleet-name <name>', 'name of this host in the fleet (default: that of the machine)')
    .option(
      '--jwks <place>',
      'accept JWTs: public keys of the issuer, a file or an https address; repeatable (default: JWT_JWKS)',
      collect,
    )
    .option(
      '--jwt-issuer <issuer>',
      'exact issuer of the JWTs; one for each --jwks, in their order (default: JWT_ISSUER)',
      collect,
    )
    .option(
      '--jwt-audience <audience>',
      'audience that a JWT must have; one for all, or one for each --jwks (default: JWT_AUDIENCE)',
      collect,
    )
    .option('--jwt-max-requests-per-minute <count>', 'requests of each subject in any 60 seconds', parseCount)
    .option('--jwt-max-runs <count>', 'runs of each subject at work at once', parseCount)
    .option(
      '--jwt-max-tokens <count>',
      'tokens of the runs that a subject starts on one day (UTC)',
      parseCount,
    )
    .option(
      '--jwt-max-cost-usd <dollars>',
      'US dollars of the runs that a subject starts on one day (UTC)',
      parseDollars,
    )
    .option('--env-file <file>', 'file of variables, as .env.example has them; those of the environment win')
    .option(
      '--no-token',
      'let every program of this machine call without the token; only on loopback addresses',
    )
    .action(run(lazy(async () => (await import('../commands/serve.ts')).serve)))
  addKeyCommands(command.command('keys').description('Manage API keys of the HTTP service'), run)
}

function addKeyCommands(keys: Command, run: RunAction): void {
  addFleetOptions(keys.command('create'))
    .argument('<name>', 'name of the key, for lists and journals')
    .description('Create an API key and print its secret, once')
    .requiredOption(
      '--scope <scopes>',
      'what it may do: read, run, approve, apply, metrics, admin, with commas between them',
      (text: string, before: string[] = []) => [...before, ...text.split(',').map((scope) => scope.trim())],
    )
    .option('--expires <age>', 'time after which it is refused, such as 30d (default: never)', parseAge)
    .option('--max-requests-per-minute <count>', 'requests in any 60 seconds', parseCount)
    .option('--max-runs <count>', 'runs at work at once', parseCount)
    .option('--max-tokens <count>', 'tokens of the runs that start on one day (UTC)', parseCount)
    .option('--max-cost-usd <dollars>', 'US dollars of the runs that start on one day (UTC)', parseDollars)
    .option('--json', 'print the key with its secret as a JSON object')
    .action(run(lazy(async () => (await import('../commands/serve-keys.ts')).createKey)))
  addFleetOptions(keys.command('list'))
    .description('List the API keys, without their secrets')
    .option('--json', 'print one JSON object per line')
    .action(run(lazy(async () => (await import('../commands/serve-keys.ts')).listKeys)))
  addFleetOptions(keys.command('revoke'))
    .argument('<key>', 'name or ID of the key')
    .description('Revoke an API key at once; its runs continue')
    .action(run(lazy(async () => (await import('../commands/serve-keys.ts')).revokeKey)))
}

/** Which keys: of a fleet, or of this user. */
function addFleetOptions(command: Command): Command {
  return command
    .option(
      '--fleet <address>',
      'keys of the fleet at this PostgreSQL, without a password (default: CAISSON_FLEET)',
    )
    .option('--fleet-file <file>', 'file whose first line is the address of the fleet, with its password')
}

export function addAcpCommand(command: Command, run: RunAction): void {
  addVmOptions(addConfigOption(command))
    .option('--no-template', 'boot the VM instead of copying a template')
    .option('--here', 'carry runs out in processes of their own, also while a service runs')
    .addOption(
      new Option('--unstable <part>', 'offer a part of the protocol that is not stable; repeatable')
        .choices(unstableParts)
        .argParser(collectUnstable),
    )
    .action(run(lazy(async () => (await import('../commands/acp.ts')).acp)))
}

const unstableParts = ['fork', 'v2'] satisfies UnstablePart[]

function collectUnstable(value: string, previous: UnstablePart[] = []): UnstablePart[] {
  const part = unstableParts.find((one) => one === value)
  if (part === undefined) throw new InvalidArgumentError(`expected ${unstableParts.join(' or ')}`)
  return [...previous, part]
}
