/**
 * Parses a task in English into intents, by rules over whole clauses. If no rule covers a clause from its first word to its
 * last, nothing at all is done: half of an order can be worse than none.
 */
import { pathsWritten, type UserIntent } from './intents.ts'
import { completePage, readPageOrder } from './page.ts'
import { type Clause, splitClauses } from './phrases.ts'
import { readQuestion } from './questions.ts'
import { groupsOf, resolvePath } from './rule-groups.ts'
import { rules } from './rules.ts'
import { readToolForm } from './tool-forms.ts'
import { type CsvContext, completeAnalysis, isAnalysisDetail, readAnalysis } from './understand-csv.ts'

type Understanding =
  | {
      ok: true
      intents: readonly UserIntent[]
      /** Indexes of the intents for sub-agents; absent: none. */
      byAgents?: ReadonlySet<number>
    }
  /** The clauses, as written, that no rule covers, or a question back. */
  | { ok: false; reason: string }

/** Longest clause that rules are tried on, without quoted text: orders are short, and patterns take time. */
const clauseMaxChars = 600

type Read = readonly UserIntent[] | { question: string } | null

/** @param workspace the listing, one `path (N bytes)` or `path/` a line */
export function understandTask(task: string, workspace: readonly string[]): Understanding {
  const paths = workspace.map((line) => line.replace(/ \(\d[^()]*\)$/, ''))
  const intents: UserIntent[] = []
  const unclear: string[] = []
  const requests = new SubAgentRequests()
  for (const written of splitClauses(task)) {
    const clause = requests.take(written, intents.length)
    if (clause === null) continue
    const previous = intents.at(-1)
    if (previous?.kind === 'analyze-csv' && isAnalysisDetail(clause)) {
      intents[intents.length - 1] = completeAnalysis(previous, clause)
      continue
    }
    const scene = { paths, last: lastPath(previous) }
    const page = completePage(previous, clause, scene)
    if (page !== null) {
      intents[intents.length - 1] = page
      continue
    }
    const read = readClause(clause, scene)
    if (read !== null && 'question' in read) return { ok: false, reason: read.question }
    if (read !== null) {
      for (const intent of read) {
        intents.push(intent)
        // Later orders can use what an earlier one creates.
        const isFolder = intent.kind === 'make-folder'
        paths.push(
          ...pathsWritten(intent).flatMap((path) => (path === '*' ? [] : [isFolder ? `${path}/` : path])),
        )
      }
    }
    if (read === null && !(previous !== undefined && isCourtesy(clause.text, previous)))
      unclear.push(clause.original)
  }
  if (unclear.length > 0) return { ok: false, reason: `not understood: ${unclear.join(' / ').slice(0, 400)}` }
  if (intents.length === 0) return { ok: false, reason: 'not understood: the task names nothing to do' }
  const byAgents = requests.among(intents.length)
  return { ok: true, intents, ...(byAgents.size === 0 ? {} : { byAgents }) }
}

/** Collects, clause by clause, which orders are for sub-agents. */
class SubAgentRequests {
  /** Each entry applies from its index until the next. */
  readonly #from = new Map<number, boolean>([[0, false]])
  #isForRest = false
  #isForAll = false

  /** The clause without its words about sub-agents; null when nothing else is left. */
  take(clause: Clause, place: number): Clause | null {
    const request = readSubAgentRequest(clause.text)
    if (request === null) {
      this.#from.set(place, this.#isForRest)
      return clause
    }
    if (request.order === '') this.#isForAll = true
    else this.#from.set(place, true)
    this.#isForRest ||= request.isForRest
    return request.order === '' ? null : { ...clause, text: request.order }
  }

  /** Indexes among `count` orders. */
  among(count: number): Set<number> {
    const places = new Set<number>()
    let isWanted = false
    for (let place = 0; place < count; place++) {
      isWanted = this.#from.get(place) ?? isWanted
      if (isWanted || this.#isForAll) places.add(place)
    }
    return places
  }
}

function readClause(clause: Clause, scene: CsvContext): Read {
  if (clause.text.length > clauseMaxChars) return null
  const page = readPageOrder(clause, scene)
  if (page !== null) return [page]
  const analysis = readAnalysis(clause, scene)
  if (analysis !== null) return analysis
  const question = readQuestion(clause.text, scene.paths)
  if (question !== null) return [question]
  for (const { pattern, make } of rules) {
    const match = pattern.exec(clause.text)
    if (match === null) continue
    const made = make(groupsOf(match, clause, scene), scene)
    if (made !== null) return [made].flat().map((intent) => withListedPath(intent, scene.paths))
  }
  const call = readToolForm(clause, scene)
  return call === null ? null : [call]
}

/** The intent with the listed path of the file that it works on, where the order names it by less. */
function withListedPath(intent: UserIntent, paths: readonly string[]): UserIntent {
  if (
    !('path' in intent) ||
    intent.path === undefined ||
    /^(create|make-folder|save-page)$/.test(intent.kind)
  )
    return intent
  return { ...intent, path: resolvePath(intent.path, paths) }
}

const asksBack =
  '(?:tell|show|give|report|explain|say|print|let)\\b(?:\\s+(?:me|us|back|it))*\\s*(?:know\\s+)?(?:the|what|which|how|when|about|a|its|your)?'
const thanks = new RegExp(
  `^(?:thanks?|thank you|cheers|${asksBack}.*\\b(?:results?|answer|did|done|happened|summary)|report|report back|that is all|be careful)$`,
  'i',
)
const asksForOutput = new RegExp(`^${asksBack}.*\\b(?:output|prints|found|number|count|total|says|it)$`, 'i')
/** Orders that show nothing of a file: "and tell me what it says" is another order then. */
const silentKinds = /^(?:create|append|replace|delete|delete-files|move|copy|make-folder|remember|ask)$/

/** Words that ask for nothing more than the order before gives. */
function isCourtesy(text: string, { kind }: UserIntent): boolean {
  return thanks.test(text) || (asksForOutput.test(text) && !silentKinds.test(kind))
}

function lastPath(intent: UserIntent | undefined): string | null {
  if (intent === undefined) return null
  if (intent.kind === 'move' || intent.kind === 'copy') return intent.to
  return 'path' in intent ? intent.path : null
}

interface SubAgentRequest {
  /** Whether it applies to later orders too. */
  readonly isForRest: boolean
  /** The order; empty: all orders of the task. */
  readonly order: string
}

const agents =
  '(((the|some|several|many|parallel|separate|own|its|a|an|another|one|two|three|four|five|six|seven|eight|\\d{1,2}) )*' +
  '(?<one>sub-?agent)(?<more>s?))'
const manner = '(in parallel|at once|at the same time|each|one each|of (its|their) own)'
const what = '(this|that|it|them|these|each|all|everything|every|orders?|files?|parts?|ones?|steps?|of)( |$)'
const alone = new RegExp(
  `^((do|run|carry out) (${what})+)?(${manner} ?,? ?)*((use|using|with|by|in) )?${agents}( ?,? ?(${manner}|for (${what})+))*$`,
  'i',
)
const before = new RegExp(
  `^((do|run|carry out) (${what})+)?((use|using|with|have|let|ask) |in parallel ?,? (with|using) )?${agents}( ${manner})*( ?[:,] ?| (to|for) ?:? | )([-*] |\\d+[.)] )?(?<order>\\S.*)$`,
  'is',
)

/**
 * Parses words about sub-agents. A clause of only these applies to all orders of the task. Before an order, one sub-agent is
 * for that order; several are for it and all that follow. Null for any other clause.
 */
function readSubAgentRequest(clause: string): SubAgentRequest | null {
  if (clause.length > clauseMaxChars) return null
  if (alone.test(clause)) return { isForRest: true, order: '' }
  const { more, order } = before.exec(clause)?.groups ?? {}
  return order === undefined ? null : { isForRest: more !== '', order }
}
