/**
 * Compiles egress rules for matching: canonical host, filled defaults, and a description for people. Refuses ambiguous
 * rules. `policy.ts` decides with them.
 */

import type * as z from 'zod'
import { behindNat64, hostInside } from '#specs/node/web/addresses.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Target } from '../net/target.ts'
import { isAddress, parseHost } from '../net/target.ts'
import { isClearPath, plainUrlPath } from './url-path.ts'

/** Source of a rule; grants are a person's answers. */
export type RuleOrigin = 'configuration' | 'run' | 'grant-once' | 'grant-run' | 'grant-always'

/** A compiled rule. */
export interface PolicyRule {
  readonly rule: EgressRule
  readonly origin: RuleOrigin
  readonly host: HostPattern
  /** In the form of {@link plainUrlPath}; null for any path. */
  readonly path: string | null
  /** For the person and the agent: the rule as written, and its source. */
  readonly text: string
}

export type HostPattern =
  | { readonly kind: 'address' | 'name' | 'below'; readonly value: string }
  | { readonly kind: 'any'; readonly value: '*' }

/** Ensures that a rule with its source fits in a journal line. */
const textMaxChars = 400

const originWords: Readonly<Record<RuleOrigin, string>> = {
  configuration: 'the configuration',
  run: 'this run’s own rules',
  'grant-once': 'granted once',
  'grant-run': 'granted for this run',
  'grant-always': 'granted permanently',
}

/** For schemas of rules: names the field that could be read in two ways. */
export function refuseUnreadable(rule: EgressRule, context: z.RefinementCtx): void {
  const host = readHostPattern(rule.host)
  const read = host.ok ? readRule(rule, 'run') : host
  if (!read.ok) context.addIssue({ code: 'custom', message: read.error, path: [host.ok ? 'path' : 'host'] })
}

/** @returns why the rule is invalid, with what to write instead */
export function readRule(rule: EgressRule, origin: RuleOrigin): Result<PolicyRule, string> {
  const host = readHostPattern(rule.host)
  if (!host.ok) return host
  if (rule.path !== undefined) {
    const problem = pathProblem(rule.path)
    if (problem !== null) return { ok: false, error: `path "${rule.path}": ${problem}` }
  }
  const path = rule.path === undefined ? null : plainUrlPath(rule.path)
  return {
    ok: true,
    value: { rule, origin, host: host.value, path, text: `${describeRule(rule)} (${originWords[origin]})` },
  }
}

/**
 * All rules, or the reason against the first invalid one.
 * @param place prefix of the reason, such as `egress.rules`
 */
export function readEgressRules(
  rules: readonly EgressRule[],
  origin: RuleOrigin,
  place: string,
): Result<PolicyRule[], string> {
  const ready: PolicyRule[] = []
  for (const [index, rule] of rules.entries()) {
    const read = readRule(rule, origin)
    if (!read.ok) return { ok: false, error: `${place}.${index}: ${read.error}` }
    ready.push(read.value)
  }
  return { ok: true, value: ready }
}

/**
 * Whether a rule matches a target. In doubt an allow rule does not match and any other does. Omitted fields are narrow
 * in an allow rule (https, the scheme's default port) and broad in a deny or ask rule.
 */
export function isAbout({ rule, host, path }: PolicyRule, target: Target): boolean {
  const isAllow = rule.effect === 'allow'
  return (
    matchesHost(host, target.host, rule.effect) &&
    fits(rule.schemes ?? (isAllow ? ['https'] : undefined), target.scheme) &&
    fits(rule.ports ?? (isAllow ? [target.scheme === 'https' ? 443 : 80] : undefined), target.port) &&
    matchesMethod(rule, target) &&
    (path === null || matchesPath(path, isAllow, target))
  )
}

/** Whether an allow rule would match the target if it were not a tunnel. */
export function isHiddenByTunnel(rule: PolicyRule, target: Target): boolean {
  const { methods: _, path: __, ...open } = rule.rule
  const isNarrow = rule.rule.methods !== undefined || rule.rule.path !== undefined
  return target.method === null && isNarrow && isAbout({ ...rule, rule: open, path: null }, target)
}

/** Strongest first: by effect, then by how specific the host is, then by the words; independent of the input order. */
export function orderRules(rules: readonly PolicyRule[]): PolicyRule[] {
  return rules.toSorted(
    (a, b) =>
      effects.indexOf(a.rule.effect) - effects.indexOf(b.rule.effect) ||
      kinds.indexOf(a.host.kind) - kinds.indexOf(b.host.kind) ||
      b.host.value.length - a.host.value.length ||
      (a.text < b.text ? -1 : 1),
  )
}

const effects: readonly string[] = ['deny', 'ask', 'allow']
const kinds: readonly string[] = ['address', 'name', 'below', 'any']

function matchesHost(pattern: HostPattern, host: string, effect: EgressRule['effect']): boolean {
  // Only its own literal allows a non-public address; any match denies it.
  if (pattern.kind === 'any') return effect === 'deny' || hostInside(host) === null
  // A name below an address would belong to another machine.
  if (pattern.kind === 'below') return !isAddress(host) && host.endsWith(`.${pattern.value}`)
  // A denied IPv4 address is also denied as the IPv6 address that leads to it.
  return host === pattern.value || (effect !== 'allow' && behindNat64(host) === pattern.value)
}

function matchesMethod({ effect, methods }: EgressRule, { method }: Target): boolean {
  if (methods === undefined) return true
  return method === null ? effect !== 'allow' : methods.includes(method)
}

/** Compares the decoded path. An ambiguous path matches no allow rule and every other rule. */
function matchesPath(pattern: string, isAllow: boolean, target: Target): boolean {
  const path = readPath(target)
  if (path === null) return !isAllow
  // Some servers ignore case: a path denied in one case is denied in all.
  const given = isAllow ? path.plain : path.folded
  const wanted = isAllow ? pattern : pattern.toLowerCase()
  if (!wanted.endsWith('/*')) return given === wanted
  return given === wanted.slice(0, -2) || given.startsWith(wanted.slice(0, -1))
}

type ReadPath = { readonly plain: string; readonly folded: string } | null
/** Parsed once for all rules, since both the path and the list may be long. */
const pathsRead = new WeakMap<Target, ReadPath>()

/** Null if the path is hidden or ambiguous. */
function readPath(target: Target): ReadPath {
  const known = pathsRead.get(target)
  if (known !== undefined) return known
  const { path } = target
  const plain = path !== null && isClearPath(path) ? plainUrlPath(path) : null
  const read = plain === null ? null : { plain, folded: plain.toLowerCase() }
  pathsRead.set(target, read)
  return read
}

function fits<T>(allowed: readonly T[] | undefined, value: T): boolean {
  return allowed === undefined || allowed.includes(value)
}

function readHostPattern(text: string): Result<HostPattern, string> {
  if (text === '*') return { ok: true, value: { kind: 'any', value: '*' } }
  const isBelow = text.startsWith('*.')
  const host = parseHost(isBelow ? text.slice(2) : text)
  if (!host.ok || (isBelow && isAddress(host.value))) {
    const expected =
      'expected a name (example.com), all names below one (*.example.com), an address, or *; ports, schemes and paths have fields of their own'
    return { ok: false, error: `host "${text}": ${expected}` }
  }
  const kind = isBelow ? 'below' : isAddress(host.value) ? 'address' : 'name'
  return { ok: true, value: { kind, value: host.value } }
}

function pathProblem(path: string): string | null {
  const plain = path.endsWith('/*') ? path.slice(0, -1) : path
  if (plain.includes('*')) return 'a * stands only at the end, behind a /: /v1/* is /v1 and all below it'
  if (/[?#]/.test(plain)) return 'a query or fragment is not compared; leave it out'
  if (!isClearPath(plainUrlPath(plain)))
    return 'servers read it in different ways (.., //, ;, an encoded slash); write it plainly'
  return null
}

/** `allow http and https to *.example.com port 8080, GET /v1/*: because` */
function describeRule({ effect, host, schemes, ports, methods, path, reason }: EgressRule): string {
  const parts = [
    `${effect}${schemes === undefined ? '' : ` ${[...new Set(schemes)].join(' and ')} to`} ${host}`,
    ...(ports === undefined ? [] : [`port ${ports.join(', ')}`]),
  ]
  const request = [methods?.join(' '), path].filter((part) => part !== undefined).join(' ')
  const whole = parts.join(' ') + (request === '' ? '' : `, ${request}`)
  const text = reason === undefined ? whole : `${whole}: ${reason}`
  return text.length <= textMaxChars ? text : `${text.slice(0, textMaxChars)}…`
}
