/** `caisson mcp serve`: Caisson as an MCP server, over standard input and output or HTTP, for the runs of the service. */
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { ServiceClient } from '../../../client/index.ts'
import {
  type CaissonMcpOptions,
  CallSlots,
  callerIdOf,
  createCaissonServer,
  McpHttpServer,
  serveMcpStdio,
} from '../../mcp-server/index.ts'
import { readToken, serviceFolder } from '../../service/place.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { findLocalService } from '../local-service.ts'
import { sanitizeLine, sanitizeWhole } from '../render/sanitize.ts'
import { fetchOver } from '../socket-client.ts'
import { realDirectory } from './memory.ts'
import { endSignal } from './web-page.ts'

export interface McpServeFlags {
  readonly port?: number
  readonly service?: string
  readonly stateKeyFile?: string
  readonly workspace?: string
  readonly allRuns?: boolean
  readonly allowHostName?: readonly string[]
}

/** Key, JWT or token for the service, over stdio. Absent: the token of the owner, of the service on this machine. */
const tokenVariable = 'CAISSON_SERVICE_TOKEN'

/** Where the service is: its clients, and the owner's token where it may be used. */
interface ServiceAccess {
  readonly clientOf: (token: string) => ServiceClient
  readonly ownerToken: string | undefined
}

export async function mcpServe(io: Io, flags: McpServeFlags): Promise<ExitCode> {
  checkFlags(flags)
  const { folders } = hostOf(io)
  await prepareFolders(folders)
  const access =
    flags.service === undefined ? await localAccess(io, folders.home) : remoteAccess(flags.service)
  const options = await serverOptions(io, folders.home, flags)
  return flags.port === undefined
    ? await serveOverStdio(io, flags, access, options)
    : await serveOverHttp(io, flags, flags.port, access, options)
}

async function serveOverStdio(
  io: Io,
  { allRuns = false }: McpServeFlags,
  { clientOf, ownerToken }: ServiceAccess,
  options: CaissonMcpOptions,
): Promise<ExitCode> {
  const token = io.env[tokenVariable] ?? ownerToken
  if (token === undefined)
    throw new CaissonError('invalid_options', `--service needs a key for that service in ${tokenVariable}`, {
      remedy: 'make one there: caisson serve keys create NAME --scope run,read,approve',
    })
  const caller = { service: clientOf(token), id: callerIdOf(token), seesMarkedRunsAlone: !allRuns }
  const log = (line: string) => void io.stderr.write(`${sanitizeLine(line)}\n`)
  const serving = serveMcpStdio({ ...options, caller, log, input: io.stdin, output: io.stdout })
  await Promise.race([serving, endSignal()])
  return exitCodes.completed
}

async function serveOverHttp(
  io: Io,
  flags: McpServeFlags,
  port: number,
  { clientOf }: ServiceAccess,
  options: CaissonMcpOptions,
): Promise<ExitCode> {
  const server = await McpHttpServer.start({
    ...{ port, serviceOf: clientOf },
    create: (caller) => createCaissonServer(options, caller),
    ...(flags.allowHostName === undefined ? {} : { hostNames: flags.allowHostName }),
    log: (line) => void io.stderr.write(`${sanitizeLine(line)}\n`),
  })
  io.stderr.write(
    `Caisson serves MCP on ${server.url}\nClients send a key of the service: caisson serve keys create NAME --scope run,read,approve\n`,
  )
  const signal = await endSignal()
  io.stderr.write(`Ends (${signal})\n`)
  await server.close()
  return exitCodes.completed
}

async function serverOptions(
  io: Io,
  home: string,
  { stateKeyFile, workspace }: McpServeFlags,
): Promise<CaissonMcpOptions> {
  const file =
    stateKeyFile === undefined ? undefined : path.resolve(io.directory ?? process.cwd(), stateKeyFile)
  const { token } =
    file === undefined
      ? await readToken(serviceFolder(home), 'mcp-state-key')
      : await readToken(path.dirname(file), path.basename(file))
  return {
    version: io.version,
    stateKey: Buffer.from(token, 'base64url'),
    clean: { line: sanitizeLine, block: (text) => sanitizeWhole(text) },
    slots: new CallSlots(),
    ...(workspace === undefined ? {} : { workspace: await realDirectory(workspace) }),
  }
}

/** @throws {CaissonError} `not_possible_now` without a service */
async function localAccess(io: Io, home: string): Promise<ServiceAccess> {
  const found = await findLocalService(home, io.version)
  if (found === undefined || 'problem' in found)
    throw new CaissonError(
      'not_possible_now',
      found?.problem ?? 'no service of this user runs on this machine',
      {
        remedy: 'start it with caisson serve, or name another one with --service',
      },
    )
  const overSocket = fetchOver(found.socket)
  return {
    clientOf: (token) => new ServiceClient({ baseUrl: 'http://localhost', token, fetch: overSocket }),
    ownerToken: found.token,
  }
}

function remoteAccess(service: string): ServiceAccess {
  return { clientOf: (token) => new ServiceClient({ baseUrl: service, token }), ownerToken: undefined }
}

function checkFlags({ service, port, workspace, allRuns, allowHostName }: McpServeFlags): void {
  const url = service === undefined ? undefined : URL.parse(service)
  const isSafe =
    url === undefined ||
    (url !== null && (url.protocol === 'https:' || isLoopback(url)) && url.origin === service)
  if (!isSafe)
    throw new CaissonError(
      'invalid_options',
      `--service ${JSON.stringify(sanitizeLine(service ?? '', 100))}: expected an origin with https, or http of this machine`,
      {
        remedy: 'such as https://caisson.example.com',
      },
    )
  if (port === undefined && allowHostName !== undefined)
    throw new CaissonError('invalid_options', '--allow-host-name is for HTTP', {
      remedy: 'add --port',
    })
  if (port !== undefined && allRuns === true)
    throw new CaissonError('invalid_options', '--all-runs is for standard input and output', {
      remedy: 'over HTTP, each key sees its own runs',
    })
  if (port !== undefined && workspace !== undefined)
    throw new CaissonError('invalid_options', '--workspace is for standard input and output', {
      remedy: 'over HTTP, a task names its workspace',
    })
}

function isLoopback({ protocol, hostname }: URL): boolean {
  return protocol === 'http:' && ['localhost', '127.0.0.1', '[::1]'].includes(hostname)
}
