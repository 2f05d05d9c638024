// Rules, targets and decisions as the tests of the policy write them.
import type { EgressRule } from '#specs/protocol/egress.ts'
import { decide, type EgressPolicy, makePolicy } from '../../egress/policy.ts'
import { type RuleOrigin, readRule } from '../../egress/rules.ts'
import type { Target } from '../../net/target.ts'
import { parseAuthority, parseTarget } from '../../net/target.ts'

export type Input = { rules?: EgressRule[]; run?: EgressRule[]; otherwise?: 'deny' | 'ask' }

export function policy({ rules = [], run = [], otherwise = 'deny' }: Input): EgressPolicy {
  const made = makePolicy({ configuration: rules, run, otherwise })
  if (!made.ok) throw new Error(made.error)
  return made.value
}

export function request(url: string, method = 'GET'): Target {
  const parsed = parseTarget(url, method)
  if (!parsed.ok) throw new Error(parsed.error)
  return parsed.value
}

export function tunnel(authority: string): Target {
  const parsed = parseAuthority(authority)
  if (!parsed.ok) throw new Error(parsed.error)
  return parsed.value
}

export const granted = (rule: EgressRule, origin: RuleOrigin = 'grant-run') => {
  const read = readRule(rule, origin)
  if (!read.ok) throw new Error(read.error)
  return read.value
}

export const effect = (input: Input, target: Target): string => decide(policy(input), target).effect
export const allow = (rule: Omit<EgressRule, 'effect'>): EgressRule => ({ effect: 'allow', ...rule })
export const deny = (rule: Omit<EgressRule, 'effect'>): EgressRule => ({ effect: 'deny', ...rule })
export const ask = (rule: Omit<EgressRule, 'effect'>): EgressRule => ({ effect: 'ask', ...rule })
