/** Lists the answers that a person can give about an address, and the rules that each answer becomes. Pure. */
import type { AccessQuestion } from '#specs/protocol/approval.ts'
import type { AccessReach, EgressRule } from '#specs/protocol/egress.ts'
import type { Target } from '../net/target.ts'
import { isAddress, targetUrl } from '../net/target.ts'
import { decide, type EgressPolicy } from './policy.ts'
import { readRule } from './rules.ts'
import { isClearPath, plainUrlPath } from './url-path.ts'

type Offer = AccessQuestion['offers'][number]

/** Maximum length of a path in an answer, in characters. */
const pathMaxChars = 200
const defaultPorts = { https: 443, http: 80 } as const

/** Answers that would allow the target, simplest first. Excludes answers that a rule denies anyway. */
export function offersFor(policy: EgressPolicy, target: Target): Offer[] {
  const reaches: readonly AccessReach[] = ['host', 'suffix', 'path']
  return reaches.flatMap((reach) => {
    const rules = rulesOf('allow', reach, target)
    const granted = rules.flatMap((rule) => {
      const read = readRule(rule, 'grant-run')
      return read.ok ? [read.value] : []
    })
    const isEffective = granted.length > 0 && decide(policy, target, granted).effect === 'allow'
    return isEffective ? [{ reach, allows: describe(reach, target) }] : []
  })
}

/** Rules of an answer; empty if the target has no such scope. */
export function rulesOf(effect: 'allow' | 'deny', reach: AccessReach, target: Target): EgressRule[] {
  const { scheme, host, port } = target
  const rule: EgressRule = {
    effect,
    host,
    // An omitted field is narrow in an allow rule and broad in a deny rule: the answer was about this one place.
    ...(effect === 'allow' && scheme === 'https' ? {} : { schemes: [scheme] }),
    ...(effect === 'allow' && port === defaultPorts[scheme] ? {} : { ports: [port] }),
  }
  if (reach === 'host') return [rule]
  if (reach === 'suffix') return hasNoOwner(host) ? [] : [rule, { ...rule, host: `*.${host}` }]
  const path = pathOf(target)
  return path === null ? [] : [{ ...rule, path: path.endsWith('/') ? `${path}*` : `${path}/*` }]
}

/** Names below an address do not exist; names below `com` or `co.uk` have many owners. */
function hasNoOwner(host: string): boolean {
  const isSuffix = !host.includes('.') || /^(?:ac|co|com|edu|gob|gov|mil|ne|net|or|org)\.[a-z]{2}$/.test(host)
  return isSuffix || isAddress(host)
}

/** Describes to people and the agent what an answer of this scope allows. */
export function describe(reach: AccessReach, target: Target): string {
  const { scheme, host, port } = target
  const connections = `${scheme} connections to ${host}`
  if (reach === 'host') return `${connections} (port ${port})`
  if (reach === 'suffix') return `${connections} and every name below it (port ${port})`
  const requests = `requests for ${targetUrl({ ...target, path: pathOf(target) })} and what is below it`
  // Programs use https through a tunnel, which hides the path.
  return scheme === 'https' ? `${requests}, by web_fetch alone` : requests
}

/** Null if the path is hidden, ambiguous, or too long for a rule. */
function pathOf({ path }: Target): string | null {
  if (path === null || !isClearPath(path)) return null
  const plain = plainUrlPath(path)
  return plain.length <= pathMaxChars ? plain : null
}
