/** Rules that answer approvals without a person: reading them from a file and matching a request. Pure but for the read. */

import { readFile } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { type ApprovalRequest, type ApprovalRule, ApprovalRules } from '#specs/protocol/approval.ts'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { askTool } from '#specs/protocol/question.ts'
import { meantToolName } from '#specs/protocol/tool-names.ts'
import { isPathArgument, plainPath, plainPattern, spellings, takesWholeFolders } from './call-paths.ts'
import { patchPaths } from './patch-paths.ts'
import { planTool } from './plan-question.ts'

/** The arguments that a rule without `argument` matches, by tool; of others `path`. */
const mainArguments: ReadonlyMap<string, readonly string[]> = new Map([
  ['run_bash', ['command']],
  ['run_python', ['code']],
  ['move_file', ['from', 'to']],
  ['request_access', ['host']],
  [planTool, ['goal']],
  [mcpOfferTool, ['server']],
  [askTool, ['question']],
])

/** @throws {CaissonError} `invalid_rules` naming the file and the field that is wrong. */
export async function readRules(path: string): Promise<ApprovalRule[]> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new CaissonError(
      'invalid_rules',
      `cannot read the approval rules in ${path}: ${reasonOf(cause)}. Expected ask, all, none or a file of rules`,
      { cause },
    )
  })
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (cause) {
    throw new CaissonError(
      'invalid_rules',
      `${path} is not JSON: ${cause instanceof Error ? cause.message : ''}`,
      { cause },
    )
  }
  const parsed = ApprovalRules.safeParse(json, plainMessages)
  if (parsed.success) {
    refuseOtherNames(parsed.data.rules, path)
    return parsed.data.rules
  }
  throw new CaissonError('invalid_rules', `${path}: ${describeIssues(parsed.error, { root: 'the file' })}`)
}

/**
 * A rule about a name that no call ever bears would leave open what it is to deny.
 * @param from where the rules stand, for the message. @throws {CaissonError} `invalid_rules`
 */
export function refuseOtherNames(rules: readonly ApprovalRule[], from: string): void {
  for (const { tool } of rules) {
    const meant = meantToolName(tool)
    if (meant !== undefined)
      throw new CaissonError('invalid_rules', `${from}: the tool ${tool} is called ${meant}: name it so`)
  }
}

/**
 * The rule that decides: deny wins over ask, ask over allow; among equals the first. Undefined when none matches.
 * @param request its `arguments` are canonical JSON of an object
 */
export function matchRules(rules: readonly ApprovalRule[], request: Call): ApprovalRule | undefined {
  const matching = rules.filter((rule) => matches(rule, request))
  return (['deny', 'ask', 'allow'] as const).flatMap((effect) =>
    matching.filter((rule) => rule.effect === effect),
  )[0]
}

/** What rules look at. */
export type Call = Pick<ApprovalRequest, 'tool' | 'arguments'>
type Argument = readonly [name: string, value: unknown]

function matches(rule: ApprovalRule, call: Call): boolean {
  if (rule.tool !== '*' && rule.tool !== call.tool) return false
  const given = argumentsOf(call)
  const isAllow = rule.effect === 'allow'
  // Nobody can allow in advance what leads to a place that the host cannot tell.
  if (isAllow && given.some(([name, value]) => isPathArgument(name) && pathOf(value) === null)) return false
  const { pattern } = rule
  if (pattern === undefined) return true
  const matched = argumentsToMatch(rule, call.tool, given)
  // A deny or ask that cannot see what it should match must not be passed by; an allow must not allow blindly.
  if (matched.length === 0) return !isAllow
  return isAllow
    ? matched.every((argument) => fits(pattern, argument))
    : matched.some((argument) => mayFit(pattern, argument, call.tool))
}

/** Those of the call; of a patch also the paths in it, as arguments named `path`. */
function argumentsOf({ tool, arguments: json }: Call): Argument[] {
  const given = parseObject(json)
  const { patch } = given
  const paths = tool === 'apply_patch' && typeof patch === 'string' ? patchPaths(patch) : []
  return [...Object.entries(given), ...paths.map((path): Argument => ['path', path])]
}

/** The named argument, else the tool's main ones, else all of them. */
function argumentsToMatch(rule: ApprovalRule, tool: string, given: readonly Argument[]): Argument[] {
  const names = rule.argument === undefined ? (mainArguments.get(tool) ?? ['path']) : [rule.argument]
  const named = given.filter(([name]) => names.includes(name))
  // A rule that speaks of one argument is not about the others.
  if (rule.argument !== undefined || named.length >= names.length) return named
  return [...given]
}

/** Whether the argument is what the pattern says; paths in their one spelling. */
function fits(pattern: string, [name, value]: Argument): boolean {
  if (!isPathArgument(name)) return matchesPattern(pattern, textOf(value))
  const path = pathOf(value)
  return path !== null && matchesPattern(plainPattern(pattern), path)
}

/** Whether it could be: a path in any spelling, one that the host cannot tell, or a folder around what is meant. */
function mayFit(pattern: string, [name, value]: Argument, tool: string): boolean {
  if (!isPathArgument(name)) return matchesPattern(pattern, textOf(value))
  const path = pathOf(value)
  if (path === null) return true
  const patterns = [pattern, plainPattern(pattern)]
  if (patterns.some((one) => [textOf(value), ...spellings(path)].some((text) => matchesPattern(one, text))))
    return true
  const head = plainPattern(pattern).split('*', 1)[0] ?? ''
  return takesWholeFolders(tool) && (path === '.' || head.startsWith(`${path}/`))
}

function pathOf(value: unknown): string | null {
  return typeof value === 'string' ? plainPath(value) : null
}

function parseObject(json: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(json)
    return typeof value === 'object' && value !== null ? { ...value } : {}
  } catch {
    return {}
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}

/** Names of tools that must be put before the host although they would not ask by themselves; `*` asks for all. A plan is no tool's call, and a question comes before the host as it is. */
export function toolsNamedByRules(rules: readonly ApprovalRule[], allTools: readonly string[]): string[] {
  const isCall = (tool: string) => tool !== planTool && tool !== askTool && tool !== mcpOfferTool
  const strict = rules.filter(({ effect, tool }) => effect !== 'allow' && isCall(tool))
  if (strict.some((rule) => rule.tool === '*')) return allTools.filter(isCall)
  return [...new Set(strict.map((rule) => rule.tool))]
}
