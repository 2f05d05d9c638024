// Several issuers of JWTs at one service: each token counts by the keys of the issuer that it names alone.
import { describe, expect, it } from 'vitest'
import { placeOfRuns } from '../../host/test/support/changed-run.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { asOf, audience, issuer, keyFile, makeKey, serveKeySet, watchPlace } from './jwt-support.ts'
import { codeOf } from './keys-support.ts'
import { serveHost } from './support.ts'

const other = 'https://other.example/'

async function serveBoth() {
  const { host } = await placeOfRuns({})
  const [mine, its] = [await makeKey(), await makeKey('ES256', 'k2')]
  const verifier = await host.openJwt([
    { jwks: await keyFile(mine), issuer, audience },
    { jwks: await keyFile(its), issuer: other, audience: 'shop' },
  ])
  const served = await serveHost(host, { jwt: { verifier } })
  watchPlace(host.folders.home, served.logged)
  return { host, mine, its, verifier, as: asOf(served), logged: served.logged }
}

describe('of two issuers', () => {
  it('a service accepts the tokens of both, and one subject of each is two callers [S4.10, S4.11]', async () => {
    const { mine, its, as, verifier } = await serveBoth()
    const theirs = await its.sign({ iss: other, aud: 'shop' })
    expect((await as(await mine.sign(), 'GET', '/v1/runs')).status).toBe(200)
    expect((await as(theirs, 'GET', '/v1/runs')).status).toBe(200)
    const [a, b] = [await verifier.verify(await mine.sign()), await verifier.verify(theirs)]
    expect([a.ok, b.ok]).toEqual([true, true])
    if (a.ok && b.ok) expect(a.value.id).not.toBe(b.value.id)
  })

  it('neither can sign for the other, and a token of a third, of none or for the audience of the other is refused [H.02, S4.10]', async () => {
    const { mine, its, as } = await serveBoth()
    const refusals = [
      await its.sign(),
      await mine.sign({ iss: other, aud: 'shop' }),
      await its.sign({ iss: other }),
      await mine.sign({ iss: 'https://third.example/' }),
      await mine.sign({ iss: undefined }),
      await mine.sign({ iss: [issuer] }),
    ]
    for (const token of refusals) {
      const answer = await as(token, 'GET', '/v1/runs')
      expect([answer.status, codeOf(answer)]).toEqual([401, 'unauthorized'])
    }
  })

  it('one whose keys are out of reach concerns its tokens alone [H.02]', async () => {
    const { host } = await placeOfRuns({})
    const [mine, its] = [await makeKey(), await makeKey()]
    const down = await serveKeySet((_, response) => response.writeHead(500).end())
    const verifier = await host.openJwt([
      { jwks: await keyFile(mine), issuer, audience },
      { jwks: down.url, issuer: other, audience },
    ])
    const served = await serveHost(host, { jwt: { verifier } })
    const as = asOf(served)
    expect((await as(await its.sign({ iss: other }), 'GET', '/v1/runs')).status).toBe(503)
    expect((await as(await mine.sign(), 'GET', '/v1/runs')).status).toBe(200)
    await expect.poll(() => served.logged).toContainEqual(expect.objectContaining({ level: 'error' }))
  })

  it('the same one twice, none and too many are refused [H.01]', async () => {
    const { host } = await placeOfRuns({})
    const one = { jwks: await keyFile(await makeKey()), issuer, audience }
    for (const [options, why] of [
      [[one, one], /is named twice/],
      [[], /1 to 16 issuers, got 0/],
      [Array.from({ length: 17 }, (_, at) => ({ ...one, issuer: `${issuer}${at}` })), /got 17/],
    ] as const)
      await expect(host.openJwt(options)).rejects.toThrow(why)
  })
})

it('`caisson serve` takes --jwks and --jwt-issuer in pairs, and refuses what does not pair up [H.01, S0.09]', async () => {
  const key = await makeKey()
  const [first, second] = [await keyFile(key), await keyFile(key)]
  const place = await cliPlace({})
  const issuers = ['--jwt-issuer', issuer, '--jwt-issuer', other]
  const both = ['--jwks', first, '--jwks', second]
  for (const flags of [
    ['--jwks', first, ...issuers, '--jwt-audience', audience],
    [...both, ...issuers, ...['a', 'b', 'c'].flatMap((name) => ['--jwt-audience', name])],
  ]) {
    const { code, stderr } = await place.run('serve', '--port', '0', ...flags)
    expect([code, stderr]).toEqual([2, expect.stringContaining('do not go together')])
  }
  const served = place.start('serve', '--port', '0', ...both, ...issuers, '--jwt-audience', audience)
  await expect.poll(() => served.errors(), { timeout: 60_000 }).toContain(`JWTs of ${other} for ${audience}`)
  expect(served.errors()).toContain(`JWTs of ${issuer} for ${audience}`)
  served.child.kill('SIGTERM')
  expect((await served.ended).code).toBe(0)
}, 120_000)
