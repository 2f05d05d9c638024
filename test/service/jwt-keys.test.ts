// Where the keys of JWTs come from: a file and an address, when they change, fail or are hostile. Real requests, no VM.
import { chmod, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { makeAuthority } from '../../host/test/support/authority.ts'
import {
  asOf,
  audience,
  issuer,
  keyFile,
  keysText,
  makeKey,
  replaceKeys,
  serveJwt,
  serveKeySet,
  watchPlace,
} from './jwt-support.ts'
import { codeOf, detailOf, holderOf } from './keys-support.ts'
import { serveHost } from './support.ts'

const cannot = 'the service cannot get the keys that JWTs are checked with, so it accepts none'
const at = '/v1/runs'
const trusted = await makeKey()

/** A clock that a test moves. */
function makeClock() {
  let now = 1_800_000_000_000
  return {
    now: () => now,
    pass: (seconds: number) => {
      now += seconds * 1_000
    },
  }
}

describe('the keys of a file', () => {
  it('count from the moment when the file is replaced, and those before no longer [H.02]', async () => {
    const [old, fresh] = [await makeKey('ES256', 'old'), await makeKey('EdDSA', 'new')]
    const { as, file } = await serveJwt([old])
    const statuses = async () =>
      await Promise.all([old, fresh].map(async (key) => (await as(await key.sign(), 'GET', at)).status))
    expect(await statuses()).toEqual([200, 401])
    await replaceKeys(file, keysText(old, fresh))
    expect(await statuses()).toEqual([200, 200])
    await replaceKeys(file, keysText(fresh))
    expect(await statuses()).toEqual([401, 200])
  })

  it('may be behind a link, as orchestrators mount them [H.02]', async () => {
    const [old, fresh] = [await makeKey('ES256', 'k'), await makeKey('ES256', 'k')]
    const folder = await temporaryFolder('mounted')
    await writeFile(path.join(folder, 'one.json'), keysText(old), { mode: 0o644 })
    await writeFile(path.join(folder, 'two.json'), keysText(fresh), { mode: 0o644 })
    const link = path.join(folder, 'jwks.json')
    await symlink('one.json', link)
    const { as } = await serveJwt([], { jwks: link })
    expect((await as(await old.sign(), 'GET', at)).status).toBe(200)
    await symlink('two.json', `${link}.new`)
    await rename(`${link}.new`, link)
    expect((await as(await old.sign(), 'GET', at)).status).toBe(401)
    expect((await as(await fresh.sign(), 'GET', at)).status).toBe(200)
  })

  it.each([
    ['is empty', async (file: string) => writeFile(file, '')],
    ['is no JSON', async (file: string) => writeFile(file, '{"keys":[')],
    ['has no list', async (file: string) => writeFile(file, '{"keys":{}}')],
    ['has no key', async (file: string) => writeFile(file, '{"keys":[]}')],
    ['is too large', async (file: string) => writeFile(file, `{"keys":[],"x":"${'x'.repeat(200_000)}"}`)],
    ['can be written by others', async (file: string) => chmod(file, 0o622)],
    ['is not there', async (file: string) => rm(file)],
  ])('admit nobody while the file %s, while API keys and the token work [H.02]', async (_, damage) => {
    const key = await makeKey()
    const { host, as, file, ...served } = await serveJwt([key])
    const holder = await holderOf(host, served, 'ci')
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
    await damage(file)
    const refused = await as(await key.sign(), 'GET', at)
    expect([refused.status, codeOf(refused), detailOf(refused)]).toEqual([503, 'state_unavailable', cannot])
    expect(refused.text).not.toContain(file)
    expect(served.logged).toContainEqual(
      expect.objectContaining({ level: 'error', cause: expect.stringContaining(file) }),
    )
    expect((await holder.send('GET', at)).status).toBe(200)
    expect((await served.send('GET', at)).status).toBe(200)
    await replaceKeys(file, keysText(key))
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
  })
})

describe('the keys of an address', () => {
  it('are fetched once for many requests, and again after 5 minutes [H.02]', async () => {
    const clock = makeClock()
    const key = await makeKey('ES256', 'k1', clock.now)
    const { url, asked } = await serveKeySet((_, response) => response.end(keysText(key)))
    const { as } = await serveJwt([], { jwks: url, now: clock.now })
    const token = await key.sign()
    const requests = Array.from({ length: 10 }, () => as(token, 'GET', at))
    expect((await Promise.all(requests)).map(({ status }) => status)).toEqual(Array<number>(10).fill(200))
    expect(asked).toEqual(['/jwks'])
    clock.pass(299)
    expect((await as(token, 'GET', at)).status).toBe(200)
    expect(asked).toHaveLength(1)
    clock.pass(2)
    expect((await as(token, 'GET', at)).status).toBe(200)
    await expect.poll(() => asked).toHaveLength(2)
  })

  it('are fetched for an unknown key ID, once in 30 seconds, so that a rotation counts [H.02]', async () => {
    const clock = makeClock()
    const [old, fresh] = [await makeKey('ES256', 'old', clock.now), await makeKey('RS256', 'new', clock.now)]
    const stranger = await makeKey('ES256', 'strange', clock.now)
    let text = keysText(old)
    const { url, asked } = await serveKeySet((_, response) => response.end(text))
    const { as } = await serveJwt([], { jwks: url, now: clock.now })
    expect((await as(await old.sign(), 'GET', at)).status).toBe(200)
    text = keysText(fresh)
    expect((await as(await fresh.sign(), 'GET', at)).status).toBe(401)
    clock.pass(31)
    expect((await as(await fresh.sign(), 'GET', at)).status).toBe(200)
    expect((await as(await old.sign(), 'GET', at)).status).toBe(401)
    expect(asked).toHaveLength(2)
    for (let count = 0; count < 10; count += 1)
      expect((await as(await stranger.sign(), 'GET', at)).status).toBe(401)
    expect(asked).toHaveLength(2)
    clock.pass(31)
    await Promise.all(Array.from({ length: 5 }, async () => as(await stranger.sign(), 'GET', at)))
    expect(asked).toHaveLength(3)
  })

  it('count for 15 minutes while the issuer is out of reach, then admit nobody until it is back [H.02]', async () => {
    const clock = makeClock()
    const key = await makeKey('ES256', 'k1', clock.now)
    const stranger = await makeKey('ES256', 'k2', clock.now)
    let isUp = true
    const { url } = await serveKeySet((_, response) => {
      if (isUp) response.end(keysText(key))
      else response.writeHead(500).end()
    })
    const { as } = await serveJwt([], { jwks: url, now: clock.now })
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
    isUp = false
    clock.pass(899)
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
    // Nobody can say whether its key is one of the issuer.
    clock.pass(-500)
    expect((await as(await stranger.sign(), 'GET', at)).status).toBe(503)
    clock.pass(501)
    for (const one of [key, stranger]) {
      const refused = await as(await one.sign(), 'GET', at)
      expect([refused.status, detailOf(refused), refused.headers['retry-after']]).toEqual([503, cannot, '5'])
    }
    isUp = true
    clock.pass(6)
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
    expect((await as(await stranger.sign(), 'GET', at)).status).toBe(401)
  })

  it('are fetched again when the clock was set back, since nobody knows how old they are [H.02]', async () => {
    const clock = makeClock()
    const key = await makeKey('ES256', 'k1', clock.now)
    let isUp = true
    const { url } = await serveKeySet((_, response) => {
      response.writeHead(isUp ? 200 : 500).end(keysText(key))
    })
    const { as } = await serveJwt([], { jwks: url, now: clock.now })
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
    isUp = false
    clock.pass(-3_600)
    expect((await as(await key.sign(), 'GET', at)).status).toBe(503)
    isUp = true
    clock.pass(6)
    expect((await as(await key.sign(), 'GET', at)).status).toBe(200)
  })

  const answers: Record<string, Parameters<typeof serveKeySet>[0]> = {
    'never answers': () => undefined,
    'sends a head and then nothing': (_, response) => void response.writeHead(200).write('{"keys":['),
    'sends one byte after another': (_, response) => {
      response.writeHead(200)
      const timer = setInterval(() => response.write(' '), 20)
      response.once('close', () => clearInterval(timer))
    },
    'ends the connection': (request) => void request.socket.destroy(),
    'says less than it promises': (_, response) => {
      response.writeHead(200, { 'content-length': '1000' }).write(keysText(trusted))
      setTimeout(() => response.destroy(), 20)
    },
    'answers with status 500': (_, response) => void response.writeHead(500).end(keysText(trusted)),
    'answers with status 204': (_, response) => void response.writeHead(204).end(),
    'answers without end': (_, response) => {
      response.writeHead(200)
      const fill = () => {
        while (response.writable && response.write(' '.repeat(65_536)));
        response.once('drain', fill)
      }
      response.once('error', () => undefined)
      fill()
    },
    'answers with too much': (_, response) =>
      void response.end(JSON.stringify({ keys: [trusted.jwk], more: 'x'.repeat(200_000) })),
    'answers with large headers': (_, response) => {
      for (let count = 0; count < 10; count += 1) response.setHeader(`x-${count}`, 'x'.repeat(8_000))
      response.end(keysText(trusted))
    },
    'answers with a page': (_, response) => void response.end('<html>sign in</html>'),
    'answers with compressed bytes': (_, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' }).end('x')
    },
    'answers with too many keys': (_, response) =>
      void response.end(JSON.stringify({ keys: Array.from({ length: 100 }, () => trusted.jwk) })),
  }

  it.each(Object.keys(answers))('admit nobody when the server %s [H.02]', async (name) => {
    const { url, asked } = await serveKeySet((request, response) => answers[name]?.(request, response))
    const { host, as, ...served } = await serveJwt([], { jwks: `${url}?key=hidden`, fetchTimeoutMs: 500 })
    const holder = await holderOf(host, served, 'ci')
    const refused = await as(await trusted.sign(), 'GET', at)
    expect([refused.status, codeOf(refused), detailOf(refused)]).toEqual([503, 'state_unavailable', cannot])
    expect(refused.text).not.toContain('127.0.0.1')
    const lines = JSON.stringify(served.logged)
    expect(lines).toContain(url)
    expect(lines).not.toContain('hidden')
    expect((await holder.send('GET', at)).status).toBe(200)
    // A failure is not asked for again at once.
    await Promise.all(Array.from({ length: 5 }, async () => as(await trusted.sign(), 'GET', at)))
    expect(asked).toHaveLength(1)
  })

  it.each([301, 302, 303, 307, 308])(
    'admit nobody when the server redirects with %s [H.02]',
    async (status) => {
      const other = await serveKeySet((_, response) => response.end(keysText(trusted)))
      const { url } = await serveKeySet((_, response) => {
        response.writeHead(status, { location: other.url }).end(keysText(trusted))
      })
      const { as } = await serveJwt([], { jwks: url })
      expect((await as(await trusted.sign(), 'GET', at)).status).toBe(503)
      expect(other.asked).toEqual([])
    },
  )

  it('come over https from a server whose certificate the user trusts, and from no other [H.02]', async () => {
    const authority = await makeAuthority('IP:127.0.0.1')
    const key = await makeKey()
    const { cert, key: secret } = authority
    const server = createServer({ cert, key: secret }, (_, response) => response.end(keysText(key)))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    onTestFinished(() => {
      server.close()
      server.closeAllConnections()
    })
    const jwks = `https://127.0.0.1:${(server.address() as AddressInfo).port}/`
    const statusWith = async (config: object) => {
      const home = path.join(await temporaryFolder('home'), 'state')
      const host = new Host({ env: { HOME: home, CAISSON_HOME: home }, config })
      const verifier = await host.openJwt({ jwks, issuer, audience })
      const served = await serveHost(host, { jwt: { verifier } })
      watchPlace(home, served.logged)
      return (await asOf(served)(await key.sign(), 'GET', at)).status
    }
    expect(await statusWith({ network: { ca: authority.caFile } })).toBe(200)
    expect(await statusWith({})).toBe(503)
  })
})

describe('what says where the keys are', () => {
  const unusable: Record<string, object> = {
    'a weak RSA key': { kty: 'RSA', n: 'A'.repeat(171), e: 'AQAB' },
    'an RSA key that takes long': { kty: 'RSA', n: 'A'.repeat(2_731), e: 'AQAB' },
    'an RSA key with a large exponent': { kty: 'RSA', n: 'A'.repeat(342), e: 'A'.repeat(342) },
    'a key for encryption': { ...trusted.jwk, use: 'enc' },
    'a key of another algorithm': { ...trusted.jwk, alg: 'ECDH-ES' },
    'a key of an unknown curve': { ...trusted.jwk, crv: 'secp256k1' },
    'a symmetric key': { kty: 'oct', k: 'A'.repeat(43), alg: 'HS256' },
    'a certificate alone': { x5u: 'https://id.example.com/cert', x5c: ['AAAA'] },
  }
  it.each(Object.keys(unusable))('is refused when it has %s and no other [H.02]', async (name) => {
    const file = await keyFile()
    await replaceKeys(file, JSON.stringify({ keys: [unusable[name]] }))
    await expect(host().openJwt({ jwks: file, issuer, audience })).rejects.toThrow(
      /has no key that signs|has a private or symmetric key/,
    )
  })

  const host = () => new Host({ env: { HOME: '/nowhere', CAISSON_HOME: '/nowhere/state' } })

  it.each([
    'http://id.example.com/keys',
    'http://127.0.0.1.example.com/keys',
    'http://169.254.169.254/keys',
    'http://localhost@evil.example/keys',
    'ftp://id.example.com/keys',
    'file:///etc/passwd',
    'data://text/plain,x',
    'https://user:secret@id.example.com/keys',
    'https://id.example.com/keys#x',
    'https://',
    '',
  ])('is refused when it is %j [H.02]', async (jwks) => {
    await expect(host().openJwt({ jwks, issuer, audience })).rejects.toMatchObject({
      code: 'invalid_options',
      message: expect.not.stringContaining('secret'),
    })
  })

  it('is refused without issuer or audience, and when the file cannot be used [H.02]', async () => {
    const file = await keyFile(await makeKey())
    const folder = path.dirname(file)
    await expect(host().openJwt({ jwks: file, issuer, audience })).resolves.toBeDefined()
    const wrong = [
      { jwks: file, issuer },
      { jwks: file, audience },
      { jwks: file, issuer: '', audience },
      { jwks: file, issuer, audience: '' },
      { jwks: file, issuer, audience, alg: 'HS256' },
      { jwks: path.join(folder, 'missing'), issuer, audience },
      { jwks: folder, issuer, audience },
      { jwks: '/dev/zero', issuer, audience },
    ]
    for (const options of wrong)
      await expect(host().openJwt(options as never)).rejects.toMatchObject({ code: 'invalid_options' })
    await chmod(file, 0o666)
    await expect(host().openJwt({ jwks: file, issuer, audience })).rejects.toThrow(
      'only you or root can write',
    )
  })
})
