import { describe, expect, it } from 'vitest'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { decide, explainRefusal, judgeResolved, makePolicy } from '../../egress/policy.ts'
import { readEgressRules } from '../../egress/rules.ts'
import type { Target } from '../../net/target.ts'
import { allow, ask, deny, effect, granted, type Input, policy, request, tunnel } from './policy-support.ts'

describe('a host in a rule', () => {
  it.each([
    ['example.com', 'example.com', true],
    ['example.com', 'example.com.', true],
    ['example.com', 'EXAMPLE.com', true],
    ['example.com', 'example.com.evil.net', false],
    ['example.com', 'notexample.com', false],
    ['example.com', 'a.example.com', false],
    ['example.com', 'example.comx', false],
    ['EXAMPLE.COM.', 'example.com', true],
    ['münchen.de', 'xn--mnchen-3ya.de', true],
    ['*.example.com', 'a.example.com', true],
    ['*.example.com', 'a.b.example.com', true],
    ['*.example.com', 'example.com', false],
    ['*.example.com', 'notexample.com', false],
    ['*.example.com', 'a.example.com.evil.net', false],
    ['*.com', 'example.com', true],
    ['*.com', 'a.example.com', true],
    ['*.com', 'com', false],
    ['*.com', 'example.com.net', false],
    ['*', 'example.com', true],
    ['*', '1.1.1.1', true],
    ['*', '10.0.0.1', false],
    ['*', '[::1]', false],
    ['*', '169.254.169.254', false],
    ['10.0.0.1', '10.0.0.1', true],
    ['10.0.0.1', '0xa000001', true],
    ['10.0.0.1', '[::ffff:10.0.0.1]', true],
    ['::ffff:10.0.0.1', '10.0.0.1', true],
    ['10.0.0.1', '10.0.0.10', false],
    ['[::1]', '[0::1]', true],
  ])('%s is about %s: %s [G.02]', (host, given, isMeant) => {
    expect(effect({ rules: [allow({ host })] }, request(`https://${given}/`))).toBe(
      isMeant ? 'allow' : 'deny',
    )
  })

  it.each([
    ['a scheme', { host: 'https://example.com' }],
    ['a port', { host: 'example.com:443' }],
    ['a path', { host: 'example.com/a' }],
    ['a star inside', { host: 'a.*.com' }],
    ['a star at the end', { host: 'example.*' }],
    ['a star before a name', { host: '*example.com' }],
    ['two stars', { host: '*.*.com' }],
    ['names below an address', { host: '*.10.0.0.1' }],
    ['a range', { host: '10.0.0.0/8' }],
    ['white space', { host: ' example.com' }],
    ['an IPv6 zone', { host: 'fe80::1%eth0' }],
    ['a path with ..', { host: 'example.com', path: '/a/../b' }],
    ['an encoded slash', { host: 'example.com', path: '/a%2fb' }],
    ['an empty segment', { host: 'example.com', path: '/a//b' }],
    ['a star inside a path', { host: 'example.com', path: '/a/*/b' }],
    ['a star at the end of a word', { host: 'example.com', path: '/repos/mine*' }],
    ['a query', { host: 'example.com', path: '/a?b=1' }],
  ])('with %s is refused, saying which rule and what to write [G.02]', (_, rule) => {
    const made = makePolicy({ configuration: [allow({ host: 'a.b' }), allow(rule)], otherwise: 'deny' })
    expect(made).toMatchObject({
      ok: false,
      error: expect.stringMatching(/^egress\.rules\.1: (host|path) "/),
    })
  })
})

describe('what a rule leaves out', () => {
  it('an allow rule means narrowly: https, and the port of its scheme [G.02]', () => {
    const rules = [allow({ host: 'example.com' })]
    expect(effect({ rules }, request('https://example.com/'))).toBe('allow')
    expect(effect({ rules }, tunnel('example.com:443'))).toBe('allow')
    expect(effect({ rules }, request('http://example.com/'))).toBe('deny')
    expect(effect({ rules }, request('https://example.com:8443/'))).toBe('deny')
    expect(effect({ rules }, tunnel('example.com:22'))).toBe('deny')
    const both = [allow({ host: 'example.com', schemes: ['http', 'https'] })]
    expect(effect({ rules: both }, request('http://example.com/'))).toBe('allow')
    expect(effect({ rules: both }, request('http://example.com:443/'))).toBe('deny')
    expect(
      effect({ rules: [allow({ host: 'example.com', ports: [8443] })] }, request('https://example.com/')),
    ).toBe('deny')
  })

  it('a deny or ask rule means wholly [G.02]', () => {
    const open = allow({ host: '*', schemes: ['http', 'https'], ports: [80, 443, 8443] })
    for (const target of [
      request('http://example.com/'),
      request('https://example.com:8443/', 'DELETE'),
      tunnel('example.com:8443'),
    ]) {
      expect(effect({ rules: [open, deny({ host: 'example.com' })] }, target)).toBe('deny')
      expect(effect({ rules: [open, ask({ host: 'example.com' })] }, target)).toBe('ask')
    }
    const inside = allow({ host: '10.0.0.1' })
    expect(effect({ rules: [inside, deny({ host: '*' })] }, request('https://10.0.0.1/'))).toBe('deny')
  })
})

describe('a rule with method or path', () => {
  it('allows no tunnel, in which neither can be seen [G.02]', () => {
    for (const rule of [{ methods: ['GET'] }, { path: '/*' }, { methods: ['CONNECT'] }]) {
      const input = { rules: [allow({ host: 'example.com', ...rule })] }
      expect(effect(input, tunnel('example.com:443'))).toBe('deny')
      expect(decide(policy(input), tunnel('example.com:443')).effect).toBe('deny')
      const words = explainRefusal(
        policy(input),
        tunnel('example.com:443'),
        decide(policy(input), tunnel('example.com:443')),
      )
      expect(words).toMatch(/which a tunnel hides.*web_fetch/)
    }
  })

  it('denies the tunnel that could hide what it denies [G.02]', () => {
    const open = allow({ host: 'example.com' })
    expect(
      effect({ rules: [open, deny({ host: 'example.com', path: '/admin' })] }, tunnel('example.com:443')),
    ).toBe('deny')
    expect(
      effect({ rules: [open, ask({ host: 'example.com', methods: ['POST'] })] }, tunnel('example.com:443')),
    ).toBe('ask')
  })

  it('compares methods whole [G.02]', () => {
    const rules = [allow({ host: 'example.com', methods: ['GET', 'HEAD'] })]
    expect(effect({ rules }, request('https://example.com/', 'get'))).toBe('allow')
    expect(effect({ rules }, request('https://example.com/', 'POST'))).toBe('deny')
    expect(effect({ rules }, request('https://example.com/', 'GETX'))).toBe('deny')
  })

  it.each([
    ['/v1/*', '/v1', true],
    ['/v1/*', '/v1/', true],
    ['/v1/*', '/v1/a/b?c=/../x', true],
    ['/v1/*', '/v1beta', false],
    ['/v1/*', '/V1/a', false],
    ['/v1/*', '/v1/../v2', false],
    ['/v1/*', '/v1/%2e%2e/v2', false],
    ['/v1/*', '/v1/.%2E/v2', false],
    ['/v1/*', '/v1/%2e%2e%2fv2', false],
    ['/v1/*', '/v1/a%2fb', false],
    ['/v1/*', '/v1/a%5cb', false],
    ['/v1/*', '/v1/a%252fb', false],
    ['/v1/*', '/v1//v2', false],
    ['/v1/*', '//v1/a', false],
    ['/v1/*', '/v1/..;/v2', false],
    ['/v1/*', '/v1/a;b=c/d', false],
    ['/v1/*', '/v1/%zz', false],
    ['/v1/*', '/v1/%00', false],
    ['/v1/*', '/%76%31/a', true],
    ['/a b/*', '/a%20b/c', true],
    ['/ä', '/%c3%a4', true],
    ['/v1', '/v1', true],
    ['/v1', '/v1?x=1', true],
    ['/v1', '/v1/', false],
    ['/', '/', true],
    ['/*', '/anything/below', true],
    ['/~me', '/%7Eme', true],
  ])('path %s is about %s: %s [G.02]', (path, given, isMeant) => {
    const rules = [allow({ host: 'example.com', path })]
    expect(effect({ rules }, request(`https://example.com${given}`))).toBe(isMeant ? 'allow' : 'deny')
  })

  it.each([
    '/admin',
    '/ADMIN',
    '/admin/',
    '/%61dmin',
    '/x/../admin',
    '/x//admin',
    '/admin;x',
    '/x%2f..%2fadmin',
    '/admin%2fx',
    '/admin/users',
  ])('that denies a path denies %s, however it is written [G.02]', (path) => {
    const rules = [allow({ host: 'example.com' }), deny({ host: 'example.com', path: '/admin/*' })]
    expect(effect({ rules }, request(`https://example.com${path}`))).toBe('deny')
    expect(effect({ rules }, request('https://example.com/other'))).toBe('allow')
  })
})

describe('the decision', () => {
  const target = request('https://api.example.com/v1')

  it('denies what no rule is about, or asks where the user says so [G.02]', () => {
    expect(effect({}, target)).toBe('deny')
    expect(effect({ otherwise: 'ask' }, target)).toBe('ask')
  })

  it('lets deny win over ask, and ask over allow, however narrow the rules are and wherever they come from [G.02]', () => {
    const wide = { host: '*.example.com' }
    const narrow = { host: 'api.example.com', path: '/v1', methods: ['GET'] }
    expect(effect({ rules: [allow(narrow), ask(wide)] }, target)).toBe('ask')
    expect(effect({ rules: [deny(wide)], run: [allow(narrow)] }, target)).toBe('deny')
    expect(effect({ rules: [allow(narrow)], run: [deny(wide)] }, target)).toBe('deny')
    expect(effect({ rules: [ask(narrow), deny(wide)], otherwise: 'ask' }, target)).toBe('deny')
  })

  it('names the rule, where it comes from and its reason [G.03]', () => {
    const rules = [deny({ host: '*.example.com', reason: 'not from here' })]
    expect(decide(policy({ rules }), target)).toMatchObject({
      rule: 'deny *.example.com: not from here (the configuration)',
      canAsk: false,
    })
    expect(
      decide(
        policy({
          run: [
            allow({ host: '*.example.com', ports: [443], schemes: ['https'], methods: ['GET'], path: '/v1' }),
          ],
        }),
        target,
      ).rule,
    ).toBe('allow https to *.example.com port 443, GET /v1 (this run’s own rules)')
  })

  it('lets an answer of a person settle what is asked or not allowed, never what is denied [G.02]', () => {
    const yes = [granted(allow({ host: 'api.example.com' }))]
    expect(decide(policy({}), target, yes)).toMatchObject({
      effect: 'allow',
      rule: expect.stringContaining('granted for this run'),
    })
    expect(decide(policy({ rules: [ask({ host: '*' })] }), target, yes).effect).toBe('allow')
    expect(decide(policy({ rules: [deny({ host: '*' })] }), target, yes).effect).toBe('deny')
    expect(decide(policy({ rules: [allow({ host: '*' })] }), target, yes).by?.origin).toBe('configuration')
    const narrow = [granted(allow({ host: 'api.example.com', path: '/v1' }))]
    expect(decide(policy({}), tunnel('api.example.com:443'), narrow).effect).toBe('deny')
  })

  it('reads a path once, however long it is and however many rules there are [G.02]', () => {
    const rules = Array.from({ length: 500 }, (_, index) =>
      index % 2 === 0
        ? allow({ host: 'example.com', path: `/${index}/*` })
        : deny({ host: 'example.com', path: `/${index}/*` }),
    )
    let reads = 0
    const { path, ...rest } = request(`https://example.com/${'a/'.repeat(2_000)}`)
    const long: Target = {
      ...rest,
      get path() {
        reads += 1
        return path
      },
    }
    expect(decide(policy({ rules }), long).effect).toBe('deny')
    expect(reads).toBeLessThan(5)
  })

  it('puts no address inside before a person, and none of this machine [G.02]', () => {
    for (const url of [
      'http://10.0.0.1/',
      'http://169.254.169.254/latest',
      'http://[fd00:ec2::254]/',
      'http://localhost/',
      'http://a.localhost/',
      'http://0/',
    ]) {
      const decision = decide(policy({ otherwise: 'ask', rules: [ask({ host: '*' })] }), request(url), [
        granted(allow({ host: request(url).host, schemes: ['http'] })),
      ])
      expect(decision, url).toMatchObject({ effect: 'deny', canAsk: false })
    }
    expect(decide(policy({ otherwise: 'ask' }), request('http://localhost/'))).toMatchObject({
      effect: 'deny',
      canAsk: false,
    })
    expect(
      effect({ rules: [allow({ host: '10.0.0.1', schemes: ['http'] })] }, request('http://10.0.0.1/')),
    ).toBe('allow')
  })
})

describe('where a permitted name leads', () => {
  const target = request('https://intranet.example.com/')
  const judge = (rules: EgressRule[], address: string, inside: string | null, to = target): string | null =>
    judgeResolved(policy({ rules }), to, address, inside)

  it('may be a public address, and one inside only by a rule for that very address [G.02]', () => {
    expect(judge([], '93.184.216.34', null)).toBeNull()
    expect(judge([allow({ host: '*' })], '10.0.0.1', 'a private network')).toMatch(
      /10\.0\.0\.1.*private network/,
    )
    expect(judge([allow({ host: '10.0.0.1' })], '10.0.0.1', 'a private network')).toBeNull()
    expect(
      judge([allow({ host: '10.0.0.1', ports: [8443] })], '10.0.0.1', 'a private network'),
    ).not.toBeNull()
    expect(judge([allow({ host: '10.0.0.2' })], '10.0.0.1', 'a private network')).not.toBeNull()
  })

  it('is no address that a rule denies or asks about [G.02]', () => {
    const denied = deny({ host: '93.184.216.34' })
    expect(judge([allow({ host: '*' }), denied], '93.184.216.34', null)).toContain('deny 93.184.216.34')
    expect(judge([ask({ host: '93.184.216.34' })], '93.184.216.34', null)).toContain('ask 93.184.216.34')
    expect(judge([denied, allow({ host: '93.184.216.34' })], '93.184.216.34', null)).not.toBeNull()
  })

  it('is no address that a rule denies, under its IPv6 spelling for networks without IPv4 either [G.02]', () => {
    const denied = deny({ host: '93.184.216.34' })
    expect(judge([denied], '64:ff9b::5db8:d822', null)).toContain('deny 93.184.216.34')
    expect(
      effect({ rules: [allow({ host: '*' }), denied] }, request('https://[64:ff9b::93.184.216.34]/')),
    ).toBe('deny')
    expect(
      effect({ rules: [allow({ host: '93.184.216.34' })] }, request('https://[64:ff9b::93.184.216.34]/')),
    ).toBe('deny')
  })

  it('is itself for an address, which the decision was about already [G.02]', () => {
    const literal = request('https://10.0.0.1/')
    expect(judge([ask({ host: '10.0.0.1' })], '10.0.0.1', 'a private network', literal)).toBeNull()
    expect(
      judge([allow({ host: '*' })], '93.184.216.34', 'this machine', request('https://93.184.216.34/')),
    ).toContain('this machine')
  })
})

describe('a refusal', () => {
  it('says what was refused, by which rule, and how to ask [G.03]', () => {
    const explain = (input: Input, target: Target): string =>
      explainRefusal(policy(input), target, decide(policy(input), target))
    expect(explain({}, request('https://example.com/a'))).toBe(
      'refused: GET https://example.com/a: no rule allows it. If the task needs it, ask with the tool request_access (url "https://example.com/a" and a reason); else do without it.',
    )
    expect(explain({}, tunnel('example.com:8443'))).toContain('CONNECT example.com:8443')
    const denied = explain(
      { rules: [deny({ host: '*', reason: 'closed today' })] },
      request('https://example.com/'),
    )
    expect(denied).toMatch(
      /“deny \*: closed today \(the configuration\)” denies it, and it cannot be allowed in this run/,
    )
    expect(denied).not.toContain('request_access')
    expect(explain({}, request('http://10.0.0.1/'))).toMatch(
      /10\.0\.0\.1 is an address of a private network; only a rule that names it, http and port 80 can allow it/,
    )
    expect(explain({}, request(`https://example.com/${'a'.repeat(5_000)}`)).length).toBeLessThan(1_000)
  })
})

describe('a policy with a bound', () => {
  it('denies what lies outside of it, also what is allowed or was granted, and judges the rest as before [A.07 G.02]', () => {
    const within = (...hosts: string[]) => {
      const rules = readEgressRules(
        hosts.map((host) => ({ effect: 'ask', host }) as const),
        'run',
        'hosts',
      )
      if (!rules.ok) throw new Error(rules.error)
      return {
        ...policy({ rules: [allow({ host: 'a.test' }), deny({ host: 'b.test' })] }),
        within: rules.value,
      }
    }
    const at = (url: string, ...hosts: string[]) =>
      decide(within(...hosts), request(url), [granted(allow({ host: 'c.test' }))])
    expect(at('https://a.test/').effect).toBe('deny')
    expect(at('https://a.test/', 'a.test').effect).toBe('allow')
    expect(at('https://b.test/', '*').effect).toBe('deny')
    expect(at('https://c.test/', 'a.test')).toMatchObject({ effect: 'deny', canAsk: false })
    expect(at('https://c.test/', '*.test').effect).toBe('allow')
    expect(explainRefusal(within(), request('https://a.test/'), at('https://a.test/'))).toContain(
      'this sub-agent may reach only the hosts that it was given. Do without it.',
    )
  })
})
