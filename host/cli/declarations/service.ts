/** What `serve` accepts. */
import type { Command } from 'commander'
import { addConfigOption, collect, lazy, parseCountOrNone, type RunAction } from '../options.ts'

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
    .option('--env-file <file>', 'file of variables, as .env.example has them; those of the environment win')
    .option(
      '--no-token',
      'let every program of this machine call without the token; only on loopback addresses',
    )
    .action(run(lazy(async () => (await import('../commands/serve.ts')).serve)))
}
