/**
 * Approval rules that answer without a person: reads them from a file and matches requests. Only the read has effects.
 */
import { readFile } from 'node:fs/promises'
import { CaissonError } from '#specs/errors.ts'
import { reasonOf } from '#specs/node/file-error.ts'
import { type ApprovalRule, ApprovalRules } from '#specs/protocol/approval.ts'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { askTool } from '#specs/protocol/question.ts'
import { meantToolName } from '#specs/protocol/tool-names.ts'
import { type Call, commandTool, isForTool, parseArguments, type Ruling } from './calls.ts'
import { isForCommand, matchesCommand, readCommandCall, ruleCommand, spellsSeveral } from './command-rules.ts'
import { patchPaths } from './patch-paths.ts'
import { planTool } from './plan-question.ts'

/** Arguments that a rule without `argument` matches, by tool; default `path`. */
const mainArguments: ReadonlyMap<string, readonly string[]> = new Map([
  [commandTool, ['command']],
  ['run_javascript', ['code']],
  ['run_python', ['code']],
  ['move_file', ['from', 'to']],
  ['request_access', ['host']],
  [planTool, ['goal']],
  [mcpOfferTool, ['server']],
  [askTool, ['question']],
])

/** @throws {CaissonError} `invalid_rules` with the file and the invalid field */
export async function readApprovalRules(path: string): Promise<ApprovalRule[]> {
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
    refuseVoidRules(parsed.data.rules, path)
    return parsed.data.rules
  }
  throw new CaissonError('invalid_rules', `${path}: ${describeIssues(parsed.error, { root: 'the file' })}`)
}

/**
 * Refuses rules that would never apply: for a tool name that no call uses, and allow rules for several commands.
 * @param from source of the rules, for the message
 * @throws {CaissonError} `invalid_rules`
 */
export function refuseVoidRules(rules: readonly ApprovalRule[], from: string): void {
  for (const rule of rules) {
    const { effect, tool, pattern } = rule
    const meant = meantToolName(tool)
    if (meant !== undefined)
      throw new CaissonError('invalid_rules', `${from}: the tool ${tool} is called ${meant}: name it so`)
    if (effect === 'allow' && tool === commandTool && isForCommand(rule) && spellsSeveral(pattern ?? ''))
      throw new CaissonError(
        'invalid_rules',
        `${from}: the allow rule ${JSON.stringify(pattern)} never applies, because a rule allows one command. Write a rule for each of its commands`,
      )
  }
}

/**
 * The ruling: deny overrides ask, ask overrides allow; among equals the first rule. Undefined if none matches.
 * @param request its `arguments` are canonical JSON of an object
 */
export function matchRules(rules: readonly ApprovalRule[], request: Call): Ruling | undefined {
  const command = readCommandCall(request)
  const meant = rules.filter((rule) => isForTool(rule, request))
  const matching = meant.filter((rule) =>
    command !== undefined && isForCommand(rule) ? matchesCommand(rule, command) : matches(rule, request),
  )
  const first = (wanted: ApprovalRule['effect']) => matching.find(({ effect }) => effect === wanted)
  const strict = first('deny') ?? first('ask')
  if (strict !== undefined) return { effect: strict.effect, rules: [strict] }
  const allowing = first('allow')
  if (command !== undefined) return ruleCommand(meant, command, allowing)
  return allowing === undefined ? undefined : { effect: 'allow', rules: [allowing] }
}

type Argument = readonly [name: string, value: unknown]

function matches(rule: ApprovalRule, call: Call): boolean {
  const given = argumentsOf(call)
  const isAllow = rule.effect === 'allow'
  // A rule cannot allow a path that the host cannot determine.
  if (isAllow && given.some(([name, value]) => isPathArgument(name) && pathOf(value) === null)) return false
  const { pattern } = rule
  if (pattern === undefined) return true
  const matched = argumentsToMatch(rule, call.tool, given)
  // A deny or ask rule applies if its argument cannot be seen; an allow rule does not.
  if (matched.length === 0) return !isAllow
  return isAllow
    ? matched.every((argument) => fits(pattern, argument))
    : matched.some((argument) => mayFit(pattern, argument, call.tool))
}

/** The call's arguments; for a patch also its paths, as arguments named `path`. */
function argumentsOf(call: Call): Argument[] {
  const { tool } = call
  const given = parseArguments(call)
  const { patch } = given
  const paths = tool === 'apply_patch' && typeof patch === 'string' ? patchPaths(patch) : []
  return [...Object.entries(given), ...paths.map((path): Argument => ['path', path])]
}

/** The named argument, else the tool's main ones, else all. */
function argumentsToMatch(rule: ApprovalRule, tool: string, given: readonly Argument[]): Argument[] {
  const names = rule.argument === undefined ? (mainArguments.get(tool) ?? ['path']) : [rule.argument]
  const named = given.filter(([name]) => names.includes(name))
  // A rule for one argument ignores the others.
  if (rule.argument !== undefined || named.length >= names.length) return named
  return [...given]
}

/** Whether the argument matches the pattern; paths are normalized. */
function fits(pattern: string, [name, value]: Argument): boolean {
  if (!isPathArgument(name)) return matchesPattern(pattern, textOf(value))
  const path = pathOf(value)
  return path !== null && matchesPattern(plainPattern(pattern), path)
}

/** Whether the argument might match: a path in any spelling, an undetermined path, or an enclosing folder. */
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

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '')
}

/**
 * Tool names that require approval although the tool would not ask; `*` means all. Excludes plans and user questions,
 * which always reach the host.
 */
export function toolsNamedByRules(rules: readonly ApprovalRule[], allTools: readonly string[]): string[] {
  const isCall = (tool: string) => tool !== planTool && tool !== askTool && tool !== mcpOfferTool
  const strict = rules.filter(({ effect, tool }) => effect !== 'allow' && isCall(tool))
  if (strict.some((rule) => rule.tool === '*')) return allTools.filter(isCall)
  return [...new Set(strict.map((rule) => rule.tool))]
}

/** Mount point of the workspace in the guest; tools take paths below it, or relative to it. */
const guestWorkspace = ['mnt', 'workspace']

/** Arguments that every tool uses only for workspace paths. */
const pathArguments: ReadonlySet<string> = new Set(['path', 'from', 'to'])

/** Tools that act on a folder and all its contents. */
const wholeFolderTools: ReadonlySet<string> = new Set(['delete_file', 'move_file'])

/** Whether the argument `name` of a call is a path. */
function isPathArgument(name: string): boolean {
  return pathArguments.has(name)
}

/** Whether the tool, given a folder, acts on all its contents. */
function takesWholeFolders(tool: string): boolean {
  return wholeFolderTools.has(tool)
}

/**
 * The path relative to the workspace, without `.`, doubled or trailing slashes; `.` for the workspace itself. Null if
 * it is outside the workspace or contains `..`.
 */
function plainPath(path: string): string | null {
  const names = path.split('/').filter((name) => name !== '' && name !== '.')
  if (names.includes('..') || path.includes('\0')) return null
  if (path.startsWith('/') && !guestWorkspace.every((name) => names.shift() === name)) return null
  return names.length === 0 ? '.' : names.join('/')
}

/**
 * A pattern for normalized paths. A trailing slash stays, so that a preceding `*` matches no more; no normalized path
 * has one.
 */
function plainPattern(pattern: string): string {
  const plain = plainPath(pattern)
  if (plain === null) return pattern
  return pattern.endsWith('/') && plain !== '.' ? `${plain}/` : plain
}

/** All spellings of a normalized path that a pattern may use. */
function spellings(plain: string): string[] {
  const absolute = `/${guestWorkspace.join('/')}`
  return plain === '.'
    ? ['.', './', absolute, `${absolute}/`]
    : [plain, `./${plain}`, `${absolute}/${plain}`].flatMap((path) => [path, `${path}/`])
}
