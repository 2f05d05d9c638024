/**
 * Previews the policy's decision about an address before a run: the decision, the permanent answers, and the resolved
 * addresses. Opens no connection and asks no one.
 */

import type { Target } from '../net/target.ts'
import { isAddress } from '../net/target.ts'
import { insideOf, oneSpelling } from './connect.ts'
import type { RunGrants } from './grants.ts'
import { type Decision, decide, type EgressPolicy, judgeResolved } from './policy.ts'
import type { Resolve } from './resolve.ts'

/** An address of the host, and the reason against it; null for none. */
interface ResolvedAddress {
  readonly address: string
  readonly problem: string | null
}

export interface PolicyPreview {
  readonly decision: Decision
  /** Empty if nothing was resolved: the decision is no, or the lookup failed. */
  readonly addresses: readonly ResolvedAddress[]
  /** Why the lookup failed. */
  readonly lookupProblem?: string
}

interface PreviewParts {
  readonly policy: EgressPolicy
  /** Already refreshed. */
  readonly grants: Pick<RunGrants, 'reusable' | 'refusing'>
  readonly resolve: Resolve
  readonly signal: AbortSignal
}

/** As in a run, a name is resolved only if it is allowed or a person may allow it. */
export async function previewAccess(
  target: Target,
  { policy, grants, resolve, signal }: PreviewParts,
): Promise<PolicyPreview> {
  const decision = decide(policy, target, grants.reusable())
  const no = decision.effect === 'ask' ? grants.refusing(target) : undefined
  if (no !== undefined)
    return { decision: { effect: 'deny', rule: no.text, by: no, canAsk: false }, addresses: [] }
  if (decision.effect === 'deny') return { decision, addresses: [] }
  const found = isAddress(target.host)
    ? { ok: true as const, value: [target.host] }
    : await resolve(target.host, signal)
  if (!found.ok) return { decision, addresses: [], lookupProblem: `${target.host} ${found.error.message}` }
  const addresses = found.value.map(oneSpelling).map((address) => ({
    address,
    problem: judgeResolved(policy, target, address, insideOf(address)),
  }))
  return { decision, addresses }
}

/** Whether the connection would be made without a question, as far as the name could be resolved. */
export function isOpen({ decision, addresses }: PolicyPreview): boolean {
  return decision.effect === 'allow' && addresses.every(({ problem }) => problem === null)
}
