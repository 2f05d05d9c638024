/** `caisson serve`: the HTTP service in this process, until a signal ends it. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError } from '#specs/errors.ts'
import { Service, type ServiceOptions } from '../../service/service.ts'
import { exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export interface ServeFlags {
  readonly config?: readonly string[]
  readonly address?: string
  readonly port?: number
  readonly socket?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly allowWorkspace?: readonly string[]
  readonly allowHostName?: readonly string[]
  readonly allowOrigin?: readonly string[]
}

const portMax = 65_535
/** Time for requests under way to be answered. */
const closeMs = 5_000

export async function serve(io: Io, flags: ServeFlags): Promise<number> {
  const host = hostOf(io, flags.config ?? [])
  const say = (text: string) => io.stderr.write(`${text}\n`)
  // Its runs end with this process, and the next service continues them; see Service.
  const service = await Service.start({
    host,
    version: io.version,
    ...listenOptions(io, flags),
    log: (line) => say(JSON.stringify({ at: new Date().toISOString(), ...line })),
  })
  say(`Caisson listens on ${service.url} and ${service.socket}`)
  say(`Reference of the API: ${service.url}/docs`)
  say(`Token: ${service.tokenFile}`)
  for (const runId of service.resumed) say(`Continues ${runId}`)
  const signal = await endOfService()
  const active = service.activeRuns
  say(
    active === 0
      ? `Ends (${signal})`
      : `Ends (${signal}) with ${active} run${active === 1 ? '' : 's'} at work; the next \`caisson serve\` continues ${active === 1 ? 'it' : 'them'}`,
  )
  await Promise.race([service.close(), sleep(closeMs, undefined, { ref: false })])
  // The runs at work have VMs that end with this process, and no end in their journals.
  process.exit(exitCodes.completed)
}

function listenOptions(io: Io, flags: ServeFlags): Omit<ServiceOptions, 'host' | 'version' | 'log'> {
  const { address, socket, tlsCert, tlsKey, allowWorkspace, allowHostName, allowOrigin } = flags
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    throw new CaissonError('invalid_options', '--tls-cert and --tls-key go together', {
      remedy: 'pass both, or neither',
    })
  for (const origin of allowOrigin ?? [])
    if (!/^https?:\/\/[^/\s]+$/.test(origin))
      throw new CaissonError(
        'invalid_options',
        `--allow-origin ${JSON.stringify(sanitizeLine(origin))}: expected a scheme and a host, such as https://app.example.com`,
      )
  return {
    port: portOf(io, flags),
    workspaces: allowWorkspace ?? [io.directory ?? process.cwd()],
    ...(address === undefined ? {} : { address }),
    ...(socket === undefined ? {} : { socket }),
    ...(tlsCert === undefined || tlsKey === undefined ? {} : { tls: { certFile: tlsCert, keyFile: tlsKey } }),
    ...(allowHostName === undefined ? {} : { hostNames: allowHostName }),
    ...(allowOrigin === undefined ? {} : { origins: allowOrigin }),
  }
}

function portOf({ env }: Io, { port }: ServeFlags): number {
  const given = port ?? (env.PORT === undefined || env.PORT === '' ? 3_789 : Number(env.PORT))
  if (Number.isInteger(given) && given >= 0 && given <= portMax) return given
  throw new CaissonError(
    'invalid_options',
    `the port ${JSON.stringify(sanitizeLine(String(port ?? env.PORT)))}: expected a whole number up to ${portMax}`,
    { remedy: port === undefined ? 'change the variable PORT, or pass --port' : 'pass another --port' },
  )
}

async function endOfService(): Promise<string> {
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
  const ended = new AbortController()
  try {
    return await Promise.race(
      signals.map(async (signal) => {
        await once(process, signal, { signal: ended.signal })
        return signal
      }),
    )
  } finally {
    ended.abort()
    // Another signal ends the process at once.
  }
}
