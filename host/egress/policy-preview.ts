/**
 * What the policy would say of an address, for people who ask before a run does: the decision, the answers that hold for
 * always, and where the name leads. Nothing is connected to, and nobody is asked.
 */

import type { Target } from '../net/target.ts'
import { isAddress } from '../net/target.ts'
import { insideOf, oneSpelling } from './connect.ts'
import type { RunGrants } from './grants.ts'
import { type Decision, decide, judgeResolved, type Policy } from './policy.ts'
import type { Resolve } from './resolve.ts'

/** An address of the host, and the reason against it; null for none. */
export interface Lead {
  readonly address: string
  readonly problem: string | null
}

export interface PolicyPreview {
  readonly decision: Decision
  /** Empty where nothing was looked up: the decision is no, or the look-up failed. */
  readonly leads: readonly Lead[]
  /** Why the name could not be looked up. */
  readonly lookupProblem?: string
}

export interface OutlookParts {
  readonly policy: Policy
  /** Refreshed. */
  readonly grants: Pick<RunGrants, 'standing' | 'refusing'>
  readonly resolve: Resolve
  readonly signal: AbortSignal
}

/** Like a run would: a name is looked up only when it may be reached, or somebody may allow it. */
export async function outlookFor(
  target: Target,
  { policy, grants, resolve, signal }: OutlookParts,
): Promise<PolicyPreview> {
  const decision = decide(policy, target, grants.standing())
  const no = decision.effect === 'ask' ? grants.refusing(target) : undefined
  if (no !== undefined)
    return { decision: { effect: 'deny', rule: no.words, by: no, canAsk: false }, leads: [] }
  if (decision.effect === 'deny') return { decision, leads: [] }
  const found = isAddress(target.host)
    ? { ok: true as const, value: [target.host] }
    : await resolve(target.host, signal)
  if (!found.ok) return { decision, leads: [], lookupProblem: `${target.host} ${found.error.message}` }
  const leads = found.value.map(oneSpelling).map((address) => ({
    address,
    problem: judgeResolved(policy, target, address, insideOf(address)),
  }))
  return { decision, leads }
}

/** Whether the connection would be made without anybody being asked, as far as the name could be looked up. */
export function isOpen({ decision, leads }: PolicyPreview): boolean {
  return decision.effect === 'allow' && leads.every(({ problem }) => problem === null)
}
