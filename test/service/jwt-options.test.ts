// How a person sets up JWTs with `caisson serve`, and how a client sends tokens that expire. Real processes, no VM.
import { chmod, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { ServiceClient, ServiceError } from '../../client/index.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import {
  audience,
  issuer,
  keysText,
  labelOf,
  makeKey,
  metadataOf,
  serveJwt,
  serveKeySet,
  watchPlace,
} from './jwt-support.ts'
import { runThatUsed, unknownRun } from './keys-support.ts'

it('a set-up that lacks a part, or cannot be used, ends `caisson serve` with exit code 2 and what to do [H.02, H.01]', async () => {
  const place = await cliPlace({ 'keys.json': keysText(await makeKey()), 'empty.json': '{"keys":[]}' })
  const file = path.join(place.workspace, 'keys.json')
  await chmod(file, 0o600)
  const rest = ['--jwt-issuer', issuer, '--jwt-audience', audience]
  const refusals: [string[], string][] = [
    [['--jwks', file], 'JWTs need --jwt-issuer (JWT_ISSUER) and --jwt-audience (JWT_AUDIENCE) too'],
    [rest, 'JWTs need --jwks (JWT_JWKS) too'],
    [['--jwks', file, '--jwt-issuer', issuer, '--jwt-audience', ''], '--jwt-audience (JWT_AUDIENCE)'],
    [['--jwt-max-runs', '2'], 'JWTs need --jwks (JWT_JWKS)'],
    [['--jwks', file, ...rest, '--jwt-max-runs', '0'], '--jwt-max-runs'],
    [['--jwks', file, ...rest, '--no-token'], '--no-token lets everybody call'],
    [['--jwks', 'http://id.example.com/keys', ...rest], 'expected a file, an address with https'],
    [['--jwks', path.join(place.workspace, 'empty.json'), ...rest], 'has no key that signs with RS256'],
    [['--jwks', path.join(place.workspace, 'missing.json'), ...rest], 'it does not exist'],
  ]
  for (const [flags, why] of refusals) {
    const { code, stderr } = await place.run('serve', '--port', '0', ...flags)
    expect([flags, code, stderr]).toEqual([flags, 2, expect.stringContaining(why)])
  }
}, 120_000)

it('`caisson serve` takes keys, issuer and audience from an --env-file, and quotas from its options [H.02, S0.09]', async () => {
  const key = await makeKey()
  const keys = await serveKeySet((_, response) => response.end(keysText(key)))
  const place = await cliPlace({
    '.env': `PORT=0\nJWT_JWKS=${keys.url}\nJWT_ISSUER=https://other.example\nJWT_AUDIENCE=${audience}\n`,
  })
  const env = path.join(place.workspace, '.env')
  const served = place.start(
    'serve',
    '--env-file',
    env,
    '--jwt-issuer',
    issuer,
    '--jwt-max-requests-per-minute',
    '2',
  )
  const url = () => /listens on (http:\S+)/.exec(served.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  await expect.poll(() => served.errors()).toContain(`Accepts JWTs of ${issuer} for ${audience}`)
  const statusOf = async (token: string) =>
    (await fetch(`${url()}/v1/runs`, { headers: { authorization: `Bearer ${token}` } })).status
  const token = await key.sign()
  expect([await statusOf(token), await statusOf(token), await statusOf(token)]).toEqual([200, 200, 429])
  expect(await statusOf(await key.sign({ iss: 'https://other.example' }))).toBe(401)
  expect(served.errors()).toContain(`"by":"${labelOf('ada')}"`)
  served.child.kill('SIGTERM')
  expect((await served.ended).code).toBe(0)
  watchPlace(place.home, [served.errors(), served.output()])
}, 120_000)

it('a service whose issuer is out of reach starts, says so, and refuses JWTs until it is there [H.02]', async () => {
  const key = await makeKey()
  const place = await cliPlace({})
  const flags = ['--jwks', 'http://127.0.0.1:9/keys', '--jwt-issuer', issuer, '--jwt-audience', audience]
  const served = place.start('serve', '--port', '0', ...flags)
  const url = () => /listens on (http:\S+)/.exec(served.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  await expect.poll(() => served.errors()).toMatch(/"message":"JWTs cannot be checked".*127\.0\.0\.1:9\/keys/)
  const statusOf = async (token: string) =>
    (await fetch(`${url()}/v1/runs`, { headers: { authorization: `Bearer ${token}` } })).status
  expect(await statusOf(await key.sign())).toBe(503)
  expect(await statusOf((await readFile(path.join(place.home, 'service/token'), 'utf8')).trim())).toBe(200)
  served.child.kill('SIGTERM')
  expect((await served.ended).code).toBe(0)
}, 120_000)

it('a client asks a function for its token before each request, and says when it has none [H.02]', async () => {
  let now = 1_800_000_000_000
  const key = await makeKey('ES256', 'k1', () => now)
  const { host, service } = await serveJwt([key], { now: () => now })
  await runThatUsed(host, unknownRun, metadataOf('ada'))
  let asked = 0
  const client = new ServiceClient({
    baseUrl: service.url,
    token: async () => {
      asked += 1
      return await key.sign()
    },
  })
  const idsOf = async () => (await client.call('listRuns', {})).runs.map(({ id }) => id)
  expect(await idsOf()).toEqual([unknownRun])
  // The token of before has expired.
  now += 3_600_000
  expect(await idsOf()).toEqual([unknownRun])
  expect(asked).toBe(2)
  const seen = []
  for await (const item of client.events(unknownRun)) if (item.source !== 'delta') seen.push(item.event.type)
  expect(seen.at(-1)).toBe('run-end')

  const reason = new Error('the identity provider is away')
  const without = new ServiceClient({ baseUrl: service.url, token: () => Promise.reject(reason) })
  const refused = await without.call('listRuns', {}).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(ServiceError)
  expect(refused).toMatchObject({
    code: 'no_token',
    message: expect.stringContaining(reason.message),
    cause: reason,
  })
  await expect(without.events(unknownRun).next()).rejects.toMatchObject({ code: 'no_token' })
})
