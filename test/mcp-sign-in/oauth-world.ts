/**
 * A real authorization server (oidc-provider) and an MCP server of the official library behind its tokens, on this machine,
 * with a host whose rules allow both addresses. A person who agrees to everything has a browser with cookies.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server'
import Provider from 'oidc-provider'
import * as z from 'zod'
import { makePolicy } from '../../host/egress/policy.ts'
import { Secret } from '../../host/keys/secret.ts'
import type { SignInServer } from '../../host/mcp/oauth-settings.ts'
import { directNetwork } from '../../host/net/network.ts'
import { createJudgedFetch } from '../../host/sign-in/judged-fetch.ts'
import type { SignInPerson } from '../../host/sign-in/sign-in.ts'
import { SignInRecords } from '../../host/sign-in/sign-in-records.ts'
import { SignIns } from '../../host/sign-in/sign-ins.ts'
import { resolveFolders } from '../../host/state/folders.ts'

/** Some of its characters stand for others in a form. */
export const machineSecret = 'a-secret:of+the%2Bmachine/0123456789'

type Handler = (request: IncomingMessage, response: ServerResponse) => void

export class OAuthWorld implements AsyncDisposable {
  readonly home: string
  readonly issuer: string
  readonly mcpUrl: string
  /** How the MCP server is known to its clients. */
  shownUrl: string
  /** Paths that the authorization server was asked for. */
  readonly asked: string[] = []
  /** Requests to the MCP server with a valid token. */
  served = 0
  /** Another answer for a request to the MCP server; undefined: its own. */
  mcpAnswer: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined
  /** Another answer of the authorization server. */
  issuerAnswer: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined
  readonly #servers: readonly Server[]
  readonly #provider: Provider

  private constructor(home: string, servers: readonly Server[]) {
    this.home = home
    this.#servers = servers
    const [issuer, mcp] = servers.map((server) => `http://127.0.0.1:${portOf(server)}`)
    this.issuer = issuer ?? ''
    this.mcpUrl = `${mcp}/mcp`
    this.shownUrl = this.mcpUrl
    this.#provider = createProvider(this.issuer, () => this.shownUrl)
    this.#provider.on('server_error', () => undefined)
  }

  static async open(): Promise<OAuthWorld> {
    const home = await mkdtemp(path.join(tmpdir(), 'caisson-oauth-'))
    let world: OAuthWorld | undefined
    const servers = [
      await listen((request, response) => world?.issue(request, response)),
      await listen((request, response) => void world?.serve(request, response)),
    ]
    world = new OAuthWorld(home, servers)
    return world
  }

  get ports(): { readonly issuerPort: number; readonly mcpPort: number } {
    const [issuerPort = 0, mcpPort = 0] = this.#servers.map(portOf)
    return { issuerPort, mcpPort }
  }

  server(oauth: SignInServer['oauth'] = {}): SignInServer {
    return { name: 'tracker', url: this.mcpUrl, transport: 'streamable-http', oauth }
  }

  /** As one process of the host has them. */
  signIns(more: { readonly now?: () => number; readonly path?: string } = {}): SignIns {
    const folders = resolveFolders({ HOME: this.home, CAISSON_HOME: this.home })
    return new SignIns(
      {
        place: { folders, env: { PATH: more.path ?? '/nonexistent' } },
        resolveKey: () => Promise.resolve({ ok: true, value: new Secret(machineSecret) }),
        fetchFor: (signal) => Promise.resolve(this.fetch(signal)),
        ...(more.now === undefined ? {} : { now: more.now }),
      },
      new SignInRecords(folders),
    )
  }

  fetch(signal = AbortSignal.timeout(20_000)): ReturnType<typeof createJudgedFetch> {
    const ports = this.#servers.map(portOf)
    const rule = { effect: 'allow', host: '127.0.0.1', ports, schemes: ['http', 'https'] } as const
    const policy = makePolicy({ configuration: [{ ...rule, schemes: ['http', 'https'] }], otherwise: 'deny' })
    if (!policy.ok) throw new Error(policy.error)
    return createJudgedFetch({ network: directNetwork, policy: policy.value, signal })
  }

  /** @param change what the page's answer becomes before it comes back to this machine */
  person(change: (back: URL) => URL | null = (back) => back): SignInPerson {
    return {
      openUrl: async (address) => {
        const back = await browse(address)
        const changed = back === null ? null : change(back)
        if (changed !== null) await fetch(changed)
      },
      showCode: ({ code }) => void this.#agreeOnDevice(code),
    }
  }

  /** Calls the MCP server as the gateway would, with the token of the host. */
  async call(token: string): Promise<{ readonly status: number; readonly challenge: string | null }> {
    const headers = {
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      authorization: `Bearer ${token}`,
    }
    const params = {
      protocolVersion: '2025-11-25',
      capabilities: {},
      clientInfo: { name: 't', version: '1' },
    }
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })
    const response = await fetch(this.mcpUrl, { method: 'POST', headers, body })
    await response.body?.cancel()
    return { status: response.status, challenge: response.headers.get('www-authenticate') }
  }

  issue(request: IncomingMessage, response: ServerResponse): void {
    this.asked.push(`${request.method} ${request.url?.split('?', 1)[0]}`)
    if (this.issuerAnswer?.(request, response) === true) return
    if (request.url?.startsWith('/interaction/') === true) void this.#agree(request, response)
    else void this.#provider.callback()(request, response)
  }

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.mcpAnswer?.(request, response) === true) return
    const own = new URL(this.shownUrl).origin
    if (request.url?.startsWith('/.well-known/oauth-protected-resource') === true)
      return json(response, 200, {
        resource: this.shownUrl,
        authorization_servers: [this.issuer],
        scopes_supported: ['read'],
      })
    const [, token = ''] = /^Bearer (\S+)$/.exec(request.headers.authorization ?? '') ?? []
    const known = token === '' ? undefined : await this.#provider.AccessToken.find(token)
    const machine = token === '' ? undefined : await this.#provider.ClientCredentials.find(token)
    const found = known ?? machine
    if (found === undefined || found.aud !== this.shownUrl) {
      const metadata = `${own}/.well-known/oauth-protected-resource/mcp`
      response.setHeader('www-authenticate', `Bearer error="invalid_token", resource_metadata="${metadata}"`)
      return json(response, 401, {})
    }
    this.served += 1
    const handler = createMcpHandler(() => createTools())
    const body = await bodyOf(request)
    const answer = await handler.fetch(
      new Request(this.mcpUrl, {
        method: request.method ?? 'GET',
        headers: request.headers as Record<string, string>,
        ...(body === '' ? {} : { body }),
      }),
    )
    response.writeHead(answer.status, Object.fromEntries(answer.headers))
    for await (const piece of answer.body ?? []) response.write(piece)
    response.end()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const server of this.#servers) {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    }
    await rm(this.home, { recursive: true, force: true })
  }

  async #agree(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { prompt, params, session } = await this.#provider.interactionDetails(request, response)
    const grantId =
      prompt.name === 'login'
        ? undefined
        : await this.#grant(String(params.client_id), session?.accountId ?? 'ada', String(params.scope ?? ''))
    const result = grantId === undefined ? { login: { accountId: 'ada' } } : { consent: { grantId } }
    await this.#provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true })
  }

  async #grant(clientId: string, accountId: string, scope: string): Promise<string> {
    const grant = new this.#provider.Grant({ accountId, clientId })
    grant.addOIDCScope(scope)
    grant.addResourceScope(this.shownUrl, scope)
    return await grant.save()
  }

  async #agreeOnDevice(userCode: string): Promise<void> {
    const code = await this.#provider.DeviceCode.findByUserCode(userCode.replaceAll('-', ''))
    if (code === undefined) throw new Error('no such code')
    const scope = String(code.params?.scope ?? '')
    const grantId = await this.#grant(code.clientId ?? '', 'ada', scope)
    Object.assign(code, { accountId: 'ada', grantId, scope, resource: this.shownUrl, authTime: 1 })
    await code.save(600)
  }
}

function createProvider(issuer: string, resourceOf: () => string): Provider {
  return new Provider(issuer, {
    clients: [
      {
        client_id: 'machine',
        client_secret: machineSecret,
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
      },
      ...(['client_secret_basic', 'client_secret_post'] as const).map((method) => ({
        client_id: `device+${method}`,
        client_secret: machineSecret,
        token_endpoint_auth_method: method,
        grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
        redirect_uris: [],
        response_types: [],
      })),
    ],
    cookies: { keys: ['test'] },
    scopes: ['openid', 'offline_access', 'read', 'write'],
    findAccount: (_context, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
    issueRefreshToken: () => true,
    rotateRefreshToken: () => true,
    interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
    features: {
      devInteractions: { enabled: false },
      registration: { enabled: true },
      deviceFlow: { enabled: true },
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: resourceOf,
        useGrantedResource: () => true,
        getResourceServerInfo: (_context, audience) => ({
          scope: 'read write',
          audience,
          accessTokenTTL: 300,
          accessTokenFormat: 'opaque',
        }),
      },
    },
  })
}

function createTools(): McpServer {
  const server = new McpServer({ name: 'tracker', version: '1' })
  server.registerTool('issues', { description: 'Lists issues', inputSchema: z.object({}) }, () => ({
    content: [{ type: 'text', text: 'one issue' }],
  }))
  return server
}

/** Follows redirects with cookies until one leads back to a listener for a sign-in; null: none did. */
async function browse(address: string): Promise<URL | null> {
  const cookies = new Map<string, string>()
  let url = new URL(address)
  for (let hops = 0; hops < 10; hops += 1) {
    if (url.pathname === '/callback') return url
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ')
    const response = await fetch(url, { redirect: 'manual', headers: { cookie } })
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? []
      cookies.set(name, value)
    }
    const next = response.headers.get('location')
    await response.body?.cancel()
    if (next === null) return null
    url = new URL(next, url)
  }
  return null
}

async function listen(handler: Handler): Promise<Server> {
  const server = createServer(handler)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return server
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port
}

export function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let text = ''
  for await (const piece of request.setEncoding('utf8')) text += piece
  return text
}
