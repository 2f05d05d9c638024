import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isAbout, readRule } from '../../egress/rules.ts'
import { isClearPath, plainUrlPath } from '../../egress/url-path.ts'
import { parseTarget } from '../../net/target.ts'

/** Readings of a path that servers have: how often they decode, what they cut off, what they take for a slash. */
function readings(path: string): string[] {
  const decode = (text: string): string => {
    try {
      return decodeURIComponent(text)
    } catch {
      return text
    }
  }
  const once = decode(path)
  const decoded = [path, once, decode(once)]
  const cut = [...decoded, ...decoded.map((text) => text.replaceAll(/;[^/]*/g, ''))]
  const slashed = [...cut, ...cut.map((text) => text.replaceAll('\\', '/'))]
  const ended = [...slashed, ...slashed.map((text) => text.split('\0', 1)[0] ?? '')]
  return ended.map((text) => {
    const segments: string[] = []
    for (const segment of text.split('/')) {
      if (segment === '..') segments.pop()
      else if (segment !== '' && segment !== '.') segments.push(segment)
    }
    return `/${segments.join('/')}`
  })
}

const pieces = fc.constantFrom(
  'v1',
  'V1',
  'a',
  '/',
  '//',
  '.',
  '..',
  '%2e',
  '%2E%2e',
  '%2f',
  '%5c',
  '\\',
  ';',
  ';x=1',
  '%00',
  '%25',
  '%252e',
  '%252f',
  '%',
  '%zz',
  '%76',
  '?',
  'ä',
  '~',
  '%7e',
  ' ',
  '&',
  '=',
)
const path = fc.array(pieces, { maxLength: 8 }).map((parts) => `/${parts.join('')}`)
const runs = { seed: 4, numRuns: 5_000 }

function target(path: string) {
  const parsed = parseTarget(`https://example.com${path}`, 'GET')
  return parsed.ok ? parsed.value : null
}

function rule(effect: 'allow' | 'deny', path: string) {
  const read = readRule({ effect, host: 'example.com', path }, 'configuration')
  if (!read.ok) throw new Error(read.error)
  return read.value
}

describe('a rule about a path', () => {
  it('allows nothing that some server would take for another place [G.02]', () => {
    let allowed = 0
    fc.assert(
      fc.property(path, (text) => {
        const to = target(text)
        if (to === null || !isAbout(rule('allow', '/v1/*'), to)) return
        allowed += 1
        const shown = to.path?.split('?', 1)[0] ?? ''
        for (const reading of readings(shown))
          expect([text, reading]).toEqual([text, expect.stringMatching(/^\/v1(\/|$)/)])
      }),
      runs,
    )
    expect(allowed).toBeGreaterThan(20)
  })

  it('denies everything that some server would take for its place [G.02]', () => {
    fc.assert(
      fc.property(path, (text) => {
        const to = target(text)
        if (to === null) return
        const shown = to.path?.split('?', 1)[0] ?? ''
        if (readings(shown).some((reading) => /^\/v1(\/|$)/i.test(reading)))
          expect([text, isAbout(rule('deny', '/v1/*'), to)]).toEqual([text, true])
      }),
      runs,
    )
  })
})

describe('a path in one spelling', () => {
  it('is not clear where it is no UTF-8, in which some servers see dots and slashes [G.02]', () => {
    for (const text of ['/v1/%c0%ae%c0%ae/admin', '/v1/..%c0%afadmin', '/v1/%e9', '/v1/%ed%a0%80'])
      expect([text, isClearPath(text)]).toEqual([text, false])
    expect(isClearPath('/v1/%C3%A9')).toBe(true)
    const to = target('/v1/%c0%ae%c0%ae/admin')
    expect(to && isAbout(rule('allow', '/v1/*'), to)).toBe(false)
    expect(to && isAbout(rule('deny', '/admin/*'), to)).toBe(true)
  })

  it('stays itself, and stays clear [G.02]', () => {
    fc.assert(
      fc.property(path, (text) => {
        const plain = plainUrlPath(text)
        expect(plainUrlPath(plain)).toBe(plain)
        if (isClearPath(text)) expect(isClearPath(plain)).toBe(true)
      }),
      runs,
    )
  })
})
