/**
 * Requests that people word in many ways and that change no file by themselves: what is here, what changed, whether the tests
 * pass. Each topic has words that it needs and words that it allows; with any other word, `not` and `if` among them, the request
 * is of no topic.
 */
import { kindOfFiles } from './chores.ts'
import type { UserIntent } from './intents.ts'
import { quotedPattern } from './phrases.ts'

const words = (text: string): string[] => text.split(' ')

const common = words(
  'a an the this that these those my our your its it is are was were be am do does did have has had i we you me us there here ' +
    'what which whats show tell give list print display see get find check look take view let know all any every each in on at to from for ' +
    'with of by about inside within and please currently current right just some whole entire folder directory project repo repository ' +
    'codebase workspace app application code exactly actually quick quickly',
)

interface Topic {
  /** All of these must be found. */
  readonly needs: readonly RegExp[]
  /** Words besides the common ones. */
  readonly allows: string
  readonly not?: RegExp
  readonly make: (clause: string) => UserIntent | null
}

const place = 'folder|directory|project|repo|repository|codebase|workspace|app|application|code|here'
const chore =
  (name: Extract<UserIntent, { kind: 'chore' }>['chore'], fields: object = {}) =>
  (): UserIntent => ({ kind: 'chore', chore: name, ...fields })
const countIn = (clause: string, standard: string): string => {
  const found = /\b\d{1,3}\b/.exec(clause)?.[0]
  if (found !== undefined) return String(Math.max(1, Number(found)))
  const names = words('one two three four five six seven eight nine ten')
  const named = names.findIndex((name) => new RegExp(`\\b${name}\\b`).test(clause))
  return named < 0 ? standard : String(named + 1)
}
const numbers = 'one two three four five six seven eight nine ten'
const sinceCommit =
  /\b(since|after|from|to|against|compared|with|between)\b.*\b(last|latest|previous|recent)\b.*\bcommit\b/

const topics: readonly Topic[] = [
  {
    needs: [/^(help|what can (you|i|it|this)\b|what do you do|who are you|what are you)/],
    allows: 'help can who offline model able ask',
    make: () => ({ kind: 'help' }),
  },
  {
    needs: [/\btodos?\b|\bfixmes?\b/],
    allows: 'todo todos fixme fixmes comment comments note notes left where remaining open search files for',
    make: (clause) => ({ kind: 'search', text: /fixme/.test(clause) ? 'FIXME' : 'TODO', path: '.' }),
  },
  {
    needs: [/\b(lines?|loc)\b/, /\bcode\b|\bloc\b/, /\b(how|count|number|total)\b/],
    allows: 'how many much line lines loc number count total source',
    make: () => ({ kind: 'count-each', unit: 'lines', pattern: 'source', path: '.' }),
  },
  {
    needs: [
      new RegExp(`\\b(${place}|package|program)\\b`),
      /\b(does|do|about|overview|describe|explain|summarize|summary|purpose|for|understand|introduction)\b/,
      /\b(what|describe|explain|summarize|summary|overview|tell|understand)\b/,
    ],
    not: /\b(files?|have|has)\b|\bwhat (do|did) (i|we|you)\b|\b(is|are) there\b/,
    allows:
      'overview describe explain summarize summary purpose package program understand help short brief high level high-level introduction meant supposed readme',
    make: chore('overview'),
  },
  {
    needs: [
      /\b(tests?|specs?|test suite)\b/,
      /\b(run|rerun|execute|launch|start|pass|passing|green|succeed|fail|failing|broken|ok|work|working|test)\b/,
    ],
    not: /^(what|which) (is|are)? ?(the )?tests?$|\bdo (i|we|you) (have|test)\b|\bmake\b(?! sure)/,
    allows:
      'test tests spec specs suite unit run rerun execute launch start pass passes passing green succeed fail fails failing broken ok okay work working still whether make sure again if they them result results happens happen',
    make: chore('run-tests'),
  },
  {
    needs: [/\b(build|compile|compiles|builds)\b/],
    allows: 'build builds compile compiles run rerun execute start still whether if try it successfully',
    make: chore('build-project'),
  },
  {
    needs: [/\b(lint|linter|linting|style check)\b/],
    allows: 'lint linter linting style run execute start errors pass passes',
    make: chore('lint-project'),
  },
  {
    needs: [/\binstall\b/, /\b(dependencies|deps|packages|requirements|modules|everything)\b/],
    not: /\b(what|which|is|are|how)\b/,
    allows: 'install dependencies deps packages requirements modules needed needs required npm pip',
    make: chore('install-dependencies'),
  },
  {
    needs: [
      /\b(change|changes|changed|modified|diff|difference|differences|uncommitted|different|edited|status|altered|committed)\b/,
    ],
    not: /\b(make|any change to|by|who|when)\b|\bin the (last|latest|previous|most recent) commit\b/,
    allows:
      'change changes changed modified diff difference differences uncommitted unstaged different edited status altered since after compared between last latest previous most recent commit git file files line lines committed yet working tree made not now been anything something',
    make: (clause) =>
      /\b(last|latest|previous|recent)\b/.test(clause) && !sinceCommit.test(clause)
        ? null
        : /\bnot\b/.test(clause) && !/\bnot (yet )?(been )?committed\b/.test(clause)
          ? null
          : { kind: 'chore', chore: 'changes' },
  },
  {
    needs: [/\b(commits|git log|git history|commit history|history|commit log)\b/],
    not: /\b(not|uncommitted|changes?)\b/,
    allows: `commit commits git log history last latest recent most previous past ${numbers} of the messages`,
    make: (clause) => ({ kind: 'chore', chore: 'commits', text: countIn(clause, '10') }),
  },
  {
    needs: [/\b(last|latest|previous|recent)\b/, /\bcommit\b/],
    allows:
      'last latest previous recent most commit git who made make change changes changed what when did message author wrote in',
    make: chore('last-commit'),
  },
  {
    needs: [
      /\b(who|authors?|contributors?)\b/,
      /\b(wrote|written|authors?|contributors?|contributed|worked|made)\b/,
    ],
    allows:
      'who author authors contributor contributors wrote written contributed worked made git commits most',
    make: chore('authors'),
  },
  {
    needs: [/\b(branch|branches)\b/],
    allows: 'branch branches git exist checked out name names active',
    make: chore('branch'),
  },
  {
    needs: [/\b(duplicates?|duplicated|identical|same)\b/, /\b(files?|duplicates|copies|content|contents)\b/],
    not: /\b(delete|remove)\b/,
    allows: 'duplicate duplicates duplicated identical same file files copies content contents exist two',
    make: chore('duplicates', { path: '.' }),
  },
  {
    needs: [
      /\b(biggest|largest|heaviest|most)\b/,
      /\b(files?|space|disk)\b/,
      /\b(biggest|largest|heaviest|space|size)\b/,
    ],
    allows: `biggest largest heaviest most file files space disk takes take taking up uses use size top by sorted ${numbers}`,
    make: (clause) => ({
      kind: 'chore',
      chore: 'largest',
      text: countIn(clause, /\bfile\b/.test(clause) ? '1' : '10'),
      path: '.',
    }),
  },
  {
    needs: [/\b(big|large|size|space|heavy|disk usage)\b/, new RegExp(`\\b(${place}|files)\\b`)],
    allows: 'how big large size space disk usage much total heavy takes take up use uses used files together',
    make: chore('size', { path: '.' }),
  },
  {
    needs: [/\b(version|versions)\b/],
    allows:
      'version versions installed using use running run python python3 node nodejs node.js npm git bash go rust rustc cargo java ruby php gcc make pip',
    make: (clause) => {
      const program =
        /\b(python3|python|node\.js|nodejs|node|npm|git|bash|go|rustc|rust|cargo|java|ruby|php|gcc|make|pip)\b/.exec(
          clause,
        )?.[0]
      return program === undefined ? null : { kind: 'chore', chore: 'version', text: program }
    },
  },
  {
    needs: [/\b(dependencies|dependency|packages|libraries|deps)\b/],
    not: /\b(install|installed|update|outdated)\b/,
    allows:
      'dependencies dependency packages libraries deps depend depends on use uses used using need needs require requires required third-party external',
    make: chore('dependencies'),
  },
  {
    needs: [/\b(languages?|written)\b/, /\b(languages?|written in)\b/],
    allows: 'language languages programming written used use uses using',
    make: chore('languages', { pattern: 'source', path: '.' }),
  },
  {
    needs: [/\b(date|time|day)\b/, /\b(what|tell|show|print)\b/],
    not: /\b(files?|commit)\b/,
    allows: "date time day today today's now",
    make: chore('date'),
  },
  {
    needs: [
      new RegExp(`\\b(${place}|files|contents|everything|stuff)\\b`),
      /\b(what|which|list|show|see|look|print|display|tell|view|contents)\b/,
      /\b(in|inside|here|files|contents|structure|everything|stuff|list|around|at|holds?|contains?)\b/,
    ],
    not: /\b(for|about|does|did|do (this|the))\b/,
    allows:
      'files contents content stuff things everything around structure tree holds hold contain contains exist',
    make: () => ({ kind: 'list', pattern: '*', path: '.' }),
  },
]

const allowed = new Map(topics.map((topic) => [topic, new Set([...common, ...words(topic.allows)])]))

/** What a clause asks, by its words; null when it is about none of the topics. @param paths in the workspace as listed */
export function readQuestion(clause: string, paths: readonly string[]): UserIntent | null {
  if (clause.length > 200 || new RegExp(quotedPattern).test(clause)) return null
  const plain = expandShortForms(clause.toLowerCase()).replaceAll('summaris', 'summariz')
  const tokens = plain.split(/[\s,?!:;]+/).filter((token) => token !== '')
  // `list the files in app` is about the folder, if there is one of that name.
  const last = tokens.filter((token) => !/^(folder|directory)$/.test(token)).at(-1) ?? ''
  if (paths.includes(`${last}/`) && /\b(in|inside|of)\b/.test(plain)) return null
  for (const topic of topics) {
    const known = allowed.get(topic)
    if (!tokens.every((token) => known?.has(token) || /^\d{1,3}$/.test(token))) continue
    if (topic.needs.every((need) => need.test(plain)) && topic.not?.test(plain) !== true) {
      const made = topic.make(plain)
      if (made !== null) return made
    }
  }
  return readExistence(plain)
}

/** `what's` is `what is`. */
export function expandShortForms(text: string): string {
  return text
    .replaceAll(/\b(what|that|there|here|it|who|where|how)['’]s\b/gi, '$1 is')
    .replaceAll(/\bi['’]m\b/gi, 'i am')
    .replaceAll(
      /\b(we|you)['’](re|ve)\b/gi,
      (_, who: string, rest: string) => `${who} ${rest === 're' ? 'are' : 'have'}`,
    )
}

const existence =
  /^(?:is there|are there|do (?:i|we|you) have|does (?:it|this (?:project|repo|repository|folder|app)) have|have (?:i|we) got)(?: (?:a|an|any|some|the))? (?<word>[\w.-]+?)s?(?<file> files?)?(?: (?:here|in (?:here|this (?:folder|directory|project|repo|repository))|anywhere))?$/

function readExistence(clause: string): UserIntent | null {
  const { word, file } = existence.exec(clause)?.groups ?? {}
  if (word === undefined) return null
  const kind = kindOfFiles(word)
  if (kind !== null && file !== undefined) return { kind: 'count-files', pattern: kind, path: '.' }
  // Other things than files can be missing or there.
  const isFile =
    file !== undefined || /^(readme|license|licence|makefile|dockerfile|changelog|gitignore)$/.test(word)
  return isFile ? { kind: 'chore', chore: 'exists', path: '.', text: word } : null
}
