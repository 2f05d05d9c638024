// What an answer about network access lets through, whatever was asked for.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { AccessReach } from '#specs/protocol/egress.ts'
import { offersFor, rulesOf } from '../../egress/access-options.ts'
import { decide, makePolicy } from '../../egress/policy.ts'
import { readRule } from '../../egress/rules.ts'
import type { Target } from '../../net/target.ts'

const made = makePolicy({ configuration: [], otherwise: 'deny' })
if (!made.ok) throw new Error(made.error)
const nothing = made.value

const host = fc.constantFrom(
  'example.com',
  'api.example.com',
  'a.api.example.com',
  'notexample.com',
  'example.com.evil.net',
  'com',
  '93.184.216.34',
  '2606:2800:220:1::1',
)
const path = fc.oneof(
  fc.constantFrom(
    '/',
    '/v1',
    '/v1/',
    '/v1/a',
    '/v1/a/b?c=1',
    '/v1/ab',
    '/v1/../x',
    '/v1//a',
    '/V1',
    '/v1%2fa',
    '/*',
    '/a*b/c',
  ),
  fc.webPath().map((text) => `/${text.replace(/^\/+/, '')}`),
)
const target: fc.Arbitrary<Target> = fc.oneof(
  fc.record({
    scheme: fc.constantFrom('https', 'http'),
    host,
    port: fc.constantFrom(443, 80, 8443),
    method: fc.constantFrom('GET', 'POST'),
    path,
  }),
  fc.record({
    scheme: fc.constant('https' as const),
    host,
    port: fc.constantFrom(443, 8443),
    method: fc.constant(null),
    path: fc.constant(null),
  }),
)
const reach = fc.constantFrom<AccessReach>('host', 'suffix', 'path')

const rulesFor = (asked: Target, wanted: AccessReach) =>
  rulesOf('allow', wanted, asked).flatMap((rule) => {
    const read = readRule(rule, 'grant-run')
    return read.ok ? [read.value] : []
  })

describe('an answer about network access', () => {
  it('lets out what was asked for, for every reach that is offered [G.02]', () => {
    fc.assert(
      fc.property(target, (asked) => {
        for (const { reach: offered } of offersFor(nothing, asked))
          expect(decide(nothing, asked, rulesFor(asked, offered)).effect).toBe('allow')
      }),
      { seed: 4, numRuns: 500 },
    )
  })

  it('lets nothing out beyond its scheme, its port, its host or the names below that, and its path [G.02]', () => {
    fc.assert(
      fc.property(target, target, reach, (asked, other, wanted) => {
        if (decide(nothing, other, rulesFor(asked, wanted)).effect !== 'allow') return
        expect([other.scheme, other.port]).toEqual([asked.scheme, asked.port])
        const isBelow = other.host.endsWith(`.${asked.host}`)
        expect(other.host === asked.host || (wanted === 'suffix' && isBelow)).toBe(true)
        if (wanted !== 'path') return
        expect(other.path).not.toBeNull()
        const within = new URL(asked.path ?? '', 'http://x').pathname.replace(/\/$/, '')
        expect(`${new URL(other.path ?? '', 'http://x').pathname}/`.startsWith(`${within}/`)).toBe(true)
      }),
      { seed: 4, numRuns: 5_000 },
    )
  })

  it('is not offered for all names below one that nobody owns [G.02]', () => {
    const reaches = (host: string) => {
      const asked = { scheme: 'https', host, port: 443, method: 'GET', path: null } as const
      return offersFor(nothing, asked).map((offer) => offer.reach)
    }
    for (const host of ['com', 'co.uk', 'com.br', 'or.jp'])
      expect([host, reaches(host)]).toEqual([host, ['host']])
    for (const host of ['example.com', 'co.example', 'bbc.co.uk', 'co.com'])
      expect([host, reaches(host)]).toEqual([host, ['host', 'suffix']])
  })

  it('is not offered for a path that servers read in different ways, nor names below an address', () => {
    const asked = {
      scheme: 'https',
      host: '93.184.216.34',
      port: 443,
      method: 'GET',
      path: '/a%2fb',
    } as const
    expect(offersFor(nothing, asked).map((offer) => offer.reach)).toEqual(['host'])
  })
})
