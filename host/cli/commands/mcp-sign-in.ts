/** `caisson mcp login` and `logout`: sign-ins to MCP servers. Opens no browser: the person opens the printed address. */
import { CaissonError } from '#specs/errors.ts'
import { readMcpServer } from '#specs/protocol/mcp-config.ts'
import { type SignInServer, signInServersOf } from '../../mcp/oauth-settings.ts'
import type { SignInRecord } from '../../sign-in/sign-in-records.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { type Io, signInsOf } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { describeSignIn, stateOf } from '../render/sign-in-lines.ts'
import { loadMcpFile } from './mcp.ts'
import { endSignal } from './web-page.ts'

export interface McpLoginFlags {
  readonly device?: boolean
  readonly mcp?: string
  readonly json?: boolean
}

const signOutMs = 20_000

export async function mcpLogin(io: Io, name: string, flags: McpLoginFlags): Promise<ExitCode> {
  const mcpSignIns = signInsOf(io)
  const server = await findServer(io, name, flags)
  const isJson = flags.json === true
  const tell = async (line: object, text: string): Promise<void> => {
    if (isJson) await writeJsonLine(io.stdout, line)
    else io.stderr.write(text)
  }
  const stop = new AbortController()
  void endSignal().then((signal) => stop.abort(new Error(signal)))
  const signIns = await mcpSignIns.load()
  const record = await signIns.signIn(
    server,
    {
      openUrl: (url, issuer) =>
        tell(
          { type: 'open-url', url, issuer },
          `Sign in at ${sanitizeLine(issuer)}. Open this address in a browser on this machine:\n\n${sanitizeLine(url)}\n\n`,
        ),
      showCode: ({ url, code, expiresInMs }, issuer) =>
        void tell(
          { type: 'enter-code', url, code, issuer, expiresInMs },
          `Sign in at ${sanitizeLine(issuer)}. Open ${sanitizeLine(url)} on any device, and enter the code ${sanitizeLine(code)}\n`,
        ),
    },
    stop.signal,
  )
  if (isJson) await writeJsonLine(io.stdout, { type: 'signed-in', ...describeSignIn(record, Date.now()) })
  else io.stdout.write(`Signed in to ${name}: ${stateOf(record, Date.now())}. ${placeOf(record)}\n`)
  return exitCodes.completed
}

export async function mcpLogout(io: Io, names: readonly string[]): Promise<ExitCode> {
  const mcpSignIns = signInsOf(io)
  const records = await mcpSignIns.records.list()
  const unknown = names.find((name) => !records.some(({ server }) => server === name))
  if (unknown !== undefined)
    throw new CaissonError(
      'invalid_options',
      `you are not signed in to an MCP server "${sanitizeLine(unknown)}"; nothing was changed`,
      { remedy: 'list them: caisson mcp list' },
    )
  const signIns = await mcpSignIns.load()
  // Without a configuration that can be read, a client without a secret signs out.
  const configured = await mcpSignIns.servers().catch(() => new Map<string, SignInServer>())
  for (const record of records.filter(({ server }) => names.includes(server))) {
    const server = configured.get(record.server)
    const own = server?.url === record.url ? server : undefined
    const isRevoked = await signIns.signOut(record, AbortSignal.timeout(signOutMs), own)
    const there = isRevoked
      ? 'its tokens were revoked there'
      : 'the server was not asked to revoke its tokens, or did not'
    io.stdout.write(
      `Signed out of ${sanitizeLine(record.server)} (${sanitizeLine(record.url, 120)}); ${there}.\n`,
    )
  }
  return exitCodes.completed
}

function placeOf({ place }: SignInRecord): string {
  return place === 'keyring'
    ? 'The tokens are in the system’s keyring.'
    : 'This machine has no keyring that can be used; the tokens are in mcp-tokens of the state folder, for you alone.'
}

/** @throws {CaissonError} `invalid_options` for a server whose address is plain */
function requireHttps(name: string, form: unknown): void {
  const read = readMcpServer(form)
  const url = read.ok ? read.value?.url : undefined
  if (url === undefined || URL.parse(url)?.protocol !== 'http:') return
  throw new CaissonError(
    'invalid_options',
    `the MCP server "${sanitizeLine(name)}" has the address ${sanitizeLine(url, 200)}; a sign-in needs https, since a token would go over the network in plain text`,
    { remedy: `give mcpServers.${sanitizeLine(name)} an https url` },
  )
}

async function findServer(io: Io, name: string, { device, mcp }: McpLoginFlags): Promise<SignInServer> {
  const mcpSignIns = signInsOf(io)
  const forms = mcp === undefined ? await mcpSignIns.configured() : await loadMcpFile(mcp)
  const servers = signInServersOf(forms)
  const server = servers.get(name)
  if (server === undefined) {
    requireHttps(name, Object.hasOwn(forms, name) ? forms[name] : undefined)
    const known = [...servers.keys()].join(', ') || 'none'
    throw new CaissonError(
      'invalid_options',
      `there is no MCP server "${sanitizeLine(name)}" with an https address and without a header Authorization; there is: ${known}`,
      {
        remedy:
          'add [mcpServers.NAME] with an https url to the configuration file, or name a file with --mcp',
      },
    )
  }
  return device === true ? { ...server, oauth: { ...server.oauth, flow: 'device' } } : server
}
