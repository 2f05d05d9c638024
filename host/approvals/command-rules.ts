/**
 * Matches patterns of rules with shell commands. An allow rule speaks of one simple command, and must name the files
 * that the command writes. A deny or ask rule applies to a text if it matches all of it, or any command in it.
 */
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { type Call, commandOf, isForTool, type Ruling } from './calls.ts'
import {
  type Redirection,
  type ShellCommand,
  type SplitCommand,
  splitShellCommand,
} from './shell-commands.ts'
import type { Word } from './shell-lexer.ts'

/** A command text as rules see it. */
export interface CommandText {
  readonly text: string
  readonly split: SplitCommand
  /** The whole text and, where they are known, its commands, in each spelling that a deny or ask rule may use. */
  readonly spellings: readonly string[]
}

/** Undefined for a call that is no command. */
export function readCommandCall(call: Call): CommandText | undefined {
  const text = commandOf(call)
  if (text === undefined) return undefined
  const split = splitShellCommand(text)
  const commands = split.isKnown ? split.commands.flatMap(spellingsOf) : []
  return { text, split, spellings: [...new Set([text, text.trim(), ...commands])] }
}

/** Whether the rule has a pattern for commands. */
export function isForCommand({ pattern, argument }: ApprovalRule): boolean {
  return pattern !== undefined && (argument ?? 'command') === 'command'
}

/** Whether the rule applies; an allow rule only if it allows the text as a whole, whatever it runs. */
export function matchesCommand(
  { effect, pattern = '*' }: ApprovalRule,
  { text, spellings }: CommandText,
): boolean {
  if (effect === 'allow') return matchesAnyText(pattern) || pattern === text
  return spellings.some((spelling) => matchesPattern(pattern, spelling))
}

/**
 * The ruling about a command that no deny or ask rule matches.
 * @param rules those for its tool
 * @param allowing the first rule that allows the text as a whole
 */
export function ruleCommand(
  rules: readonly ApprovalRule[],
  { text, split }: CommandText,
  allowing: ApprovalRule | undefined,
): Ruling | undefined {
  const own = rules.filter(isForCommand)
  const allowRules = own.filter(({ effect }) => effect === 'allow')
  if (split.isKnown) {
    if (allowing !== undefined) return { effect: 'allow', rules: [allowing] }
    const [first, ...more] = new Set(split.commands.map((command) => findAllowing(allowRules, command)))
    if (first === undefined || more.includes(undefined)) return undefined
    return { effect: 'allow', rules: [first, ...more.filter((rule) => rule !== undefined)] }
  }
  // What is not understood may hold what a deny or ask rule means. Only a rule for exactly this text knows better.
  const exact = allowRules.find(({ pattern }) => pattern === text)
  const strict = own.find(({ effect }) => effect !== 'allow')
  if (exact === undefined && strict !== undefined) return { effect: 'ask', rules: [strict], isUnsure: true }
  const whole = exact ?? allowing
  return whole === undefined ? undefined : { effect: 'allow', rules: [whole] }
}

/** Why the rules for commands leave a call to a person, for people; undefined if they do not, or say nothing of it. */
export function explainCommand(rules: readonly ApprovalRule[], call: Call): string | undefined {
  const command = readCommandCall(call)
  const own = rules.filter((rule) => isForTool(rule, call) && isForCommand(rule))
  if (command === undefined || own.length === 0) return undefined
  if (own.some((rule) => rule.effect !== 'allow' && matchesCommand(rule, command))) return undefined
  const { split } = command
  if (!split.isKnown) return `Caisson cannot tell which commands this runs: there is ${split.doubt}`
  const allowRules = own.filter(({ effect }) => effect === 'allow')
  const unallowed = split.commands.find((one) => findAllowing(allowRules, one) === undefined)
  return unallowed === undefined || allowRules.length === 0
    ? undefined
    : `no rule allows: ${showCommand(unallowed)}`
}

/** The first allow rule that allows the simple command. */
function findAllowing(rules: readonly ApprovalRule[], command: ShellCommand): ApprovalRule | undefined {
  const { words, writes } = command
  const inputs = inputsOf(command)
  const spellings = [words.map(({ raw }) => raw), words.map(showWord)].map((parts) =>
    [...parts, ...inputs].join(' '),
  )
  return rules.find(({ pattern = '*' }) => {
    const [head = '', ...named] = writes.length === 0 ? [pattern] : pattern.split(writeOperator)
    return (
      named.length === 2 * writes.length &&
      spellings.some((spelling) => matchesPattern(head, spelling)) &&
      writes.every((write, at) => namesFile(named[2 * at], named[2 * at + 1], write))
    )
  })
}

/** A redirection in a pattern; `split` returns its operator too. */
const writeOperator = /[ \t]+1?((?:&|2)?>>?)[ \t]*/

function namesFile(operator: string | undefined, pattern = '', { operator: given, target }: Redirection) {
  // A star must not lead out of the folder before it.
  const mayFit = !pattern.includes('*') || !target.split('/').includes('..')
  return operator === given && mayFit && [target, quote(target)].some((text) => matchesPattern(pattern, text))
}

/** Whether no command can match the pattern of an allow rule: it spells several commands, and a rule allows one. */
export function spellsSeveral(pattern: string): boolean {
  if (!pattern.includes('*') || matchesAnyText(pattern)) return false
  const split = splitShellCommand(pattern)
  return split.isKnown && split.commands.length > 1
}

/** The command as allow rules and people read it. */
export function showCommand(command: ShellCommand): string {
  return [...command.words.map(showWord), ...inputsOf(command), ...outputsOf(command)].join(' ')
}

function matchesAnyText(pattern: string): boolean {
  return /^\*+$/.test(pattern)
}

/** A deny or ask rule may leave out quotes, redirections and the folder of the program. */
function spellingsOf(command: ShellCommand): readonly string[] {
  const { words, source } = command
  const [{ raw, literal }, ...given] = words
  const base = (literal ?? raw).replace(/^.*\//s, '')
  const spellings = [
    words.map((word) => word.raw),
    words.map(showWord),
    words.map((word) => word.literal ?? word.raw),
    [base, ...given.map((word) => word.raw)],
    [base, ...given.map(showWord)],
    [base, ...given.map((word) => word.literal ?? word.raw)],
  ]
  const inputs = inputsOf(command)
  const outputs = outputsOf(command)
  const whole = spellings.flatMap((parts) => [
    parts,
    [...parts, ...inputs],
    [...parts, ...inputs, ...outputs],
  ])
  return [source, ...whole.map((parts) => parts.join(' '))]
}

function inputsOf({ reads }: ShellCommand): string[] {
  return reads.map((file) => `< ${quote(file)}`)
}

function outputsOf({ writes }: ShellCommand): string[] {
  return writes.map(({ operator, target }) => `${operator} ${quote(target)}`)
}

/** Quoted only where needed; what bash would expand stays as written. */
function showWord({ raw, literal }: Word): string {
  return literal === null ? raw : quote(literal)
}

function quote(text: string): string {
  return /^[\p{L}\p{N}\p{M}_./:,+=@%^-]+$/u.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`
}
