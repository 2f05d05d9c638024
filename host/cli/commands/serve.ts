/** `caisson serve`: the HTTP service in this process, until a signal ends it. */
import { setTimeout as sleep } from 'node:timers/promises'
import { CaissonError, errorMessage } from '#specs/errors.ts'
import type { FleetMember, FleetMemberOptions } from '../../fleet-member.ts'
import type { Host } from '../../host.ts'
import { defaultMaxAtWork, type HostQueueOptions } from '../../host-options.ts'
import { serviceFolder } from '../../service/place.ts'
import { Service, type ServiceOptions } from '../../service/service.ts'
import { withEnvFile } from '../env-file.ts'
import { exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { sanitizeLine, sanitizeWhole } from '../render/sanitize.ts'
import { type FleetFlags, openMember } from './fleet-environment.ts'
import { type JwtFlags, jwtOf, modeOf, originsOf, portOf, publicUrlOf } from './serve-environment.ts'
import { type QuotaFlags, quotasOf } from './serve-keys.ts'
import { endSignal, pageAddress } from './web-page.ts'

export interface ServeFlags extends JwtFlags, FleetFlags {
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
/** Time for runs to be given back to the fleet; then other hosts take them by themselves, some seconds later. */
export const leaveMs = 30_000
const sameWarningMs = 60_000

export async function serve(given: Io, flags: ServeFlags): Promise<number> {
  const io = await withEnvFile(given, flags.envFile)
  const { isDebug } = modeOf(io.env, flags.token === false)
  const { pool = 0 } = flags
  const say = (text: string) => io.stderr.write(`${text}\n`)
  const isNews = newsOf()
  const log: NonNullable<ServiceOptions['log']> = (line) => {
    if (line.level === 'warn' && !isNews(String(line.message))) return
    if (isDebug || line.level !== 'debug') say(JSON.stringify({ at: new Date().toISOString(), ...line }))
  }
  const fleet = await openMember(io, flags, {
    slots: flags.parallelRuns ?? defaultMaxAtWork(),
    bounds: boundsOf(flags),
    warn: (text) => log({ level: 'warn', message: text }),
  })
  await using undo = new AsyncDisposableStack()
  // Its queue would keep a process alive whose service did not start.
  undo.defer(async () => await fleet?.[Symbol.asyncDispose]().catch(() => undefined))
  if (fleet === undefined && flags.parallelRuns === 0)
    throw new CaissonError('invalid_options', '--parallel-runs 0: this service would carry no run out', {
      remedy: 'pass a count from 1, or --fleet, whose other hosts carry runs out',
    })
  const host = hostOf(io, flags.config, {
    // Of a fleet the slots of each host bound its runs.
    ...(fleet === undefined ? { queue: queueOptions(flags) } : { fences: fleet, apiKeys: fleet.apiKeys }),
    ...(pool === 0 ? {} : { pool: { size: pool } }),
  })
  const jwt = jwtOf(io.env, flags)
  logWarnings(log)
  // Its runs end with this process, and the next service continues them; see Service.
  const service = await Service.start({
    host,
    version: io.version,
    ...(fleet === undefined ? {} : { fleet }),
    clean: { line: sanitizeLine, block: (text) => sanitizeWhole(text) },
    ...listenOptions(io, flags),
    ...(jwt.length === 0
      ? {}
      : { jwt: { verifier: await host.openJwt(jwt), quotas: quotasOf(jwtQuotasOf(flags)) } }),
    log,
  })
  undo.move()
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
  if (fleet !== undefined)
    say(
      `One of the fleet at ${sanitizeLine(fleet.address)}, as ${sanitizeLine(fleet.name)} (${fleet.hostId})`,
    )
  for (const runId of service.resumed) say(`Continues ${runId}`)
  const signal = await endSignal()
  const active = service.activeRuns
  say(`Ends (${signal})${whatFollows(active, fleet)}`)
  // The pool's VMs end with it; those of runs at work end with the process alone, which is no loss to recover from.
  const closing = closeAll(service, host, active, fleet)
  const isLate = await Promise.race([
    closing.catch((error: unknown) => say(sanitizeLine(errorMessage(error), 1_000))),
    sleep(fleet === undefined ? closeMs : leaveMs, true, { ref: false }),
  ])
  if (isLate === true && fleet !== undefined)
    say('The database did not answer in time. Other hosts take the runs of this one when it answers again.')
  // The runs at work have VMs that end with this process, and no end in their journals.
  process.exit(exitCodes.completed)
}

/** Whether a warning is new: what fails and is tried again each second is said once a minute. */
function newsOf(): (message: string) => boolean {
  const said = new Map<string, number>()
  return (message) => {
    const now = performance.now()
    for (const [text, at] of said) if (now - at > sameWarningMs) said.delete(text)
    if (said.has(message)) return false
    said.set(message, now)
    return true
  }
}

/** Warnings of Node and its libraries would stand as text between the lines of the log. */
function logWarnings(log: NonNullable<ServiceOptions['log']>): void {
  process.removeAllListeners('warning')
  process.on('warning', ({ name, message }) =>
    log({ level: 'warn', message: sanitizeLine(message, 2_000), name }),
  )
}

function whatFollows(active: number, fleet: FleetMember | undefined): string {
  if (active === 0) return ''
  const [runs, them] = active === 1 ? ['1 run', 'it'] : [`${active} runs`, 'them']
  const next =
    fleet === undefined ? 'the next `caisson serve` continues' : 'other hosts of the fleet continue'
  return ` with ${runs} at work; ${next} ${them}`
}

async function closeAll(
  service: Service,
  host: Host,
  active: number,
  fleet: FleetMember | undefined,
): Promise<void> {
  await service.close()
  if (active === 0 || fleet !== undefined) await host.close()
  await fleet?.[Symbol.asyncDispose]()
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

function boundsOf({ maxQueue, maxQueuePerKey }: ServeFlags): NonNullable<FleetMemberOptions['bounds']> {
  return {
    ...(maxQueue === undefined ? {} : { maxWaiting: maxQueue }),
    ...(maxQueuePerKey === undefined ? {} : { maxWaitingPerLane: maxQueuePerKey }),
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
