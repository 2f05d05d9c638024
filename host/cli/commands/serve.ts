/** `caisson serve`: the HTTP service in this process, until a signal ends it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { Host } from '../../host.ts'
import type { HostQueueOptions } from '../../host-options.ts'
import { serviceFolder } from '../../service/place.ts'
import { Service, type ServiceOptions } from '../../service/service.ts'
import { withEnvFile } from '../env-file.ts'
import { exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine, sanitizeWhole } from '../render/sanitize.ts'
import { type JwtFlags, jwtOf, modeOf, originsOf, portOf, publicUrlOf } from './serve-environment.ts'
import { type QuotaFlags, quotasOf } from './serve-keys.ts'
import { endSignal, pageAddress } from './web-page.ts'

export interface ServeFlags extends JwtFlags {
  readonly config?: readonly string[]
  readonly envFile?: string
  readonly address?: string
  readonly port?: number
  readonly socket?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly allowWorkspace?: readonly string[]
  readonly allowHostName?: readonly string[]
  readonly allowOrigin?: readonly string[]
  readonly publicUrl?: string
  readonly parallelRuns?: number
  readonly maxQueue?: number
  readonly maxQueuePerKey?: number
  /** VMs to keep ready. */
  readonly pool?: number
}

/** Time for requests under way to be answered. */
const closeMs = 5_000

export async function serve(given: Io, flags: ServeFlags): Promise<number> {
  const io = await withEnvFile(given, flags.envFile)
  const { isDebug } = modeOf(io.env, flags.token === false)
  const { pool = 0 } = flags
  const host = hostOf(io, flags.config, {
    queue: queueOptions(flags),
    ...(pool === 0 ? {} : { pool: { size: pool } }),
  })
  const jwt = jwtOf(io.env, flags)
  const say = (text: string) => io.stderr.write(`${text}\n`)
  // Its runs end with this process, and the next service continues them; see Service.
  const service = await Service.start({
    host,
    version: io.version,
    clean: { line: sanitizeLine, block: (text) => sanitizeWhole(text) },
    ...listenOptions(io, flags),
    ...(jwt.length === 0
      ? {}
      : { jwt: { verifier: await host.openJwt(jwt), quotas: quotasOf(jwtQuotasOf(flags)) } }),
    log: (line) => {
      if (isDebug || line.level !== 'debug') say(JSON.stringify({ at: new Date().toISOString(), ...line }))
    },
  })
  say(`Caisson listens on ${service.url} and ${service.socket}`)
  say(
    `Page: ${flags.token === false ? `${service.url}/` : await pageAddress(io.stderr, { url: service.url, directory: serviceFolder(host.folders.home) })}`,
  )
  say(`Reference of the API: ${service.url}/docs`)
  if (flags.token === false)
    say(
      'Warning: no token is needed. Every program and user of this machine can start runs, read them and apply changes.',
    )
  else say(`Token: ${service.tokenFile}`)
  for (const { issuer, audience } of jwt)
    say(`Accepts JWTs of ${sanitizeLine(issuer)} for ${sanitizeLine(audience)}`)
  if (pool > 0) void fillPool(host, pool, say)
  for (const runId of service.resumed) say(`Continues ${runId}`)
  const signal = await endSignal()
  const active = service.activeRuns
  say(
    active === 0
      ? `Ends (${signal})`
      : `Ends (${signal}) with ${active} run${active === 1 ? '' : 's'} at work; the next \`caisson serve\` continues ${active === 1 ? 'it' : 'them'}`,
  )
  // The pool's VMs end with it; those of runs at work end with the process alone, which is no loss to recover from.
  const closing = active === 0 ? service.close().then(() => host.close()) : service.close()
  await Promise.race([closing, sleep(closeMs, undefined, { ref: false })])
  // The runs at work have VMs that end with this process, and no end in their journals.
  process.exit(exitCodes.completed)
}

/** A pool that cannot be filled is no reason to end: runs start their own VMs, and say what is missing. */
async function fillPool(host: Host, size: number, say: (text: string) => void): Promise<void> {
  try {
    await host.warm({ onProgress: (text) => say(sanitizeLine(text)) })
    say(`Keeps ${size} VM${size === 1 ? '' : 's'} ready`)
  } catch (error) {
    say(`The VMs to keep ready could not be started: ${sanitizeLine(errorMessage(error), 1_000)}`)
  }
}

function jwtQuotasOf(flags: JwtFlags): QuotaFlags {
  const { jwtMaxRequestsPerMinute, jwtMaxRuns, jwtMaxTokens, jwtMaxCostUsd } = flags
  return {
    maxRequestsPerMinute: jwtMaxRequestsPerMinute,
    maxRuns: jwtMaxRuns,
    maxTokens: jwtMaxTokens,
    maxCostUsd: jwtMaxCostUsd,
  }
}

function queueOptions({ parallelRuns, maxQueue, maxQueuePerKey }: ServeFlags): HostQueueOptions {
  return {
    ...(parallelRuns === undefined ? {} : { maxAtWork: parallelRuns }),
    ...(maxQueue === undefined ? {} : { maxWaiting: maxQueue }),
    ...(maxQueuePerKey === undefined ? {} : { maxWaitingPerLane: maxQueuePerKey }),
  }
}

function listenOptions(io: Io, flags: ServeFlags): Omit<ServiceOptions, 'host' | 'version' | 'log'> {
  const { address, socket, tlsCert, tlsKey, allowWorkspace, allowHostName, allowOrigin } = flags
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    throw new CaissonError('invalid_options', '--tls-cert and --tls-key go together', {
      remedy: 'pass both, or neither',
    })
  return {
    port: portOf(io.env, flags.port),
    origins: originsOf(io.env, allowOrigin),
    workspaces: allowWorkspace ?? [io.directory ?? process.cwd()],
    ...(flags.token === false ? { isOpen: true } : {}),
    ...(address === undefined ? {} : { address }),
    ...(socket === undefined ? {} : { socket }),
    ...(tlsCert === undefined || tlsKey === undefined ? {} : { tls: { certFile: tlsCert, keyFile: tlsKey } }),
    ...(allowHostName === undefined ? {} : { hostNames: allowHostName }),
    ...(flags.publicUrl === undefined ? {} : { publicUrl: publicUrlOf(flags.publicUrl) }),
  }
}
