/**
 * Where a person wants sub-agents: a clause that says no more than that is about all orders of the task; before an order, one
 * sub-agent is for that order, several are for it and all that follow.
 */

/** Cuts before words about sub-agents that stand behind an order: behind a comma, a quote or the name of a file. */
export const subAgentBoundary =
  '(?:\\s*,\\s*(?:and\\s+)?|\\s+and\\s+)(?=(?:a|another|one)\\s+sub-?agent\\s+(?:to|for)\\b)|' +
  '(?:\\s*,\\s*|(?<=\\uE001|\\w\\.\\w{1,8})\\s+)(?=(?:use|using|with|by|each|in\\s+parallel)\\b[^.;,\\n\\uE000]{0,40}\\bsub-?agents?\\b)'

export interface SubAgentRequest {
  /** Whether orders behind this one are meant too. */
  readonly isForRest: boolean
  /** What is to be done; empty: all that the task says. */
  readonly order: string
}

const agents =
  '(?:(?:(?:the|some|several|many|parallel|separate|own|its|a|an|another|one|two|three|four|five|six|seven|eight|\\d{1,2})\\s+)*' +
  '(?<one>sub-?agent)(?<more>s?))'
const manner =
  '(?:in\\s+parallel|at\\s+once|at\\s+the\\s+same\\s+time|each|one\\s+each|of\\s+(?:its|their)\\s+own)'
const what =
  '(?:this|that|it|them|these|each|all|everything|every|orders?|files?|parts?|ones?|steps?|of)(?:\\s+|$)'
const alone = new RegExp(
  `^(?:(?:do|run|carry\\s+out)\\s+(?:${what})+)?(?:${manner}\\s*,?\\s*)*(?:(?:use|using|with|by|in)\\s+)?${agents}(?:\\s*,?\\s*(?:${manner}|for\\s+(?:${what})+))*$`,
  'i',
)
const before = new RegExp(
  `^(?:(?:do|run|carry\\s+out)\\s+(?:${what})+)?(?:(?:use|using|with|have|let|ask)\\s+|in\\s+parallel\\s*,?\\s+(?:with|using)\\s+)?${agents}(?:\\s+${manner})*(?:\\s*[:,]\\s*|\\s+(?:to|for)\\s*:?\\s+|\\s+)(?:[-*]\\s+|\\d+[.)]\\s+)?(?<order>\\S.*)$`,
  'is',
)

/** Longer clauses are not looked at: patterns take time. */
const clauseMaxChars = 600

/** Null where the clause does not speak of sub-agents so. */
export function readSubAgentRequest(clause: string): SubAgentRequest | null {
  if (clause.length > clauseMaxChars) return null
  if (alone.test(clause)) return { isForRest: true, order: '' }
  const { more, order } = before.exec(clause)?.groups ?? {}
  return order === undefined ? null : { isForRest: more !== '', order }
}
