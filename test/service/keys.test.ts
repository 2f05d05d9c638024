// API keys of the HTTP service and their scopes: real requests, no VM.
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { describe, expect, it } from 'vitest'
import { type Route, scopes } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import { Callers } from '../../host/service/callers.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'
import { codeOf, detailOf, holderOf, serveKeys, unknownRun } from './keys-support.ts'

const all = Object.entries(routes) as [RouteName, Route][]

describe('an API key', () => {
  it('is stored as a digest in a file for the user alone, and its secret is shown once [H.02]', async () => {
    const { host } = await serveKeys()
    const { key, secret } = await host.apiKeys.create({
      ...{ name: 'ci', scopes: ['run', 'read'], expiresInMs: 60_000, quotas: { maxRuns: 2 } },
    })
    expect(secret).toMatch(new RegExp(`^caisson_${key.id}_[\\w-]{43}$`))
    const text = await readFile(host.apiKeys.file, 'utf8')
    expect(text).not.toContain(secret.slice(-20))
    expect((await stat(host.apiKeys.file)).mode & 0o777).toBe(0o600)
    expect(await host.apiKeys.list()).toEqual([
      { ...key, scopes: ['read', 'run'], quotas: { maxRuns: 2 }, expiresAt: key.createdAt + 60_000 },
    ])
    expect(JSON.stringify(await host.apiKeys.list())).not.toContain('sha256')
  })

  it('is accepted and refused by a service that runs, from the moment of its creation and revocation [H.02]', async () => {
    const { host, ...served } = await serveKeys()
    const { key, send } = await holderOf(host, served, 'ci')
    expect((await send('GET', '/v1/runs')).status).toBe(200)
    expect(await host.apiKeys.revoke('nobody')).toBeNull()
    expect((await send('GET', '/v1/runs')).status).toBe(200)
    expect(await host.apiKeys.revoke(key.id)).toEqual(key)
    expect((await send('GET', '/v1/runs')).status).toBe(401)
  })

  it('that is unknown, revoked, expired or wrong is refused with one text [H.02, S4.10]', async () => {
    const { host, ...served } = await serveKeys()
    const [revoked, expired, other] = await Promise.all([
      holderOf(host, served, 'revoked'),
      holderOf(host, served, 'expired', { expiresInMs: 1 }),
      holderOf(host, served, 'other'),
    ])
    await host.apiKeys.revoke('revoked')
    const secrets = [
      revoked.secret,
      expired.secret,
      `caisson_${'0'.repeat(12)}_${'A'.repeat(43)}`,
      other.secret.slice(0, -1) + (other.secret.endsWith('A') ? 'B' : 'A'),
      `caisson_${other.key.id}_${revoked.secret.slice(-43)}`,
      `${other.secret}x`,
      'caisson_',
    ]
    const answers = []
    for (const secret of secrets)
      answers.push(await served.send('GET', '/v1/runs', { headers: { authorization: `Bearer ${secret}` } }))
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1)
    for (const { status, headers } of answers)
      expect([status, headers['www-authenticate']]).toEqual([401, 'Bearer realm="caisson"'])
    expect((await other.send('GET', '/v1/runs')).status).toBe(200)
    const lines = JSON.stringify(served.logged)
    for (const secret of secrets.slice(0, 6)) expect(lines).not.toContain(secret.slice(-30))
  })

  it.each([
    ['damaged', (file: string) => writeFile(file, '{"keys":[{}]}', { mode: 0o600 })],
    ['empty', (file: string) => writeFile(file, '', { mode: 0o600 })],
    ['one that others can write', (file: string) => chmod(file, 0o666)],
  ])(
    'is refused, and so is every other key, when the file is %s; the token is not [H.02]',
    async (_, damage) => {
      const { host, ...served } = await serveKeys()
      const { send } = await holderOf(host, served, 'ci')
      expect((await send('GET', '/v1/runs')).status).toBe(200)
      await damage(host.apiKeys.file)
      const refused = await send('GET', '/v1/runs')
      expect([refused.status, detailOf(refused)]).toEqual([
        503,
        'the service cannot read its API keys, so it accepts none',
      ])
      expect(JSON.stringify(served.logged)).toContain(host.apiKeys.file)
      expect((await served.send('GET', '/v1/runs')).status).toBe(200)
      await expect(host.apiKeys.list()).rejects.toThrow(host.apiKeys.file)
      await expect(host.apiKeys.create({ name: 'more', scopes: ['read'] })).rejects.toThrow(host.apiKeys.file)
    },
  )

  it.each([
    { name: '', scopes: ['read'] },
    { name: 'a b', scopes: ['read'] },
    { name: '0123456789ab', scopes: ['read'] },
    { name: 'ci', scopes: [] },
    { name: 'ci', scopes: ['root'] },
    { name: 'ci', scopes: ['read'], expiresInMs: 0 },
    { name: 'ci', scopes: ['read'], quotas: { maxRuns: 0 } },
    { name: 'ci', scopes: ['read'], quotas: { maxRun: 1 } },
    { name: 'taken', scopes: ['read'] },
  ])('is not made of %j [H.02]', async (options) => {
    const { host } = await serveKeys()
    await host.apiKeys.create({ name: 'taken', scopes: ['read'] })
    await expect(host.apiKeys.create(options as never)).rejects.toMatchObject({ code: 'invalid_options' })
    expect(await host.apiKeys.list()).toHaveLength(1)
  })

  it('is made, listed and revoked by the command line [H.02, H.01]', async () => {
    const { env, ...served } = await serveKeys()
    const caisson = commandsIn(env)
    const made = await caisson('serve', 'keys', 'create', 'ci', '--scope', 'run,read', '--expires', '30d')
    const secret = made.stdout.trim()
    expect([made.code, secret]).toEqual([0, expect.stringMatching(/^caisson_[0-9a-f]{12}_[\w-]{43}$/)])
    const authorization = `Bearer ${secret}`
    expect((await served.send('GET', '/v1/runs', { headers: { authorization } })).status).toBe(200)
    const listed = await caisson('serve', 'keys', 'list')
    expect(listed.stdout).toMatch(/ci +read,run +\d{4}-/)
    expect(listed.stdout).not.toContain(secret.slice(-20))
    const wrong = await caisson('serve', 'keys', 'revoke', secret)
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.not.stringContaining(secret.slice(-20))])
    const unknown = await caisson('serve', 'keys', 'create', 'cd', '--scope', 'run,reed')
    expect([unknown.code, unknown.stderr]).toEqual([
      ...[2, expect.stringContaining(`--scope: there is no scope "reed"; use ${scopes.join(', ')}`)],
    ])
    expect((await caisson('serve', 'keys', 'revoke', 'ci')).code).toBe(0)
    expect((await served.send('GET', '/v1/runs', { headers: { authorization } })).status).toBe(401)
  })
})

describe('a scope', () => {
  it.each(scopes)(
    '%s allows the routes that declare it and no other; admin allows all [H.02, S4.11]',
    async (scope) => {
      const { host, ...served } = await serveKeys()
      const { send, label } = await holderOf(host, served, 'one', { scopes: [scope] })
      for (const [name, route] of all) {
        const path = route.path.replaceAll('{run}', unknownRun).replaceAll('{approval}', 'a1')
        const answer = await send(route.method, path, route.method === 'GET' ? undefined : {})
        const isAllowed = route.scope === null || scope === 'admin' || route.scope === scope
        const refusal = `${label} lacks the scope ${route.scope}`
        expect([name, answer.status === 403, answer.status === 401]).toEqual([name, !isAllowed, false])
        if (!isAllowed) expect([name, codeOf(answer), detailOf(answer)]).toEqual([name, 'forbidden', refusal])
      }
    },
  )

  it('of each route is in the OpenAPI document [H.02]', async () => {
    const { send } = await serveKeys()
    const { json } = await send('GET', '/openapi.json')
    const { paths } = json as { paths: Record<string, Record<string, { 'x-scope'?: string }>> }
    for (const [name, { path, method, scope }] of all)
      expect([name, paths[path]?.[method.toLowerCase()]?.['x-scope'] ?? null]).toEqual([name, scope])
  })

  it('approve is needed to allow in advance what people would be asked, and to copy secret files [H.02]', async () => {
    const { host, directory, ...served } = await serveKeys()
    const { send } = await holderOf(host, served, 'ci', { scopes: ['run', 'read'] })
    const base = { prompt: 'x', workspace: directory }
    for (const more of [
      { approvals: { mode: 'all' } },
      { approvals: { rules: [{ effect: 'allow', tool: '*' }] } },
      { egress: { rules: [{ effect: 'allow', host: '*' }] } },
      { files: { include: ['.env'] } },
      { files: { acceptIgnoreRules: true } },
    ]) {
      const refused = await send('POST', '/v1/runs', { ...base, ...more })
      expect([refused.status, detailOf(refused)]).toEqual([403, expect.stringContaining('the scope approve')])
    }
    expect(await host.runs.ids()).toEqual([])
  })
})

describe('wrong keys from one address', () => {
  it('are refused with 429 beyond 20 in a minute, while a right key is accepted [H.02]', async () => {
    const { host, ...served } = await serveKeys()
    const { send } = await holderOf(host, served, 'ci')
    const guess = async (token: string) =>
      await served.send('GET', '/v1/runs', { headers: { authorization: `Bearer ${token}` } })
    const statuses = []
    for (let count = 0; count < 22; count += 1) statuses.push((await guess(`wrong${count}`)).status)
    expect(statuses).toEqual([...Array<number>(20).fill(401), 429, 429])
    expect(Number((await guess('wrong')).headers['retry-after'])).toBeGreaterThan(0)
    expect((await send('GET', '/v1/runs')).status).toBe(200)
    expect((await served.send('GET', '/v1/runs')).status).toBe(200)
    // A request without a key guesses nothing.
    expect((await served.send('GET', '/v1/runs', { headers: { authorization: undefined } })).status).toBe(401)
  })

  it('are forgotten after a minute, and counted for a whole /64 network of IPv6 [H.02]', async () => {
    let now = 0
    const keys = { recognize: async () => null, isValid: async () => false }
    const callers = new Callers({ token: 'x'.repeat(43), keys, log: () => undefined, now: () => now })
    const statusOf = async (address: string) =>
      await callers.identify('Bearer wrong', address).then(
        () => 200,
        (error: { problem: { status: number } }) => error.problem.status,
      )
    for (let count = 0; count < 20; count += 1) expect(await statusOf(`2001:db8::${count}`)).toBe(401)
    expect(await statusOf('2001:db8:0:0:1::')).toBe(429)
    expect(await statusOf('2001:db8:0:1::')).toBe(401)
    expect(await statusOf('192.0.2.1')).toBe(401)
    now += 60_001
    expect(await statusOf('2001:db8::1')).toBe(401)
  })
})

it('a key over the Unix socket has its own rights, not those of the owner [H.02]', async () => {
  const { host, ...served } = await serveKeys()
  const { secret } = await holderOf(host, served, 'ci', { scopes: ['read'] })
  const statusOf = async (authorization: string) =>
    await new Promise<number>((resolve, reject) => {
      const { socket: socketPath } = served.service
      const headers = { authorization, 'content-length': '0' }
      const asked = request({ socketPath, method: 'DELETE', path: `/v1/runs/${unknownRun}`, headers })
      asked.once('error', reject)
      asked.once('response', (response) => {
        response.resume()
        resolve(response.statusCode ?? 0)
      })
      asked.end()
    })
  expect(await statusOf(`Bearer ${secret}`)).toBe(403)
  expect(await statusOf('Bearer wrong')).toBe(401)
})
