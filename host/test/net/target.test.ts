import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  describeTarget,
  isAddress,
  parseAuthority,
  parseHost,
  parseTarget,
  targetUrl,
} from '../../net/target.ts'

const hostOf = (url: string): string => {
  const parsed = parseTarget(url, 'GET')
  return parsed.ok ? parsed.value.host : `refused: ${parsed.error}`
}

describe('the target of a request', () => {
  it('is read as URLs are: scheme, host, port, method, path with its query, no fragment [G.02]', () => {
    expect(parseTarget('HTTPS://Example.COM:8443/a/../b?c=1#d', 'get')).toEqual({
      ok: true,
      value: { scheme: 'https', host: 'example.com', port: 8443, method: 'GET', path: '/b?c=1' },
    })
    expect(parseTarget('http://example.com', 'POST')).toMatchObject({
      value: { scheme: 'http', port: 80, path: '/' },
    })
  })

  it.each([
    [
      '127.0.0.1',
      [
        'http://127.0.0.1',
        'http://127.1',
        'http://0x7f.1',
        'http://0x7f000001',
        'http://017700000001',
        'http://2130706433',
        'http://127.0.0.1.',
        'http://１２７.0.0.1',
        'http://[::ffff:127.0.0.1]',
        'http://[::FFFF:7F00:1]',
        'http://[0:0:0:0:0:ffff:7f00:1]',
      ],
    ],
    ['::1', ['http://[::1]', 'http://[0:0:0:0:0:0:0:1]', 'http://[0000::0001]']],
    ['169.254.169.254', ['http://169.254.169.254', 'http://0xa9fea9fe', 'http://[::ffff:a9fe:a9fe]']],
    [
      'example.com',
      [
        'http://example.com',
        'http://EXAMPLE.com',
        'http://example.com.',
        'http://%65xample.com',
        'http://ｅｘａｍｐｌｅ.com',
        'http://example。com',
      ],
    ],
    ['xn--mnchen-3ya.de', ['http://münchen.de', 'http://MÜNCHEN.de', 'http://xn--mnchen-3ya.de']],
  ])('has one spelling: %s [G.02]', (host, urls) => {
    expect(urls.map(hostOf)).toEqual(urls.map(() => host))
  })

  it.each([
    ['userinfo', 'https://example.com@evil.net/'],
    ['empty userinfo', 'https://@evil.net/'],
    ['a password', 'https://user:pw@evil.net/'],
    ['a backslash for a slash', 'https://evil.net\\@example.com/'],
    ['a tab inside', 'https://exa\tmple.com/'],
    ['a line break', 'https://example.com/\r\nHost: evil.net'],
    ['a space in front', ' https://example.com/'],
    ['a NUL', 'https://example.com/\0'],
    ['a lone surrogate', 'https://example.com/\ud800'],
    ['no slashes', 'https:example.com'],
    ['one slash', 'https:/example.com'],
    ['no host', 'https:///example.com'],
    ['another scheme', 'file:///etc/passwd'],
    ['a relative address', '//example.com/'],
    ['an empty label', 'https://a..b/'],
    ['two trailing dots', 'https://example.com../'],
    ['a star', 'https://*.example.com/'],
    ['an encoded slash in the host', 'https://example.com%2f.evil.net/'],
    ['an address of too many parts', 'https://1.2.3.4.5/'],
    ['an address beyond its range', 'https://256.1.1.1/'],
    ['an IPv6 zone', 'http://[fe80::1%eth0]/'],
    ['an encoded IPv6 zone', 'http://[fe80::1%25eth0]/'],
    ['port 0', 'https://example.com:0/'],
    ['a port beyond its range', 'https://example.com:65536/'],
    ['too long a name', `https://${'a'.repeat(64)}.com/`],
    ['too long an address', `https://example.com/${'a'.repeat(9_000)}`],
  ])('with %s is refused [G.02]', (_, url) => {
    expect(parseTarget(url, 'GET')).toMatchObject({ ok: false, error: expect.stringMatching(/./) })
  })

  it('is refused without its user and password in the words [G.02]', () => {
    for (const url of [
      'https://alice:pw@evil.net/',
      'alice:pw@evil.net',
      'https://alice:p/w@evil.net:0/',
      ' u:pw@x',
    ])
      expect(hostOf(url)).toMatch(/^refused: (?!.*(alice|pw|p\/w))/)
  })

  it('has a method of letters, and not CONNECT [G.02]', () => {
    for (const method of ['CONNECT', 'connect', '', 'GET\r\n', 'GE T', 'A'.repeat(21)])
      expect(parseTarget('https://example.com', method), method).toMatchObject({ ok: false })
  })

  it('never throws, and reads its own spelling as itself, whatever comes in [G.02]', () => {
    const anything = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 60 }),
      fc.webUrl({ withQueryParameters: true, withFragments: true }),
      fc
        .tuple(fc.constantFrom('http://', 'https://', 'HTTP://'), fc.string({ maxLength: 40 }))
        .map((parts) => parts.join('')),
      fc.ipV6().map((address) => `https://[${address}]/`),
    )
    fc.assert(
      fc.property(anything, (text) => {
        const parsed = parseTarget(text, 'GET')
        if (!parsed.ok) return
        const { host, path } = parsed.value
        expect(host).toMatch(/^[a-z0-9._:-]+$/)
        expect(path).toMatch(/^\/[\x21-\x7e]*$/)
        expect(parseTarget(targetUrl(parsed.value), 'GET')).toEqual(parsed)
      }),
      { seed: 4, numRuns: 2_000 },
    )
  })
})

describe('the target of a tunnel', () => {
  it('is HOST:PORT and nothing else [G.02]', () => {
    expect(parseAuthority('Example.com.:443')).toEqual({
      ok: true,
      value: { scheme: 'https', host: 'example.com', port: 443, method: null, path: null },
    })
    expect(parseAuthority('[::FFFF:10.0.0.1]:22')).toMatchObject({ value: { host: '10.0.0.1', port: 22 } })
    expect(parseAuthority('0x7f.1:443')).toMatchObject({ value: { host: '127.0.0.1' } })
  })

  it.each([
    'example.com',
    'example.com:',
    'example.com:0',
    'example.com:0443',
    'example.com:65536',
    'example.com:443/',
    'example.com:443:443',
    'user@example.com:443',
    '::1:443',
    '[::1]443',
    '[::1%eth0]:443',
    'exa mple.com:443',
    'example.com\\:443',
    'münchen.de:443',
    '%65xample.com:443',
    '*.example.com:443',
    ':443',
    '',
    'a..b:443',
    'example.com:443\r\n',
    'https://example.com:443',
  ])('refuses %j [G.02]', (authority) => {
    expect(parseAuthority(authority)).toMatchObject({ ok: false })
  })

  it('never throws, and reads its own spelling as itself [G.02]', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 40 }),
      fc
        .tuple(
          fc.oneof(
            fc.domain(),
            fc.ipV4Extended(),
            fc.ipV6().map((a) => `[${a}]`),
          ),
          fc.nat(70_000),
        )
        .map((parts) => parts.join(':')),
    )
    fc.assert(
      fc.property(text, (authority) => {
        const parsed = parseAuthority(authority)
        if (!parsed.ok) return
        expect(parseAuthority(describeTarget(parsed.value).slice('CONNECT '.length))).toEqual(parsed)
      }),
      { seed: 4, numRuns: 2_000 },
    )
  })
})

describe('a host', () => {
  it('is a name or an address, without port, path or user [G.02]', () => {
    expect(parseHost('MÜNCHEN.de')).toEqual({ ok: true, value: 'xn--mnchen-3ya.de' })
    expect(parseHost('::1')).toEqual({ ok: true, value: '::1' })
    expect(parseHost('[::1]')).toEqual({ ok: true, value: '::1' })
    for (const text of ['example.com:443', '[::1]:443', 'a/b', 'a@b', '', 'a b', 'a?b', '*.a', 'https://a'])
      expect(parseHost(text), text).toMatchObject({ ok: false })
  })

  it('is an address only as one [G.02]', () => {
    expect(['1.2.3.4', '::1', 'fe80::1'].map(isAddress)).toEqual([true, true, true])
    expect(['1.2.3', 'example.com', '1', 'a.1.2.3.4', 'dead.beef'].map(isAddress)).toEqual([
      false,
      false,
      false,
      false,
      false,
    ])
  })
})
