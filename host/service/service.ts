/**
 * The service: one process that carries out runs for callers over HTTP. It owns the runs that it starts, and continues
 * at its start those that an earlier one left. It holds no state of its own that a kill could lose: the journals have it.
 */

import { once } from 'node:events'
import { readFile, realpath } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import { isIP, type Socket } from 'node:net'
import path from 'node:path'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { errnoOf } from '#specs/node/file-error.ts'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import { CaissonError, type FleetMember, type Host } from '../index.ts'
import { Access, hostNames } from './access.ts'
import { Callers, type JwtAccess } from './callers.ts'
import { connectionsMax } from './connections.ts'
import { RunEvents } from './events.ts'
import { FleetStarts } from './fleet-starts.ts'
import { makeHandlers } from './handlers.ts'
import { createHttpServer } from './http-server.ts'
import { Links } from './links.ts'
import { MetricValues } from './metric-values.ts'
import { Notices, type NoticeTimes } from './notices.ts'
import { Ownership } from './ownership.ts'
import { keepAddress, keepSocketPlace, readToken, serviceFolder, socketName } from './place.ts'
import { Push } from './push.ts'
import { Quotas } from './quotas.ts'
import { Readiness } from './readiness.ts'
import { desktopReceivers, webhookReceivers } from './receivers.ts'
import { runIdOf } from './run-keys.ts'
import { RunMetrics } from './run-metrics.ts'
import { RunWaits } from './run-waits.ts'
import { Scrape } from './scrape.ts'
import { ServiceRuns } from './service-runs.ts'
import { listenOnSocket } from './unix-socket.ts'
import { Uploads } from './uploads.ts'

export const defaultPort = 3789

export interface ServiceOptions {
  readonly host: Host
  /** The fleet that the host is one of, as its option `fences`. Default: this process alone carries its runs out. */
  readonly fleet?: FleetMember
  readonly version: string
  /** Default `127.0.0.1`. Any other address that is not loopback needs `tls`. */
  readonly address?: string
  /** 0: a free one. Default 3789. */
  readonly port?: number
  /** Files in PEM form. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string }
  /** A Unix socket besides, for this user alone. Default: `service/service.sock` in the state folder. */
  readonly socket?: string
  /** Folders below which a workspace may be. Default: none. */
  readonly workspaces?: readonly string[]
  /** Further names by which clients reach it, such as behind a proxy: `caisson.example.com`. */
  readonly hostNames?: readonly string[]
  /** Origins of pages that may call. Default: none. */
  readonly origins?: readonly string[]
  /** Every program that reaches the address may call, without a token. Only for loopback. Default false. */
  readonly isOpen?: boolean
  /** Callers of an issuer, by JWT. Default: none. */
  readonly jwt?: JwtAccess
  readonly log?: (line: Readonly<Record<string, unknown>>) => void
  /** Origin by which people reach the service; messages to them then have links that answer. Default: no links. */
  readonly publicUrl?: string
  /**
   * It lives as long as one command: commands do not find it, it continues no runs of an earlier service and sends no
   * messages. Default false.
   */
  readonly isBrief?: boolean
  /** How untrusted text is shown to people who decide by it, in other protocols. Absent: as it is. */
  readonly clean?: CleanText
  /** Of messages to people about questions that wait. */
  readonly noticeTimes?: NoticeTimes
}

export class Service implements AsyncDisposable {
  /** `http://127.0.0.1:3789`. */
  readonly url: string
  /** Where it listens besides, unless it is brief. */
  readonly socket: string
  readonly tokenFile: string
  /** Runs of an earlier service that it continues. */
  readonly resumed: readonly string[]
  readonly #app: FastifyInstance
  readonly #local: AsyncDisposable
  readonly #runs: ServiceRuns
  readonly #waits: RunWaits
  readonly #notices: Notices | undefined
  readonly #fleet: FleetMember | undefined
  /** Ends the observation of runs. */
  readonly #forget: () => void

  private constructor(parts: {
    readonly url: string
    readonly socket: string
    readonly tokenFile: string
    readonly resumed: readonly string[]
    readonly app: FastifyInstance
    readonly local: AsyncDisposable
    readonly runs: ServiceRuns
    readonly waits: RunWaits
    readonly notices: Notices | undefined
    readonly forget: () => void
    readonly member: FleetMember | undefined
  }) {
    this.url = parts.url
    this.socket = parts.socket
    this.tokenFile = parts.tokenFile
    this.resumed = parts.resumed
    this.#app = parts.app
    this.#local = parts.local
    this.#runs = parts.runs
    this.#waits = parts.waits
    this.#notices = parts.notices
    this.#forget = parts.forget
    this.#fleet = parts.member
  }

  /** @throws {CaissonError} when it cannot listen safely; the message says what to pass */
  static async start(options: ServiceOptions): Promise<Service> {
    const { host, version, address = '127.0.0.1', port = defaultPort, log = () => undefined } = options
    requireSafe(address, options.tls !== undefined)
    const { isOpen = false, isBrief = false } = options
    const publicHost = options.publicUrl === undefined ? [] : [new URL(options.publicUrl)]
    const reachable = publicHost.map(({ hostname }) => hostname).filter((name) => !isLoopback(name))
    if (isOpen) requireLoopback(address, [...(options.hostNames ?? []), ...reachable])
    await host.openIndex()
    const messenger = await host.openMessenger()
    const directory = serviceFolder(host.folders.home)
    const { file: tokenFile, token } = await readToken(directory)
    const links =
      options.publicUrl === undefined
        ? undefined
        : await Links.open(directory, options.publicUrl, messenger.linkMs)
    const contact =
      options.publicUrl?.startsWith('https:') === true ? options.publicUrl : 'mailto:owner@localhost'
    const push = await Push.open({ directory, messenger, keys: host.apiKeys, contact, links, log })
    const { jwt } = options
    const ownership = new Ownership(host.runs, {
      keys: host.apiKeys,
      ...(jwt?.quotas === undefined ? {} : { subjectQuotas: jwt.quotas }),
    })
    const { fleet: member } = options
    const useOf = member === undefined ? undefined : (caller: string) => member.useOf(caller)
    const quotas = new Quotas({ host, useOf, atWork: () => runs.ofCallers })
    const callers = new Callers({
      ...{ token, keys: host.apiKeys, log },
      ...(jwt === undefined ? {} : { jwt }),
      ...(links === undefined ? {} : { links }),
    })
    // The issuer may be out of reach for a while, which is no reason not to start.
    void jwt?.verifier.check().catch((error: unknown) => {
      log({ level: 'error', message: 'JWTs cannot be checked', cause: CaissonError.from(error).message })
    })
    const values = new MetricValues()
    let notices: Notices | undefined
    const emptyWorkspaces = path.join(directory, 'workspaces')
    const uploads = new Uploads(host, emptyWorkspaces, member)
    const starts =
      member === undefined
        ? undefined
        : new FleetStarts({
            ...{ host, fleet: member, uploads, emptyWorkspaces },
            workspaceOf: (given) => runs.workspaceOf(given),
            limitsNow: async (metadata, limits) =>
              await quotas.limitsNow(await ownership.ownerOf({ metadata }), limits),
            limitsToContinue: async (run) => await quotas.limitsToContinue(await ownership.ownerOf(run), run),
            onRun: (run, caller) => {
              runs.hold(run, caller)
              void notices?.began(run.id)
            },
          })
    const runs: ServiceRuns = new ServiceRuns({
      ...{ host, quotas, ownership },
      fleet: member === undefined || starts === undefined ? undefined : { member, starts },
      onChange: (runId) => {
        waits.wake(runId)
        notices?.left(runId)
      },
      onStart: async (runId) => await notices?.began(runId),
      onRefused: () => values.add('caisson_queue_refused_total', {}),
      workspaces: await Promise.all((options.workspaces ?? []).map((folder) => realWorkspace(folder))),
      emptyWorkspaces,
      warn: (message) => log({ level: 'warn', message }),
    })
    const events = new RunEvents(host, runs)
    const waits: RunWaits = new RunWaits({ host, quotas, isHeld: (runId) => runs.holds(runId) })
    const runMetrics = new RunMetrics(values)
    const readiness = new Readiness({ doctor: (given) => host.doctor(given), log })
    const scrape = new Scrape({ host, values, runs: runMetrics, fleet: member, readiness, version, log })
    const handlers = makeHandlers({
      host,
      runs,
      events,
      waits,
      uploads,
      ownership,
      quotas,
      readiness,
      scrape,
      push,
      version,
      ...{ publicUrl: options.publicUrl, log, fleet: member },
      clean: options.clean ?? { line: (text) => text, block: (text) => text },
    })
    const locals = new WeakSet<Socket>()
    const names = new Set<string>()
    const access = new Access({ callers, hosts: names, origins: new Set(options.origins ?? []) })
    const tls = options.tls === undefined ? {} : { tls: await readTls(options.tls) }
    const isLocal = ({ raw }: FastifyRequest): boolean => locals.has(raw.socket)
    const app = createHttpServer({
      access,
      callers,
      quotas,
      ownership,
      runIdOf: (caller, name) => runIdOf(host.runs, caller, name),
      handlers,
      events,
      waits,
      ...{ isLocal, isOpen },
      log,
      onAnswered: (route, status) =>
        values.add('caisson_http_requests_total', { route: route ?? 'none', status: String(status) }),
      ...tls,
    })
    // Those of the socket, which is the owner's, do not count.
    app.server.maxConnections = connectionsMax()
    await using undo = new AsyncDisposableStack()
    const observed = [host.observeRuns(runMetrics), host.observeRuns(waits)]
    const forget = () => observed.forEach((end) => void end())
    undo.defer(forget)
    undo.defer(() => app.close())
    await app.ready()
    const elsewhere = options.socket === undefined ? undefined : path.resolve(options.socket)
    const socket = elsewhere ?? path.join(directory, socketName)
    // The socket first: of two services of one user the second ends here.
    const local = undo.use(isBrief ? new AsyncDisposableStack() : await openLocal(socket, app, locals))
    if (!isBrief) await keepSocketPlace(directory, elsewhere)
    if (!isBrief && elsewhere !== undefined) local.defer(() => keepSocketPlace(directory, undefined))
    await app.listen({ host: address, port }).catch((cause: unknown) => {
      throw cannotListen(address, port, cause)
    })
    const bound = app.server.address()
    const boundPort = typeof bound === 'object' && bound !== null ? bound.port : port
    const own = isIP(address) !== 0 && isLoopback(address) ? ['127.0.0.1', '::1', 'localhost'] : [address]
    for (const name of hostNames(
      [...own, ...(options.hostNames ?? [])],
      boundPort,
      options.tls !== undefined,
    ))
      names.add(name)
    // A proxy keeps the name that its clients use, without this port.
    for (const name of options.hostNames ?? []) names.add(name.toLowerCase())
    for (const { host: name } of publicHost) names.add(name)
    const resumed = isBrief ? [] : await runs.resumeAll()
    const webhooks = webhookReceivers(messenger, (runId) => host.runs.summary(runId), links)
    const desktops = desktopReceivers(messenger)
    const receivers = async () => {
      const browsers = await push.receivers().catch((error: unknown) => {
        log({
          level: 'error',
          message: 'no browser can be notified',
          cause: CaissonError.from(error).message,
        })
        return []
      })
      return [...webhooks, ...desktops, ...browsers]
    }
    notices = isBrief
      ? undefined
      : await Notices.start({
          ...{ host, directory, values, log, afterMs: messenger.afterMs, receivers },
          held: () => runs.held,
          ...(options.noticeTimes === undefined ? {} : { times: options.noticeTimes }),
        })
    const shown = isIP(address) === 6 ? `[${address}]` : address
    const url = `${options.tls === undefined ? 'http' : 'https'}://${shown}:${boundPort}`
    if (!isBrief) {
      await keepAddress(directory, url)
      local.defer(() => keepAddress(directory, undefined))
    }
    member?.onEnding(async (runId) => await notices?.began(runId))
    await starts?.work()
    undo.move()
    return new Service({ url, socket, tokenFile, resumed, app, local, runs, waits, notices, forget, member })
  }

  /** Number of runs at work in this process. */
  get activeRuns(): number {
    return this.#runs.count
  }

  /**
   * Answers requests that wait, stops taking others and ends its connections. Runs at work continue; those that the process
   * ends with are continued by the next service. Those of a fleet are given back first: other hosts continue them.
   */
  async close(): Promise<void> {
    await this.#fleet?.leave()
    const drained = this.#waits.close()
    await this.#notices?.[Symbol.asyncDispose]()
    await drained
    await this.#local[Symbol.asyncDispose]()
    await this.#app.close()
    this.#forget()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** Serves the same routes on a Unix socket, whose folder admits this user alone. */
async function openLocal(
  file: string,
  app: FastifyInstance,
  locals: WeakSet<Socket>,
): Promise<AsyncDisposableStack> {
  const server = createServer((request, response) => app.routing(request, response))
  server.on('connection', (socket) => locals.add(socket))
  await listenOnSocket(server, file)
  const local = new AsyncDisposableStack()
  local.defer(() => closeServer(server))
  return local
}

async function closeServer(server: Server): Promise<void> {
  if (!server.listening) return
  server.close()
  server.closeAllConnections()
  await once(server, 'close')
}

function isLoopback(address: string): boolean {
  return address === 'localhost' || address === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(address)
}

function requireSafe(address: string, hasTls: boolean): void {
  if (isLoopback(address) || hasTls) return
  throw new CaissonError(
    'invalid_options',
    `the address ${address} can be reached from other machines, and the token would cross the network as plain text`,
    {
      remedy:
        'pass --tls-cert and --tls-key, or keep 127.0.0.1 and put a proxy that ends TLS before it (--allow-host-name)',
    },
  )
}

/** Without a token only this machine may reach the service, not even over a proxy. */
function requireLoopback(address: string, names: readonly string[]): void {
  if (isLoopback(address) && names.length === 0) return
  const reach = isLoopback(address) ? `the name ${names[0]}` : `the address ${address}`
  throw new CaissonError('invalid_options', `--no-token: other machines can reach the service by ${reach}`, {
    remedy: 'leave out --no-token, or listen on 127.0.0.1 without --allow-host-name',
  })
}

async function realWorkspace(folder: string): Promise<string> {
  return await realpath(folder).catch((cause: unknown) => {
    throw new CaissonError('invalid_options', `the folder ${folder} for workspaces cannot be used`, { cause })
  })
}

async function readTls({ certFile, keyFile }: { certFile: string; keyFile: string }): Promise<{
  cert: Buffer
  key: Buffer
}> {
  const read = (what: string, file: string) =>
    readFile(file).catch((cause: unknown) => {
      throw new CaissonError('invalid_options', `the ${what} ${file} cannot be read`, { cause })
    })
  return { cert: await read('certificate', certFile), key: await read('key', keyFile) }
}

function cannotListen(address: string, port: number, cause: unknown): CaissonError {
  const isTaken = errnoOf(cause) === 'EADDRINUSE'
  return new CaissonError(
    'not_possible_now',
    isTaken
      ? `another program listens on ${address}:${port}`
      : `cannot listen on ${address}:${port}: ${cause instanceof Error ? cause.message : String(cause)}`,
    { remedy: 'choose another with --port', cause },
  )
}
