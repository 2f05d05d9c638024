/**
 * What people answered about ways out, as one run knows it: once, for the run, for always. A yes is a rule that settles
 * what would be asked or is not allowed; a no means that nobody is asked again. Neither changes what a rule decides.
 */
import { CaissonError } from '#specs/errors.ts'
import type { ApprovalScope } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { Target } from '../net/target.ts'
import type { PersistentGrants } from './persistent-grants.ts'
import { isAbout, type PolicyRule, type RuleOrigin, readRule } from './rules.ts'

/** Rules of answers that one run keeps; a person gives far fewer. */
const runMaxRules = 4_096

export class RunGrants {
  readonly #lasting: PersistentGrants
  readonly #runId: string
  /** Each lets one connection or request out. */
  readonly #once = new Set<readonly PolicyRule[]>()
  #run: readonly PolicyRule[] = []
  #always: readonly PolicyRule[] = []

  constructor(lasting: PersistentGrants, runId: string) {
    this.#lasting = lasting
    this.#runId = runId
  }

  /**
   * Looks what holds for always now: it may have been revoked.
   * @returns why that cannot be known; no such answer holds then
   */
  refresh(): string | null {
    this.#always = []
    try {
      this.#always = this.#lasting.list().map(({ id, rule }) => {
        const read = toAnswerRule(rule, 'grant-always')
        // One that is passed over could be a no.
        if (!read.ok)
          throw new CaissonError('state_corrupted', `${this.#lasting.file}: grant ${id}: ${read.error}`)
        return read.value
      })
      return null
    } catch (error) {
      if (error instanceof CaissonError) return error.message
      throw error
    }
  }

  /** Every yes that is not used up. */
  allowing(): PolicyRule[] {
    return [...this.#once].flat().concat(this.standing())
  }

  /** Every yes that holds more than once. */
  standing(): PolicyRule[] {
    return [...this.#run, ...this.#always].filter((rule) => rule.rule.effect === 'allow')
  }

  /** Every no that holds. */
  refusals(): PolicyRule[] {
    return [...this.#run, ...this.#always].filter((rule) => rule.rule.effect === 'deny')
  }

  /** The no that spares a person the question. */
  refusing(target: Target): PolicyRule | undefined {
    return this.refusals().find((rule) => isAbout(rule, target))
  }

  /** The yes has let something out. */
  use(rule: PolicyRule): void {
    for (const rules of this.#once) if (rules.includes(rule)) this.#once.delete(rules)
  }

  /** Makes an answer hold. @returns what went wrong: the answer then holds for less than `scope`, or not at all */
  async add(rules: readonly EgressRule[], scope: ApprovalScope): Promise<string | null> {
    const held: PolicyRule[] = []
    for (const rule of rules) {
      const read = toAnswerRule(rule, scope === 'once' ? 'grant-once' : 'grant-run')
      if (!read.ok) return read.error
      held.push(read.value)
    }
    if (this.#run.length + this.#once.size >= runMaxRules) return 'this run has too many answers already'
    if (scope === 'once') this.#once.add(held)
    else this.#run = [...this.#run, ...held]
    if (scope !== 'always') return null
    try {
      await this.#lasting.add(rules, this.#runId)
    } catch (error) {
      if (!(error instanceof CaissonError)) throw error
      return `it holds for this run alone: ${error.message}`
    }
    // From here on it is the kept one that holds, so that revoking it is enough.
    this.#run = this.#run.filter((rule) => !held.includes(rule))
    return this.refresh()
  }
}

/** The rule of an answer, with the words that name it to people. */
export function toAnswerRule(rule: EgressRule, origin: RuleOrigin): Result<PolicyRule, string> {
  const read = readRule(rule, origin)
  if (!read.ok || rule.effect !== 'deny') return read
  const when = origin === 'grant-always' ? 'for always' : 'for this run'
  return { ok: true, value: { ...read.value, words: `a person said no to ${rule.host} ${when}` } }
}
