// JWTs of the HTTP service: which are accepted and which are refused, and what their scopes allow. Real requests, no VM.
import {
  createHmac,
  createPublicKey,
  generateKeyPairSync,
  type JsonWebKey,
  sign as signWith,
} from 'node:crypto'
import { exportJWK, generateKeyPair } from 'jose'
import { describe, expect, it } from 'vitest'
import { type Route, scopes } from '#specs/service/route.ts'
import { type RouteName, routes } from '#specs/service/routes.ts'
import {
  asOf,
  audience,
  type Claims,
  issuer,
  type JwtPlace,
  keysText,
  labelOf,
  makeKey,
  replaceKeys,
  type SigningKey,
  serveJwt,
  serveKeySet,
  tokenOf,
} from './jwt-support.ts'
import { codeOf, detailOf, holderOf, unknownRun } from './keys-support.ts'
import { serveHost } from './support.ts'

const all = Object.entries(routes) as [RouteName, Route][]
const seconds = () => Math.floor(Date.now() / 1_000)
const none = () => Buffer.alloc(0)
const claims = () => ({ iss: issuer, aud: audience, sub: 'ada', exp: seconds() + 60, scope: 'admin' })
const noReason = 'the request has no valid token, API key or JWT'

describe('a JWT', () => {
  it.each(['RS256', 'PS256', 'ES256', 'ES384', 'ES512', 'EdDSA'])(
    'that the issuer signed with %s is accepted [H.02, S4.10]',
    async (alg) => {
      const key = await makeKey(alg)
      const { as } = await serveJwt([key])
      expect((await as(await key.sign(), 'GET', '/v1/runs')).status).toBe(200)
      const typed = await key.sign({ aud: ['other', audience] }, { typ: 'at+jwt' })
      expect((await as(typed, 'GET', '/v1/runs')).status).toBe(200)
    },
  )

  it('is refused by a service that was not told of an issuer [H.02]', async () => {
    const key = await makeKey()
    const { host, service, as } = await serveJwt([key])
    expect((await as(await key.sign(), 'GET', '/v1/runs')).status).toBe(200)
    await service.close()
    const answer = await asOf(await serveHost(host))(await key.sign(), 'GET', '/v1/runs')
    expect([answer.status, codeOf(answer)]).toEqual([401, 'unauthorized'])
  })

  const forged: Record<string, (key: SigningKey) => Promise<string> | string> = {
    'alg none': () => tokenOf({ alg: 'none' }, claims(), none),
    'alg None': ({ jwk }) => tokenOf({ alg: 'None', kid: jwk.kid }, claims(), none),
    'no alg': ({ jwk }) => tokenOf({ kid: jwk.kid }, claims(), none),
    'a HMAC with the public key as its secret': ({ jwk }) => {
      const pem = createPublicKey({ key: jwk as JsonWebKey, format: 'jwk' }).export({
        type: 'spki',
        format: 'pem',
      })
      const hmac = (text: string) => createHmac('sha256', pem).update(text).digest()
      return tokenOf({ alg: 'HS256', kid: jwk.kid }, claims(), hmac)
    },
    'a HMAC with the text of the JWKS as its secret': (key) => {
      const hmac = (text: string) => createHmac('sha512', keysText(key)).update(text).digest()
      return tokenOf({ alg: 'HS512', kid: key.jwk.kid }, claims(), hmac)
    },
    'another key with the ID of the issuer’s': async () => await (await makeKey()).sign({ scope: 'admin' }),
    'an unknown key ID': async () => await (await makeKey('ES256', 'k2')).sign(),
    'a key ID that is a path': async (key) => await key.sign({}, { kid: '../../../../dev/null' }),
    'a key ID that is no text': async (key) => await key.sign({}, { kid: 1 }),
    'another algorithm than that of the key': async () => await (await makeKey('ES384')).sign(),
    'a payload of another token': async (key) => {
      const [head, , signature] = (await key.sign()).split('.')
      const [, payload] = (await key.sign({ scope: 'admin' })).split('.')
      return `${head}.${payload}.${signature}`
    },
    'a header of another token': async (key) => {
      const [, payload, signature] = (await key.sign()).split('.')
      const [head] = (await key.sign({}, { typ: 'JWT' })).split('.')
      return `${head}.${payload}.${signature}`
    },
    'no signature': async (key) => `${(await key.sign()).split('.').slice(0, 2).join('.')}.`,
    'a changed signature': async (key) => {
      const token = await key.sign()
      const at = token.length - 20
      return `${token.slice(0, at)}${token[at] === 'A' ? 'B' : 'A'}${token.slice(at + 1)}`
    },
    'a signature of zeros': ({ jwk }) =>
      tokenOf({ alg: 'ES256', kid: jwk.kid }, claims(), () => Buffer.alloc(64)),
    'an extension that must be understood (crit)': async (key) =>
      await key.sign({}, { crit: ['x-extension'], 'x-extension': true }),
    'a payload that is not encoded (b64)': async (key) => {
      const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
      const sign = (text: string) =>
        signWith('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
      return tokenOf({ alg: 'ES256', kid: key.jwk.kid, crit: ['b64'], b64: false }, claims(), sign)
    },
    'an extension that the issuer meant and the service does not need': async (key) =>
      await key.sign({}, { crit: ['b64'], b64: true }),
    'a type that is no JWT': async (key) => await key.sign({}, { typ: 'logout+jwt' }),
    'more than 8192 characters': async (key) => await key.sign({ more: 'x'.repeat(8_000) }),
    'a header that is no object': () => tokenOf(['ES256'], claims(), none),
  }

  it.each(Object.keys(forged))('with %s is refused without a reason [H.02, S4.10]', async (name) => {
    const key = await makeKey()
    const { as, logged } = await serveJwt([key])
    const token = (await forged[name]?.(key)) ?? ''
    for (const route of ['/v1/runs', `/v1/runs/${unknownRun}`]) {
      const answer = await as(token, 'GET', route)
      expect([answer.status, codeOf(answer)]).toEqual([401, 'unauthorized'])
      expect(answer.text).not.toContain(token.slice(-20))
      // One that is too long is not looked at.
      if (token.length <= 8_192) {
        expect(detailOf(answer)).toBe(noReason)
        expect(answer.headers['www-authenticate']).toBe('Bearer realm="caisson", error="invalid_token"')
      }
    }
    if (token.length <= 8_192)
      expect(logged).toContainEqual(expect.objectContaining({ why: expect.any(String) }))
    expect((await as(await key.sign(), 'GET', '/v1/runs')).status).toBe(200)
  })

  const unfit: Record<string, [() => Claims, RegExp]> = {
    'that has expired': [() => ({ exp: seconds() - 60, iat: seconds() - 120 }), /has expired \(exp\)/],
    'without an expiry': [() => ({ exp: undefined }), /\(exp\)/],
    'with an expiry that is a text': [() => ({ exp: `${seconds() + 60}` }), /\(exp\)/],
    'that is not valid yet': [() => ({ nbf: seconds() + 120 }), /not valid yet \(nbf\)/],
    'that was issued in the future': [() => ({ iat: seconds() + 120 }), /in the future \(iat\)/],
    'with a time of issue that is a text': [() => ({ iat: 'now' }), /\(iat\)/],
    'that is valid for more than a day': [
      () => ({ exp: seconds() + 86_400 + 60 }),
      /more than 24 hours \(exp\)/,
    ],
    'that was valid for a year in all': [
      () => ({ iat: seconds() - 365 * 86_400, exp: seconds() + 60 }),
      /more than 24 hours \(exp\)/,
    ],
    'that is valid for a year and has no time of issue': [
      () => ({ iat: undefined, exp: seconds() + 365 * 86_400 }),
      /more than 24 hours \(exp\)/,
    ],
    'of another issuer': [() => ({ iss: 'https://id.example.com' }), /another issuer \(iss\)/],
    'without an issuer': [() => ({ iss: undefined }), /\(iss\)/],
    'of a list of issuers': [() => ({ iss: [issuer] }), /\(iss\)/],
    'for another audience': [() => ({ aud: ['caisson2', 'CAISSON'] }), /not for this service \(aud\)/],
    'for no audience': [() => ({ aud: undefined }), /\(aud\)/],
    'without a subject': [() => ({ sub: undefined }), /no subject \(sub\)/],
    'with an empty subject': [() => ({ sub: '' }), /no subject \(sub\)/],
    'with a subject that is an object': [() => ({ sub: { id: 1 } }), /no subject \(sub\)/],
    'bound to a key of its holder': [() => ({ cnf: { jkt: 'x' } }), /\(cnf\)/],
  }

  it.each(Object.keys(unfit))('%s is refused with the reason [H.02, S4.10]', async (name) => {
    const key = await makeKey()
    const { as } = await serveJwt([key])
    const [change, why] = unfit[name] ?? [() => ({}), /^$/]
    const answer = await as(await key.sign(change()), 'GET', '/v1/runs')
    expect([answer.status, detailOf(answer)]).toEqual([401, expect.stringMatching(why)])
    expect((await as(await key.sign(), 'GET', '/v1/runs')).status).toBe(200)
  })

  it('is accepted within a leeway of 30 seconds for clocks that differ, and not beyond [H.02]', async () => {
    const key = await makeKey()
    const { as } = await serveJwt([key], { now: () => 1_800_000_000_000 })
    const now = 1_800_000_000
    const statusOf = async (claims: Claims) => (await as(await key.sign(claims), 'GET', '/v1/runs')).status
    const valid = { iat: now, exp: now + 60 }
    expect(await statusOf({ iat: now - 60, exp: now - 29 })).toBe(200)
    expect(await statusOf({ iat: now - 60, exp: now - 30 })).toBe(401)
    expect(await statusOf({ ...valid, nbf: now + 30 })).toBe(200)
    expect(await statusOf({ ...valid, nbf: now + 31 })).toBe(401)
    expect(await statusOf({ ...valid, iat: now + 30 })).toBe(200)
    expect(await statusOf({ ...valid, iat: now + 31 })).toBe(401)
    expect(await statusOf({ iat: now, exp: now + 86_430 })).toBe(200)
    expect(await statusOf({ iat: now, exp: now + 86_431 })).toBe(401)
  })

  it('gets no key from its own header, and asks no address that the header names [H.02]', async () => {
    const key = await makeKey()
    const attacker = await makeKey('ES256', 'k1')
    const { as } = await serveJwt([key])
    const { url, asked } = await serveKeySet((_, response) => response.end(keysText(attacker)))
    const headers = [
      { jwk: attacker.jwk },
      { jku: url },
      { x5u: url },
      { x5c: ['AAAA'], jku: url, jwk: attacker.jwk },
    ]
    for (const header of headers) {
      const refused = await as(await attacker.sign({}, header), 'GET', '/v1/runs')
      expect([refused.status, detailOf(refused)]).toEqual([401, noReason])
      expect((await as(await key.sign({}, header), 'GET', '/v1/runs')).status).toBe(200)
    }
    expect(asked).toEqual([])
  })

  it('is taken from the Authorization header alone, and not written where a path or query has it [H.02]', async () => {
    const key = await makeKey()
    const { send, as, logged } = await serveJwt([key])
    const token = await key.sign()
    const headers = { authorization: undefined }
    for (const at of [`?access_token=${token}`, `?token=${token}`, `/${token.slice(0, 60)}`])
      expect((await send('GET', `/v1/runs${at}`, { headers })).status).toBe(401)
    // Longer than any ID.
    expect((await send('GET', `/v1/runs/${token}`, { headers })).status).toBe(400)
    const cookie = { ...headers, cookie: `token=${token}`, 'x-access-token': token }
    expect((await send('GET', '/v1/runs', { headers: cookie })).status).toBe(401)
    expect((await as(token, 'GET', `/v1/runs/${token}`)).status).toBe(400)
    expect((await as(token, 'GET', `/nowhere/${token}`)).status).toBe(404)
    expect(logged.length).toBeGreaterThanOrEqual(7)
    expect(JSON.stringify(logged)).toContain('eyJ…')
  })

  it('that the issuer signed is no guess; one that it did not sign counts as a wrong key of the address [H.02]', async () => {
    const key = await makeKey()
    const stranger = await makeKey()
    const { as } = await serveJwt([key])
    const expired = await key.sign({ exp: seconds() - 60, iat: seconds() - 120 })
    const statuses = async (token: string, count: number) => {
      const got = []
      for (let at = 0; at < count; at += 1) got.push((await as(token, 'GET', '/v1/runs')).status)
      return got
    }
    expect(await statuses(expired, 22)).toEqual(Array<number>(22).fill(401))
    expect(await statuses(await stranger.sign(), 21)).toEqual([...Array<number>(20).fill(401), 429])
    expect(await statuses(expired, 1)).toEqual([401])
    expect(await statuses(await key.sign(), 1)).toEqual([200])
  })
})

describe('a JWKS', () => {
  it('gives no key that is weak, private, for encryption, or of another kind [H.02]', async () => {
    const key = await makeKey()
    const { as, file } = await serveJwt([key])
    const weak = generateKeyPairSync('rsa', { modulusLength: 1_024 })
    const sign = (text: string) => signWith('sha256', Buffer.from(text), weak.privateKey)
    const weakToken = tokenOf({ alg: 'RS256', kid: 'weak' }, claims(), sign)
    const other = await makeKey('ES256', 'enc')
    const keys = [
      { ...weak.publicKey.export({ format: 'jwk' }), kid: 'weak' },
      { ...other.jwk, use: 'enc' },
      { kty: 'OKP', crv: 'X25519', x: 'A'.repeat(43), kid: 'x' },
      key.jwk,
    ]
    await replaceKeys(file, JSON.stringify({ keys }))
    expect((await as(weakToken, 'GET', '/v1/runs')).status).toBe(401)
    expect((await as(await other.sign(), 'GET', '/v1/runs')).status).toBe(401)
    expect((await as(await key.sign(), 'GET', '/v1/runs')).status).toBe(200)
    const { privateKey } = await generateKeyPair('ES256', { extractable: true })
    for (const secret of [await exportJWK(privateKey), { kty: 'oct', k: 'AAAA' }]) {
      await replaceKeys(file, JSON.stringify({ keys: [key.jwk, secret] }))
      const refused = await as(await key.sign(), 'GET', '/v1/runs')
      expect([refused.status, codeOf(refused)]).toEqual([503, 'state_unavailable'])
    }
  })

  it('with several keys that fit a token without a key ID admits nobody by guess [H.02]', async () => {
    const [one, two] = [await makeKey('ES256', 'k1'), await makeKey('ES256', 'k2')]
    const { as, file } = await serveJwt([one])
    const token = await one.sign({}, { kid: undefined })
    expect((await as(token, 'GET', '/v1/runs')).status).toBe(200)
    await replaceKeys(file, keysText(one, two))
    expect((await as(token, 'GET', '/v1/runs')).status).toBe(401)
  })
})

describe('the scopes of a JWT', () => {
  const routesFor = async ({ as }: JwtPlace, token: string) => {
    const allowed = []
    for (const [name, route] of all) {
      const path = route.path.replaceAll('{run}', unknownRun).replaceAll('{approval}', 'a1')
      const answer = await as(token, route.method, path, route.method === 'GET' ? undefined : {})
      expect([name, answer.status]).not.toEqual([name, 401])
      if (answer.status === 403) expect([name, codeOf(answer)]).toEqual([name, 'forbidden'])
      else allowed.push(name)
    }
    return allowed
  }
  const declared = (allowed: readonly string[]) =>
    all
      .filter(([, { scope }]) => scope === null || allowed.includes('admin') || allowed.includes(scope))
      .map(([name]) => name)

  it.each(scopes)(
    '%s allow the routes that declare it and no other; admin allows all [H.02, S4.11]',
    async (scope) => {
      const key = await makeKey()
      const place = await serveJwt([key])
      expect(await routesFor(place, await key.sign({ scope }))).toEqual(declared([scope]))
    },
  )

  const forms: [Claims, string[]][] = [
    [{ scope: 'openid run profile read Admin caisson:apply' }, ['read', 'run']],
    [{ scope: undefined, scp: ['apply', 'other', 7, null] }, ['apply']],
    [{ scope: undefined, scp: 'approve' }, ['approve']],
    [{ scope: 'read', scp: ['admin'] }, ['read']],
    [{ scope: '', scp: ['admin'] }, []],
    [{ scope: undefined }, []],
    [{ scope: 'adminread,run' }, []],
    [{ scope: { admin: true } }, []],
    [{ scope: [['admin']] }, []],
    [{ scope: undefined, roles: ['admin'], permissions: ['admin'] }, []],
  ]
  it.each(forms)(
    '%j count as far as the service knows them, and none allow nothing [H.02]',
    async (given, expected) => {
      const key = await makeKey()
      const place = await serveJwt([key])
      expect(await routesFor(place, await key.sign(given))).toEqual(declared(expected))
    },
  )

  it('say in a refusal who lacks which, and that the issuer gives them [H.02]', async () => {
    const key = await makeKey()
    const { as } = await serveJwt([key])
    const refused = await as(await key.sign({ scope: 'read' }), 'POST', '/v1/runs', { prompt: 'x' })
    expect([refused.status, detailOf(refused)]).toEqual([403, `${labelOf('ada')} lacks the scope run`])
    expect(refused.text).toContain('ask the issuer for a token with it')
  })

  it('are declared in the OpenAPI document beside the scheme [H.02]', async () => {
    const { send } = await serveJwt([await makeKey()])
    const { json } = await send('GET', '/openapi.json')
    expect(json).toMatchObject({
      security: [{ token: [] }, { jwt: [] }],
      components: { securitySchemes: { jwt: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } } },
    })
  })
})

it('an API key and the token work beside JWTs, and a JWT over the Unix socket has its own rights [H.02]', async () => {
  const key = await makeKey()
  const { host, as, ...served } = await serveJwt([key])
  const holder = await holderOf(host, served, 'ci')
  expect((await holder.send('GET', '/v1/runs')).status).toBe(200)
  expect((await served.send('GET', '/v1/runs')).status).toBe(200)
  const { request } = await import('node:http')
  const statusOf = async (authorization: string) =>
    await new Promise<number>((resolve, reject) => {
      const options = { socketPath: served.service.socket, path: `/v1/runs/${unknownRun}`, method: 'DELETE' }
      const asked = request({ ...options, headers: { authorization, 'content-length': '0' } })
      asked.once('error', reject)
      asked.once('response', (response) => {
        response.resume()
        resolve(response.statusCode ?? 0)
      })
      asked.end()
    })
  expect(await statusOf(`Bearer ${await key.sign({ scope: 'read' })}`)).toBe(403)
  expect(await statusOf(`Bearer ${await key.sign({ scope: 'admin' })}`)).toBe(404)
})
