/** Rules that answer approvals without a person: reading them from a file and matching a request. Pure but for the read. */
import { readFile } from 'node:fs/promises'
import { type ApprovalRequest, type ApprovalRule, ApprovalRules } from '#specs/protocol/approval.ts'

/** A rule file that cannot be used. */
export class RuleError extends Error {
  override readonly name = 'RuleError'
}

/** The argument that a rule without `argument` matches, by tool. */
const mainArguments: Readonly<Record<string, string>> = {
  run_bash: 'command',
  run_python: 'code',
  move_file: 'to',
}

/** @throws {RuleError} naming the file and the field that is wrong. */
export async function readRules(path: string): Promise<ApprovalRule[]> {
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    throw new RuleError(`cannot read the approval rules in ${path}`, { cause })
  })
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch (cause) {
    throw new RuleError(`${path} is not JSON: ${cause instanceof Error ? cause.message : ''}`, { cause })
  }
  const parsed = ApprovalRules.safeParse(json)
  if (parsed.success) return parsed.data.rules
  const issue = parsed.error.issues[0]
  throw new RuleError(
    `${path}: ${issue?.path.join('.') || 'the file'}: ${issue?.message ?? 'is not a rule file'}`,
  )
}

/**
 * The rule that decides: deny wins over ask, ask over allow; among equals the first. Undefined when none matches.
 * @param request its `arguments` are canonical JSON of an object
 */
export function matchRules(
  rules: readonly ApprovalRule[],
  request: Pick<ApprovalRequest, 'tool' | 'arguments'>,
): ApprovalRule | undefined {
  const matching = rules.filter((rule) => matches(rule, request))
  return (['deny', 'ask', 'allow'] as const).flatMap((effect) =>
    matching.filter((rule) => rule.effect === effect),
  )[0]
}

function matches(rule: ApprovalRule, request: Pick<ApprovalRequest, 'tool' | 'arguments'>): boolean {
  if (rule.tool !== '*' && rule.tool !== request.tool) return false
  const { pattern } = rule
  if (pattern === undefined) return true
  const values = textsOf(request, rule.argument)
  // A deny or ask that cannot see what it should match must not be passed by; an allow must not allow blindly.
  if (values.length === 0) return rule.effect !== 'allow'
  const fits = (value: string) => matchesPattern(pattern, value)
  return rule.effect === 'allow' ? values.every(fits) : values.some(fits)
}

/** The texts to match: the named argument, else the main one, else every text of the arguments. */
function textsOf(
  request: Pick<ApprovalRequest, 'tool' | 'arguments'>,
  argument: string | undefined,
): string[] {
  const parsed = parseObject(request.arguments)
  const name = argument ?? mainArguments[request.tool] ?? 'path'
  if (Object.hasOwn(parsed, name)) return [textOf(parsed[name])]
  return argument === undefined ? Object.values(parsed).map(textOf) : []
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

/**
 * `*` stands for any run of characters, line breaks included; all else for itself; the whole text must match.
 * Linear in the text, which may be hostile: a regular expression with several stars would not be.
 */
export function matchesPattern(pattern: string, text: string): boolean {
  const parts = pattern.split('*')
  const first = parts[0] ?? ''
  const last = parts.at(-1) ?? ''
  if (parts.length === 1) return text === pattern
  if (text.length < first.length + last.length || !text.startsWith(first) || !text.endsWith(last))
    return false
  let at = first.length
  for (const part of parts.slice(1, -1)) {
    const found = text.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
  }
  return at <= text.length - last.length
}

/** Names of tools that must be put before the host although they would not ask by themselves; `*` asks for all. */
export function toolsNamedByRules(rules: readonly ApprovalRule[], allTools: readonly string[]): string[] {
  const strict = rules.filter((rule) => rule.effect !== 'allow')
  if (strict.some((rule) => rule.tool === '*')) return [...allTools]
  return [...new Set(strict.map((rule) => rule.tool))]
}
