/**
 * The client of the conformance suite with authorization: our connection, with the token that the host adds, and sign-ins
 * by a person who agrees to everything. The suite's servers are on this machine, so no address is judged here.
 */
import { createPrivateKey } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { FetchLike } from '@modelcontextprotocol/client'
import type { KeySource } from '../../host/keys/key-source.ts'
import { Secret } from '../../host/keys/secret.ts'
import type { McpOAuth, SignInServer } from '../../host/mcp/oauth-settings.ts'
import type { SignInPerson } from '../../host/sign-in/sign-in.ts'
import { SignInRecords } from '../../host/sign-in/sign-in-records.ts'
import { SignIns } from '../../host/sign-in/sign-ins.ts'
import { resolveFolders } from '../../host/state/folders.ts'
import { McpConnection } from '../../runtime/mcp/connection.ts'
import { openHttpTransport } from '../../runtime/mcp/http.ts'

const url = process.argv.at(-1) ?? ''
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? ''
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}') as Readonly<Record<string, string>>
/** A person signs in this often for one request, and no more. */
const signInsMax = 3

const home = await mkdtemp(path.join(tmpdir(), 'caisson-sign-in-'))
const folders = resolveFolders({ HOME: home, CAISSON_HOME: home })
const values: Readonly<Record<string, string>> = {
  SECRET: context.client_secret ?? '',
  KEY: context.private_key_pem === undefined ? '' : toJwk(context.private_key_pem),
}
const signIns = new SignIns(
  {
    // No keyring: it has no programs.
    place: { folders, env: { PATH: '/nonexistent' } },
    fetchFor: () => Promise.resolve(((address, init) => fetch(address, init)) as FetchLike),
    resolveKey: (source: KeySource) =>
      Promise.resolve({
        ok: true as const,
        value: new Secret(values['env' in source ? source.env : ''] ?? ''),
      }),
  },
  new SignInRecords(folders),
)
const server: SignInServer = { name: 'suite', url, transport: 'streamable-http', oauth: settingsOf(scenario) }

/** Follows the page of the authorization server back to this machine. */
const person: SignInPerson = {
  openUrl: async (address) => {
    const page = await fetch(address, { redirect: 'manual' })
    const back = page.headers.get('location')
    if (back !== null) await fetch(back)
  },
  showCode: () => undefined,
}

/** As the host's gateway does it: adds the token, and renews it or has the person sign in where it is refused. */
const fetchWithToken: FetchLike = async (address, init) => {
  for (let signedIn = 0; ; ) {
    const token = await signIns.token(server)
    const headers = new Headers(init?.headers)
    if (token.ok) headers.set('authorization', `Bearer ${token.value.reveal()}`)
    const response = await fetch(address, { ...init, headers, redirect: 'manual' })
    if (response.status !== 401 && response.status !== 403) return response
    const said = response.headers.get('www-authenticate') ?? undefined
    const next = await signIns.refused(server, response.status, said, token.ok ? token.value.reveal() : '')
    if (next === null) return response
    await response.body?.cancel()
    if (next === 'renewed') continue
    if (signedIn++ >= signInsMax || server.oauth.flow === 'client-credentials') throw new Error(next.words)
    await signIns.signIn(server, person, AbortSignal.timeout(20_000))
  }
}

const connection = new McpConnection('suite', server, {
  hasPerson: true,
  openTransport: (config) => openHttpTransport(config, fetchWithToken),
})
try {
  const listed = await connection.listTools()
  if (!listed.ok) throw new Error(listed.error)
  for (const { name } of listed.value) {
    const result = await connection.callTool(name, {}, AbortSignal.timeout(20_000))
    process.stdout.write(`${name}: ${result.content.slice(0, 200)}\n`)
  }
} catch (cause) {
  process.stderr.write(`${String(cause)}\n`)
  process.exitCode = 1
} finally {
  await connection.close()
  await rm(home, { recursive: true, force: true })
}

function settingsOf(name: string): McpOAuth {
  const { client_id: clientId } = context
  if (name === 'auth/client-credentials-basic' && clientId !== undefined)
    return { flow: 'client-credentials', clientId, clientSecret: { env: 'SECRET' } }
  if (name === 'auth/client-credentials-jwt' && clientId !== undefined)
    return { flow: 'client-credentials', clientId, privateKey: { env: 'KEY' }, algorithm: 'ES256' }
  if (name === 'auth/pre-registration' && clientId !== undefined)
    return { clientId, clientSecret: { env: 'SECRET' } }
  return { clientMetadataUrl: 'https://conformance-test.local/client-metadata.json' }
}

function toJwk(pem: string): string {
  return JSON.stringify(createPrivateKey(pem).export({ format: 'jwk' }))
}
