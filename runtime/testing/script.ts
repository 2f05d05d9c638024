/**
 * Selects the reply for each request: in order, or by the first matching rule. Records requests and used replies, and
 * reports unused parts of the script. A request without a reply throws.
 */
import { CaissonError, errorMessage, requireObject } from '#specs/errors.ts'
import { describeReply, type ScriptedReply } from './replies.ts'
import { describeRequest, type ScriptedRequest } from './request.ts'

/** Conditions of a rule; all that are given must match. */
export interface ScriptedMatch {
  /** Part of the last user message, or a pattern for it. */
  readonly user?: string | RegExp
  /** Part of the final tool result, or a pattern for it. */
  readonly result?: string | RegExp
  /** An offered tool. */
  readonly tool?: string
  /** Number of assistant messages so far; 0 in a conversation's first request. */
  readonly turn?: number
  /** The plan step of Caisson's agent that the request concerns; `plan` for planning. */
  readonly step?: string
}

export interface ScriptedRule {
  /** Name in failures; default `rule 1` and so on. */
  readonly name?: string
  /** Absent: always matches. */
  readonly when?: ScriptedMatch | ((request: ScriptedRequest) => boolean)
  /**
   * A single reply is repeated as often as the rule matches; a list is used in order, after which the rule no longer
   * matches.
   */
  readonly reply: ScriptedReply | readonly ScriptedReply[] | ReplyMaker
  /** Exact number of uses of a single reply or a function. Absent: any number of times, at least once. */
  readonly times?: number
  /** Whether it may stay unused. */
  readonly optional?: boolean
}

export type ReplyMaker = (request: ScriptedRequest) => ScriptedReply | Promise<ScriptedReply>

export interface ReplyScript {
  /** Replies in this order, whatever the request. */
  readonly replies: readonly ScriptedReply[]
}

export interface RuleScript {
  /** The first matching rule answers. */
  readonly rules: readonly ScriptedRule[]
}

interface Line {
  readonly name: string
  readonly rule: ScriptedRule
  used: number
}

/** Maximum requests listed in a failure. */
const listedMaxCount = 40

export class Script {
  readonly requests: ScriptedRequest[] = []
  readonly #inTurn: boolean
  readonly #lines: readonly Line[]
  /** The outcome of each request, as text. */
  readonly #fates: string[] = []
  readonly #problems: string[] = []

  /** @throws {CaissonError} `invalid_options` for a script that is neither replies nor rules, or is empty. */
  constructor(source: ReplyScript | RuleScript) {
    requireObject('the script', source)
    const rules = 'rules' in source ? source.rules : repliesAsRule(source.replies)
    if (
      !Array.isArray(rules) ||
      rules.some((rule: Partial<ScriptedRule> | null | undefined) => rule?.reply === undefined)
    )
      throw new CaissonError(
        'invalid_options',
        'a scripted model needs `replies`, a list of replies, or `rules`, a list of rules with a `reply` each',
      )
    this.#inTurn = !('rules' in source)
    this.#lines = rules.map((rule, at) => ({ name: rule.name ?? `rule ${at + 1}`, rule, used: 0 }))
  }

  /** The reply to a request. @throws {CaissonError} `script_mismatch` when there is none. */
  async answer(request: ScriptedRequest): Promise<ScriptedReply> {
    this.requests.push(request)
    const line = this.#lines.find((one) => isLeft(one) && holds(one.rule.when, request))
    if (line === undefined) return this.#refuse(request, this.#whyNone())
    const at = line.used++
    const { reply } = line.rule
    this.#fates[request.index] = this.#inTurn ? `reply ${at + 1}` : line.name
    if (isList(reply)) return reply[at] ?? {}
    if (typeof reply !== 'function') return reply
    try {
      return await reply(request)
    } catch (cause) {
      const why = errorMessage(cause)
      return this.#refuse(request, `${line.name} threw: ${why}`, cause)
    }
  }

  /** Records a failure outside of the script, such as an unreadable request. */
  noteProblem(problem: string): void {
    this.#problems.push(problem)
  }

  /** @throws {CaissonError} `script_mismatch` when a request found no reply, or a reply or rule was not used. */
  assertDone(): void {
    const unused = this.#lines.flatMap((line) => this.#unusedOf(line))
    if (unused.length === 0 && this.#problems.length === 0) return
    const list = (lines: readonly string[]): string => lines.map((line) => `  - ${line}\n`).join('')
    throw new CaissonError(
      'script_mismatch',
      `the script of the model was not played as it is written\n` +
        (this.#problems.length === 0 ? '' : `requests without a reply:\n${list(this.#problems)}`) +
        (unused.length === 0 ? '' : `not used:\n${list(unused)}`) +
        `asked were, in this order:\n${list(this.#listed())}`,
    )
  }

  #unusedOf({ name, rule, used }: Line): string[] {
    const { reply, times, optional } = rule
    if (optional === true) return []
    if (isList(reply)) {
      const label = this.#inTurn ? '' : `${name}, `
      return reply
        .map((one, at) => `${label}reply ${at + 1} of ${reply.length}: ${describeReply(one)}`)
        .slice(used)
    }
    if (used >= (times ?? 1)) return []
    const said = typeof reply === 'function' ? 'a function' : describeReply(reply)
    return [`${name}${times === undefined ? '' : `, used ${used} of ${times} times`}: ${said}`]
  }

  #listed(): string[] {
    const { length } = this.requests
    const listed = this.requests
      .slice(0, listedMaxCount)
      .map((request, at) => `${describeRequest(request)} → ${this.#fates[at] ?? 'no reply'}`)
    if (length === 0) return ['nothing']
    return length > listedMaxCount ? [...listed, `and ${length - listedMaxCount} more`] : listed
  }

  #whyNone(): string {
    if (!this.#inTurn) return 'no rule holds for it'
    const { reply } = this.#lines[0]?.rule ?? { reply: [] }
    const { length } = isList(reply) ? reply : []
    return length === 0 ? 'there are no replies' : `all ${length} replies are used`
  }

  #refuse(request: ScriptedRequest, why: string, cause?: unknown): never {
    const problem = `request ${request.index + 1}: ${describeRequest(request)}: ${why}`
    this.#problems.push(problem)
    throw new CaissonError('script_mismatch', `the scripted model has no reply to ${problem}`, { cause })
  }
}

function repliesAsRule(replies: unknown): readonly ScriptedRule[] | null {
  return Array.isArray(replies) ? [{ reply: replies as readonly ScriptedReply[] }] : null
}

function isList(reply: ScriptedRule['reply']): reply is readonly ScriptedReply[] {
  return Array.isArray(reply)
}

function isLeft({ rule, used }: Line): boolean {
  return used < (isList(rule.reply) ? rule.reply.length : (rule.times ?? Number.POSITIVE_INFINITY))
}

function holds(when: ScriptedRule['when'], request: ScriptedRequest): boolean {
  if (when === undefined) return true
  if (typeof when === 'function') return when(request)
  const { user, result, tool, turn, step } = when
  return (
    (user === undefined || fits(user, request.lastUserText)) &&
    (result === undefined || (request.lastResult !== undefined && fits(result, request.lastResult))) &&
    (tool === undefined || request.tools.some(({ name }) => name === tool)) &&
    (turn === undefined || request.turn === turn) &&
    (step === undefined || request.step === step)
  )
}

function fits(wanted: string | RegExp, content: string): boolean {
  // `search` ignores the state of sticky and global patterns.
  return typeof wanted === 'string' ? content.includes(wanted) : content.search(wanted) >= 0
}
