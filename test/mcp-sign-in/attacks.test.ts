// What a hostile MCP server, authorization server or page can try in a sign-in, with a real authorization server beside it.
import { writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { makePolicy } from '../../host/egress/policy.ts'
import { directNetwork } from '../../host/net/network.ts'
import { createJudgedFetch } from '../../host/sign-in/judged-fetch.ts'
import { json, OAuthWorld } from './oauth-world.ts'

const soon = () => AbortSignal.timeout(20_000)

async function failureOf(work: Promise<unknown>): Promise<string> {
  return await work.then(
    () => 'nothing failed',
    (cause: unknown) => (cause instanceof Error ? cause.message : 'not an error'),
  )
}

/** Other metadata of the protected resource. */
function withResource(world: OAuthWorld, answer: (response: ServerResponse) => void): void {
  world.mcpAnswer = (request, response) => {
    if (request.url?.startsWith('/.well-known/') !== true) return false
    answer(response)
    return true
  }
}

describe('the answer of a browser', () => {
  it.each([
    ['of another sign-in', (back: URL) => set(back, 'state', 'x'.repeat(43))],
    ['without a state', (back: URL) => set(back, 'state', '')],
    ['to another path', (back: URL) => Object.assign(new URL(back), { pathname: '/other' })],
  ])('%s changes nothing, and the sign-in waits until its time is over [A.09]', async (_what, change) => {
    await using world = await OAuthWorld.open()
    const time = new AbortController()
    const person = world.person(change)
    const openUrl = async (url: string, issuer: string) => {
      await person.openUrl(url, issuer)
      setTimeout(() => time.abort(new DOMException('the time is over', 'TimeoutError')), 500)
    }
    const signing = world.signIns().signIn(world.server(), { ...person, openUrl }, time.signal)
    expect(await failureOf(signing)).toContain('nobody signed in within the time')
    expect(world.asked).not.toContain('POST /token')
  })

  it('from another authorization server is refused before its code is used [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const change = (back: URL) => set(back, 'iss', 'https://evil.example')
    const signing = world.signIns().signIn(world.server(), world.person(change), soon())
    expect(await failureOf(signing)).toContain('its issuer is another one')
    expect(world.asked).not.toContain('POST /token')
  })

  it('without the issuer, where the server promises one, is refused [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const change = (back: URL) => {
      const other = new URL(back)
      other.searchParams.delete('iss')
      return other
    }
    expect(await failureOf(world.signIns().signIn(world.server(), world.person(change), soon()))).toContain(
      'failed',
    )
    expect(world.asked).not.toContain('POST /token')
  })
})

describe('an MCP server', () => {
  it('that names an authorization server with another issuer gets no sign-in there [A.09]', async () => {
    await using world = await OAuthWorld.open()
    world.issuerAnswer = (request, response) => {
      if (request.url?.startsWith('/.well-known/') !== true) return false
      json(response, 200, {
        issuer: 'https://good.example',
        authorization_endpoint: `${world.issuer}/auth`,
        token_endpoint: `${world.issuer}/token`,
        response_types_supported: ['code'],
      })
      return true
    }
    const signing = world.signIns().signIn(world.server(), world.person(), soon())
    expect(await failureOf(signing)).toContain('its issuer is another one')
    expect(world.asked.filter((path) => path.startsWith('POST'))).toEqual([])
  })

  it('with the metadata of another resource gets no sign-in [A.09]', async () => {
    await using world = await OAuthWorld.open()
    withResource(world, (response) =>
      json(response, 200, { resource: 'https://bank.example/', authorization_servers: [world.issuer] }),
    )
    const signing = world.signIns().signIn(world.server(), world.person(), soon())
    expect(await failureOf(signing)).toContain('for another resource')
    expect(world.asked.filter((path) => !path.includes('/.well-known/'))).toEqual([])
  })

  it.each([
    'http://169.254.169.254/',
    'http://10.0.0.1:8080/',
    'https://192.168.1.1/',
    'https://[::1]/',
    'https://localhost/',
  ])('that names the authorization server %s leads to no request there [A.09]', async (address) => {
    await using world = await OAuthWorld.open()
    withResource(world, (response) =>
      json(response, 200, { resource: world.mcpUrl, authorization_servers: [address] }),
    )
    const signing = world.signIns().signIn(world.server(), world.person(), soon())
    expect(await failureOf(signing)).toMatch(/only a rule that (?:names|allows)/)
  })

  it('that sends on to another origin is not followed [A.09]', async () => {
    await using world = await OAuthWorld.open()
    withResource(world, (response) => response.writeHead(302, { location: `${world.issuer}/stolen` }).end())
    await failureOf(world.signIns().signIn(world.server(), world.person(), AbortSignal.timeout(1_500)))
    expect(world.asked).not.toContain('GET /stolen')
  })

  it('that floods or never ends its answer is given up [A.09]', async () => {
    await using world = await OAuthWorld.open()
    withResource(world, (response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      const more = (): void => void response.write('x'.repeat(64 * 1024), () => setImmediate(more))
      response.on('error', () => undefined)
      more()
    })
    const signing = world.signIns().signIn(world.server(), world.person(), soon())
    expect(await failureOf(signing)).toContain('more than 262144 bytes')
    withResource(world, (response) => void response.writeHead(200).write('{'))
    const slow = world.signIns().signIn(world.server(), world.person(), AbortSignal.timeout(1_000))
    expect(await failureOf(slow)).toContain('failed')
  })

  it('that names another authorization server later does not get the refresh token [A.09]', async () => {
    await using world = await OAuthWorld.open()
    await using evil = await OAuthWorld.open()
    await world.signIns().signIn(world.server(), world.person(), soon())
    withResource(world, (response) =>
      json(response, 200, { resource: world.mcpUrl, authorization_servers: [evil.issuer] }),
    )
    world.asked.length = 0
    const signIns = world.signIns({ now: () => Date.now() + 10 * 60_000 })
    expect((await signIns.token(world.server())).ok).toBe(true)
    expect(world.asked).toEqual(['POST /token'])
    expect(evil.asked).toEqual([])
  })

  it('of the same name at another address gets no token [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    await signIns.signIn(world.server(), world.person(), soon())
    const other = { ...world.server(), url: 'https://evil.example/mcp' }
    expect((await signIns.token(other)).ok).toBe(false)
  })
})

describe('a server that refuses tokens', () => {
  it('and asks for other rights each time leaves the sign-ins readable [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    await signIns.signIn(world.server(), world.person(), soon())
    for (const letter of ['a', 'b', 'c', 'd']) {
      const header = `Bearer error="insufficient_scope", scope="${letter.repeat(1_900)}"`
      expect(await signIns.refused(world.server(), 403, header, 'any')).toMatchObject({
        words: expect.stringContaining('demands rights'),
      })
    }
    expect(await signIns.records.list()).toHaveLength(1)
  })
})

describe('what this machine keeps', () => {
  it('is not named to the agent where it cannot be read [A.09]', async () => {
    await using world = await OAuthWorld.open()
    const signIns = world.signIns()
    await signIns.signIn(world.server(), world.person(), soon())
    await writeFile(path.join(world.home, 'mcp-sign-ins.json'), '{')
    const words = [
      await signIns.token(world.server()),
      await signIns.refused(world.server(), 401, 'Bearer error="invalid_token"', 'any'),
    ].map((said) => JSON.stringify(said))
    for (const said of words) {
      expect(said).toContain('caisson mcp login tracker')
      expect(said).not.toContain(world.home)
    }
  })
})

describe('an authorization server', () => {
  it.each([1e300, -1e300, -5, 1e20])(
    'that says that a token lasts %d s leaves the sign-ins readable [A.09]',
    async (lifetime) => {
      await using world = await OAuthWorld.open()
      await world.signIns().signIn(world.server(), world.person(), soon())
      world.issuerAnswer = (request, response) => {
        if (request.url !== '/token') return false
        json(response, 200, { access_token: 'x'.repeat(30), token_type: 'Bearer', expires_in: lifetime })
        return true
      }
      const signIns = world.signIns({ now: () => Date.now() + 10 * 60_000 })
      expect((await signIns.token(world.server())).ok).toBe(true)
      expect(await world.signIns().records.list()).toHaveLength(1)
    },
  )

  it('whose answer does not fit what is kept gets no sign-in, and others stay readable [A.09]', async () => {
    await using world = await OAuthWorld.open()
    world.issuerAnswer = (request, response) => {
      if (request.url?.startsWith('/.well-known/') !== true) return false
      json(response, 200, {
        issuer: world.issuer,
        authorization_endpoint: `${world.issuer}/auth`,
        token_endpoint: `${world.issuer}/token`,
        registration_endpoint: `${world.issuer}/reg`,
        response_types_supported: ['code'],
        code_challenge_methods_supported: ['S256'],
        token_endpoint_auth_methods_supported: ['none', ...Array.from({ length: 40 }, (_, at) => `m${at}`)],
      })
      return true
    }
    const signIns = world.signIns()
    const signing = signIns.signIn(world.server(), world.person(), soon())
    expect(await failureOf(signing)).toContain('cannot be kept: endpoints.authMethods')
    expect(await signIns.records.list()).toEqual([])
  })

  it('that repeats what it was sent gives no token away in an error [A.09]', async () => {
    await using world = await OAuthWorld.open()
    await world.signIns().signIn(world.server(), world.person(), soon())
    let sent = ''
    world.issuerAnswer = (request, response) => {
      if (request.url !== '/token') return false
      request.setEncoding('utf8').on('data', (text: string) => {
        sent += text
      })
      request.on('end', () => response.writeHead(500).end(`failed: ${sent}`))
      return true
    }
    const signIns = world.signIns({ now: () => Date.now() + 10 * 60_000 })
    const token = await signIns.token(world.server())
    const refreshToken = new URLSearchParams(sent).get('refresh_token') ?? ''
    expect(refreshToken.length).toBeGreaterThan(20)
    expect(token).toMatchObject({ ok: false, error: expect.stringContaining('HTTP 500') })
    expect(JSON.stringify(token)).not.toContain(refreshToken)
    // What passes does not end the sign-in.
    world.issuerAnswer = undefined
    expect((await signIns.token(world.server())).ok).toBe(true)
  })
})

describe('a request of a sign-in', () => {
  const open = (rules: Parameters<typeof makePolicy>[0]['configuration'], resolved: string) => {
    const policy = makePolicy({ configuration: rules, otherwise: 'deny' })
    if (!policy.ok) throw new Error(policy.error)
    return createJudgedFetch({
      ...{ network: directNetwork, policy: policy.value, signal: soon() },
      resolve: () => Promise.resolve({ ok: true, value: [resolved] }),
    })
  }

  it.each([
    ['a name that leads to this machine', 'https://as.example/', '127.0.0.1', [], 'this very address'],
    ['plain http to a public address', 'http://as.example/', '93.184.215.14', [], 'https'],
    [
      'an address that a rule denies',
      'https://as.example/',
      '93.184.215.14',
      [{ effect: 'deny', host: 'as.example' }],
      'denies it',
    ],
    ['an address of another kind', 'file:///etc/passwd', '127.0.0.1', [], ''],
  ] as const)('to %s is not made [A.09]', async (_what, url, resolved, rules, words) => {
    const message = await failureOf(Promise.resolve(open(rules, resolved)(url)))
    expect(message).not.toBe('nothing failed')
    expect(message).toContain(words)
  })
})

function set(back: URL, name: string, value: string): URL {
  const other = new URL(back)
  other.searchParams.set(name, value)
  return other
}
