// What holds of the policy for any rules and targets.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { type Decision, decide } from '../../egress/policy.ts'
import type { Target } from '../../net/target.ts'
import { granted, policy, request, tunnel } from './policy-support.ts'

describe('for any rules and targets', () => {
  const host = fc.constantFrom(
    'example.com',
    'a.example.com',
    '*.example.com',
    '*.com',
    '*',
    'evil.net',
    '1.1.1.1',
    '10.0.0.1',
  )
  const given = fc.constantFrom(
    'example.com',
    'a.example.com',
    'b.a.example.com',
    'evil.net',
    'com',
    '1.1.1.1',
    '10.0.0.1',
    'localhost',
  )
  const path = fc.constantFrom('/', '/a', '/a/b', '/a/', '/A', '/a//b', '/a%2fb', '/b?x')
  const optional = <T>(name: string, value: fc.Arbitrary<T>) =>
    fc.option(
      value.map((one) => ({ [name]: one })),
      { nil: {} },
    )
  const rule: fc.Arbitrary<EgressRule> = fc
    .tuple(
      fc.record({ effect: fc.constantFrom('allow' as const, 'ask' as const, 'deny' as const), host }),
      optional('ports', fc.constantFrom([443], [80], [443, 8443])),
      optional('schemes', fc.constantFrom(['https' as const], ['http' as const, 'https' as const])),
      optional('methods', fc.constantFrom(['GET'], ['GET', 'POST'])),
      optional('path', fc.constantFrom('/', '/a', '/a/*', '/*')),
    )
    .map((parts) => Object.assign({}, ...parts) as EgressRule)
  const target: fc.Arbitrary<Target> = fc.oneof(
    fc
      .tuple(
        fc.constantFrom('http', 'https'),
        given,
        fc.constantFrom('', ':443', ':8443'),
        path,
        fc.constantFrom('GET', 'POST'),
      )
      .map(([scheme, name, port, rest, method]) => request(`${scheme}://${name}${port}${rest}`, method)),
    fc.tuple(given, fc.constantFrom(443, 80, 8443)).map(([name, port]) => tunnel(`${name}:${port}`)),
  )
  const otherwise = fc.constantFrom('deny' as const, 'ask' as const)
  const rules = fc.array(rule, { maxLength: 6 })
  const runs = { seed: 4, numRuns: 2_000 }
  const rank = ({ effect }: Decision): number => ['deny', 'ask', 'allow'].indexOf(effect)

  it('one more deny rule never allows more, nor one more ask rule [G.02]', () => {
    fc.assert(
      fc.property(rules, rule, target, otherwise, (some, extra, to, rest) => {
        const before = decide(policy({ rules: some, otherwise: rest }), to)
        const withRule = (more: EgressRule) => decide(policy({ rules: [...some, more], otherwise: rest }), to)
        expect(rank(withRule({ ...extra, effect: 'deny' }))).toBeLessThanOrEqual(rank(before))
        if (before.effect === 'allow')
          expect(rank(withRule({ ...extra, effect: 'ask' }))).toBeLessThanOrEqual(rank(before))
        expect(rank(withRule({ ...extra, effect: 'ask' }))).toBeLessThanOrEqual(Math.max(rank(before), 1))
        if (before.effect === 'deny' && before.by !== null)
          expect(withRule({ ...extra, effect: 'allow' }).effect).toBe('deny')
      }),
      runs,
    )
  })

  it('the order of rules does not matter, nor where they come from [G.02]', () => {
    fc.assert(
      fc.property(
        rules.chain((some) =>
          fc.tuple(fc.constant(some), fc.shuffledSubarray(some, { minLength: some.length })),
        ),
        target,
        otherwise,
        ([some, shuffled], to, rest) => {
          const one = decide(policy({ rules: some, otherwise: rest }), to)
          expect(decide(policy({ rules: shuffled, otherwise: rest }), to)).toEqual(one)
          expect(decide(policy({ run: shuffled, otherwise: rest }), to).effect).toBe(one.effect)
        },
      ),
      runs,
    )
  })

  it('nothing is allowed but by an allow rule that is about it or an answer, and answers lift no deny [G.02]', () => {
    fc.assert(
      fc.property(rules, rule, target, otherwise, (some, extra, to, rest) => {
        const made = policy({ rules: some, otherwise: rest })
        const plain = decide(made, to)
        if (plain.effect === 'allow') expect(plain.by?.rule.effect).toBe('allow')
        const answered = decide(made, to, [granted({ ...extra, effect: 'allow' })])
        if (plain.effect === 'deny' && !plain.canAsk) expect(answered.effect).toBe('deny')
        expect(rank(answered)).toBeGreaterThanOrEqual(rank(plain))
        expect(decide(made, to, [granted({ ...extra, effect: 'deny' })])).toEqual(plain)
      }),
      runs,
    )
  })
})
