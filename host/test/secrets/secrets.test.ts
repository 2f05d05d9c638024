import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Secret } from '../../keys/secret.ts'
import type { Target } from '../../net/target.ts'
import { parseAuthority, parseTarget } from '../../net/target.ts'
import { findInAddress, findPlaceholders, replacePlaceholders } from '../../secrets/placeholders.ts'
import { createRedaction } from '../../secrets/redaction.ts'
import { SecretChanges, Secrets } from '../../secrets/secrets.ts'

const value = 'ghp_0123456789abcdefABCDEF'

function make(env: Record<string, string> = { TOKEN: value }) {
  let reads = 0
  const changes = new SecretChanges()
  const secrets = new Secrets(
    { TOKEN: { from: { env: 'TOKEN' }, hosts: ['API.Example.com', '*.pkg.example.com'] } },
    async (source) => {
      reads += 1
      const text = 'env' in source ? env[source.env] : undefined
      return text === undefined ? { ok: false, error: 'not set' } : { ok: true, value: new Secret(text) }
    },
    changes,
  )
  return { secrets, changes, env, reads: () => reads }
}

function at(url: string): Target {
  const target = parseTarget(url, 'GET')
  if (!target.ok) throw new Error(target.error)
  return target.value
}

const bearer = { authorization: 'Bearer {{TOKEN}}', accept: 'x' }
const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`

describe('a secret', () => {
  it('is put in for the hosts that it is bound to, in plain and in Basic credentials [G.04]', async () => {
    const { secrets } = make()
    for (const url of ['https://api.example.com/x', 'https://a.b.pkg.example.com:8443/']) {
      expect(await secrets.putInto(bearer, at(url))).toEqual({
        ok: true,
        value: { headers: { authorization: `Bearer ${value}`, accept: 'x' }, names: ['TOKEN'] },
      })
    }
    const filled = await secrets.putInto(
      { authorization: basic('me:{{TOKEN}}') },
      at('https://api.example.com/'),
    )
    expect(filled).toMatchObject({ value: { headers: { authorization: basic(`me:${value}`) } } })
    const twice = await secrets.putInto(
      { a: '{{TOKEN}}-{{TOKEN}}', b: 'Basic {{TOKEN}}' },
      at('https://api.example.com/'),
    )
    expect(twice).toMatchObject({ value: { headers: { a: `${value}-${value}`, b: `Basic ${value}` } } })
  })

  it('is none where it is not among those that were named, whatever is configured or set [G.04]', async () => {
    const changes = new SecretChanges()
    const setting = { hosts: ['api.example.com'], from: { env: 'X' } }
    const read = async () => ({ ok: true as const, value: new Secret(value) })
    const secrets = new Secrets({ TOKEN: setting, OTHER: setting }, read, changes, {
      only: ['OTHER', 'LATER'],
    })
    expect(secrets.list().map(({ name }) => name)).toEqual(['OTHER'])
    changes.set('LATER', { hosts: ['api.example.com'], value })
    changes.set('UNNAMED', { hosts: ['api.example.com'], value })
    expect(secrets.list().map(({ name }) => name)).toEqual(['LATER', 'OTHER'])
    for (const name of ['TOKEN', 'UNNAMED'])
      expect(await secrets.putInto({ a: `{{${name}}}` }, at('https://api.example.com/'))).toMatchObject({
        error: { code: 'secret_refused' },
      })
    const filled = await secrets.putInto({ a: '{{LATER}} {{OTHER}}' }, at('https://api.example.com/'))
    expect(filled).toMatchObject({ value: { headers: { a: `${value} ${value}` } } })
  })

  it.each([
    ['another host', 'https://evil.test/'],
    ['a host that only begins so', 'https://api.example.com.evil.test/'],
    ['a host that only ends so', 'https://xapi.example.com/'],
    ['the name above a wildcard', 'https://pkg.example.com/'],
    ['plain http', 'http://api.example.com/'],
  ])('is refused for %s, by name and with its hosts, and not read [G.04]', async (_, url) => {
    const { secrets, reads } = make()
    for (const headers of [bearer, { authorization: basic('me:{{TOKEN}}') }]) {
      const refused = await secrets.putInto(headers, at(url))
      expect(refused).toMatchObject({ ok: false, error: { status: 403, code: 'secret_refused' } })
      const message = refused.ok ? '' : refused.error.message
      expect(message).toMatch(/\{\{TOKEN\}\}.*(api\.example\.com, \*\.pkg\.example\.com|https)/)
    }
    expect(reads()).toBe(0)
  })

  it('is refused in a tunnel, where the host makes no request [G.04]', () => {
    const tunnel = parseAuthority('api.example.com:443')
    expect(tunnel.ok && make().secrets.check(bearer, tunnel.value)).toMatchObject({ ok: false })
  })

  it('that nobody knows is refused with the names that there are for the host [G.04]', async () => {
    const refused = await make().secrets.putInto({ a: '{{OTHER}}' }, at('https://api.example.com/'))
    expect(refused).toMatchObject({ ok: false, error: { message: expect.stringContaining('{{TOKEN}}') } })
  })

  it('is read anew with each request, so that a rotated value holds at once [G.04]', async () => {
    const { secrets, env } = make()
    const url = at('https://api.example.com/')
    await secrets.putInto(bearer, url)
    env.TOKEN = 'rotated-0123456789'
    expect(await secrets.putInto(bearer, url)).toMatchObject({
      value: { headers: { authorization: 'Bearer rotated-0123456789' } },
    })
    delete env.TOKEN
    expect(await secrets.putInto(bearer, url)).toMatchObject({
      ok: false,
      error: { message: expect.stringContaining('cannot be read') },
    })
    // What was ever sent is taken out of whatever comes back.
    const sent = `${value} rotated-0123456789`
    expect(secrets.redactionFor(['api.example.com']).text(sent)).toBe('[redacted] [redacted]')
    // A stranger's page does not tell which guess is right.
    expect(secrets.redactionFor(['evil.test']).text(sent)).toBe(sent)
  })

  it('can be set, bound otherwise and revoked while runs are under way [G.04]', async () => {
    const { secrets, changes } = make()
    changes.set('NEW', { value: 'fresh-0123456', hosts: ['new.test'] })
    expect(secrets.list()).toEqual([
      { name: 'NEW', hosts: ['new.test'] },
      { name: 'TOKEN', hosts: ['api.example.com', '*.pkg.example.com'] },
    ])
    expect(await secrets.putInto({ a: '{{NEW}}' }, at('https://new.test/'))).toMatchObject({
      value: { headers: { a: 'fresh-0123456' } },
    })
    changes.set('NEW', { value: 'fresh-0123456', hosts: ['other.test'] })
    expect(await secrets.putInto({ a: '{{NEW}}' }, at('https://new.test/'))).toMatchObject({ ok: false })
    changes.revoke('TOKEN')
    expect(await secrets.putInto(bearer, at('https://api.example.com/'))).toMatchObject({ ok: false })
    expect(secrets.list().map(({ name }) => name)).toEqual(['NEW'])
  })

  it.each([
    ['too short to be taken out of answers', 'abc'],
    ['with a line break', 'abcdef\r\nHost: evil.test'],
  ])('%s is not sent [G.04]', async (_, text) => {
    const { secrets } = make({ TOKEN: text })
    const refused = await secrets.putInto(bearer, at('https://api.example.com/'))
    expect(refused).toMatchObject({ ok: false, error: { code: 'secret_refused' } })
    expect(JSON.stringify(refused)).not.toContain('evil.test')
  })

  it('is bound to names alone: anything else is a mistake in the configuration', () => {
    const { changes } = make()
    for (const host of ['*', 'https://a.test', 'a.test:443', 'a b', '*.', ''])
      expect(() => changes.set('A', { value: 'abcdef', hosts: [host] })).toThrow(
        expect.objectContaining({ code: 'invalid_options' }),
      )
    expect(() => changes.set('a', { value: 'abcdef', hosts: ['a.test'] })).toThrow(
      expect.objectContaining({ code: 'invalid_options' }),
    )
    expect(() => changes.set('A', { value: 'abcdef', hosts: [] })).toThrow(
      expect.objectContaining({ code: 'invalid_options' }),
    )
  })

  it('does not show itself with the object that holds it [G.01]', async () => {
    const { secrets, changes } = make()
    changes.set('NEW', { value: 'fresh-0123456', hosts: ['new.test'] })
    await secrets.putInto(bearer, at('https://api.example.com/'))
    expect(JSON.stringify(secrets)).not.toContain('ghp_')
    const { inspect } = await import('node:util')
    expect(inspect(secrets, { depth: 9, showHidden: true })).not.toMatch(/ghp_|fresh-/)
  })
})

describe('a placeholder', () => {
  it('is found once however often it stands there, and in an address however it is escaped', () => {
    expect(findPlaceholders('{{A}} {{B_2}} {{A}} {{a}} {A} {{ A }}')).toEqual(['A', 'B_2'])
    expect(findInAddress('https://a.test/?k=%7b%7BTOKEN}%7D')).toBe('TOKEN')
    expect(findInAddress('https://a.test/{x}')).toBeNull()
  })

  it('leaves every value without one as it is', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        fc.pre(findPlaceholders(text).length === 0)
        expect(replacePlaceholders(text, () => 'x')).toBe(text)
      }),
      { seed: 7, numRuns: 300 },
    )
  })

  it('is replaced by the value itself, whatever is special in it', () => {
    expect(replacePlaceholders('a {{A}}', () => '$& $1 {{B}}')).toBe('a $& $1 {{B}}')
  })
})

describe('redaction', () => {
  const secret = 'p&"\\ss<wörd>+/1234567'

  it('takes a secret out in every form that servers echo it in [G.04]', () => {
    const redaction = createRedaction([secret])
    const forms = [
      secret,
      JSON.stringify({ a: secret }),
      `k=${encodeURIComponent(secret)}`,
      'p&amp;&quot;\\ss&lt;wörd&gt;+/1234567',
    ]
    for (const form of forms) {
      expect(redaction.text(form)).toContain('[redacted]')
      expect(redaction.text(form)).not.toContain('1234567')
    }
  })

  it('takes it out of base64, wherever in it the secret stands [G.04]', () => {
    const redaction = createRedaction([value])
    for (const before of ['', 'm', 'me', 'me:', 'user:']) {
      const encoded = Buffer.from(`${before}${value}!`).toString('base64')
      const left = redaction.text(encoded)
      expect(left).toContain('[redacted]')
      // At most what the edges share with their neighbors is left.
      expect(left.replace('[redacted]', '').length).toBeLessThanOrEqual(
        Buffer.from(before).toString('base64').length + 8,
      )
    }
    expect(redaction.text(Buffer.from(`x${value}`).toString('base64url'))).toContain('[redacted]')
  })

  it('takes it out of a stream, wherever its chunks are cut [G.04]', () => {
    const text = `a ${value} b ${Buffer.from(`me:${value}`).toString('base64')} c`
    const whole = createRedaction([value]).text(text)
    fc.assert(
      fc.property(fc.array(fc.nat(text.length), { maxLength: 8 }), (cuts) => {
        const stream = createRedaction([value]).stream()
        const places = [0, ...cuts.toSorted((a, b) => a - b), text.length]
        const chunks = places.slice(1).map((end, index) => Buffer.from(text.slice(places[index], end)))
        const out = Buffer.concat([...chunks.map((chunk) => stream.push(chunk)), stream.end()])
        expect(out.toString()).toBe(whole)
      }),
      { seed: 8, numRuns: 200 },
    )
  })

  it('of nothing changes nothing', () => {
    const none = createRedaction([])
    expect(none.text('abc')).toBe('abc')
    expect(Buffer.concat([none.stream().push(Buffer.from('abc')), none.stream().end()]).toString()).toBe(
      'abc',
    )
  })
})
