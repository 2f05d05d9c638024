/**
 * Answers about network access as one run knows them: once, for the run, or always. A yes allows what would be asked or
 * is not covered; a no prevents further questions. Neither overrides a rule's decision.
 */
import { CaissonError } from '#specs/errors.ts'
import type { ApprovalScope } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { NetworkAnswer } from '../approvals/run-answers.ts'
import { parseTarget, type Target } from '../net/target.ts'
import { rulesOf } from './access-options.ts'
import type { PersistentGrants } from './persistent-grants.ts'
import { isAbout, type PolicyRule, type RuleOrigin, readRule } from './rules.ts'

/** Maximum rules of answers in one run; a person gives far fewer. */
const runMaxRules = 4_096

export class RunGrants {
  readonly #lasting: PersistentGrants
  readonly #runId: string
  readonly #ofPeople: () => readonly NetworkAnswer[]
  readonly #compiled = new WeakMap<NetworkAnswer, readonly PolicyRule[]>()
  /** Each allows one connection or request. */
  readonly #once = new Set<readonly PolicyRule[]>()
  /** By rules about approvals, and what could not be stored. */
  #run: readonly PolicyRule[] = []
  #always: readonly PolicyRule[] = []

  /** @param ofPeople what people answered for the run and did not revoke */
  constructor(lasting: PersistentGrants, runId: string, ofPeople: () => readonly NetworkAnswer[]) {
    this.#ofPeople = ofPeople
    this.#lasting = lasting
    this.#runId = runId
  }

  /**
   * Reloads the permanent answers, since they may have been revoked.
   * @returns why they cannot be read; none is then in effect
   */
  refresh(): string | null {
    this.#always = []
    try {
      this.#always = this.#lasting.list().map(({ id, rule }) => {
        const read = toAnswerRule(rule, 'grant-always')
        // A skipped answer might be a no.
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

  /** All allowing answers that are not consumed. */
  allowing(): PolicyRule[] {
    return [...this.#once].flat().concat(this.reusable())
  }

  /** All allowing answers for more than one use. */
  reusable(): PolicyRule[] {
    return this.#forMore().filter((rule) => rule.rule.effect === 'allow')
  }

  /** All denying answers. */
  refusals(): PolicyRule[] {
    return this.#forMore().filter((rule) => rule.rule.effect === 'deny')
  }

  /** The denying answer that makes a question unnecessary. */
  refusing(target: Target): PolicyRule | undefined {
    return this.refusals().find((rule) => isAbout(rule, target))
  }

  /** The answer allowed a connection. */
  use(rule: PolicyRule): void {
    for (const rules of this.#once) if (rules.includes(rule)) this.#once.delete(rules)
  }

  /**
   * Stores an answer.
   * @returns the problem: the answer then lasts for less than `scope`, or not at all
   */
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
    // From now on the stored answer is used, so that revoking it is enough.
    this.#run = this.#run.filter((rule) => !held.includes(rule))
    return this.refresh()
  }

  #forMore(): PolicyRule[] {
    return [...this.#ofPeople().flatMap((answer) => this.#rulesOf(answer)), ...this.#run, ...this.#always]
  }

  #rulesOf(answer: NetworkAnswer): readonly PolicyRule[] {
    const known = this.#compiled.get(answer)
    if (known !== undefined) return known
    const target = parseTarget(answer.address, 'GET')
    const rules = target.ok ? rulesOf(answer.decision, answer.reach, target.value) : []
    const compiled = rules.flatMap((rule) => {
      const read = toAnswerRule(rule, 'grant-run')
      return read.ok ? [read.value] : []
    })
    this.#compiled.set(answer, compiled)
    return compiled
  }
}

/** The rule of an answer, with its wording for people. */
export function toAnswerRule(rule: EgressRule, origin: RuleOrigin): Result<PolicyRule, string> {
  const read = readRule(rule, origin)
  if (!read.ok || rule.effect !== 'deny') return read
  const when = origin === 'grant-always' ? 'permanently' : 'for this run'
  return { ok: true, value: { ...read.value, text: `the user denied ${rule.host} ${when}` } }
}
