// The words of the project: what the check of words refuses in names, comments, messages and documents, and what to use.

/** Phrases that may not occur, and what to use. A phrase matches across case, camelCase, `_`, `-` and line breaks. */
export interface WordRule {
  readonly phrases: readonly string[]
  readonly use: string
}

/** A place where a phrase is right. An entry that no text needs is reported. */
export interface AllowedWord {
  readonly phrase: string
  /** Path, or the beginning of one that ends in `/`. Absent: any file. */
  readonly file?: string
  /** What the line has to match. Absent: any line. */
  readonly line?: RegExp
  readonly because: string
}

export interface Finding {
  readonly file: string
  readonly line: number
  readonly problem: string
}

export const rules: readonly WordRule[] = [
  { phrases: ['desk', 'desks'], use: 'approvals, service' },
  { phrases: ['nap', 'naps', 'doze', 'vigil', 'rouse', 'rouses'], use: 'hibernate, wake' },
  { phrases: ['asleep', 'falls asleep', 'sleeping vm'], use: 'hibernated; of a run: sleeping' },
  { phrases: ['knock', 'knocks'], use: 'session request' },
  { phrases: ['way out', 'ways out', 'outward'], use: 'network access, egress' },
  {
    phrases: [
      'come home',
      'comes home',
      'came home',
      'coming home',
      'home coming',
      'bring home',
      'brings home',
    ],
    use: 'merge changes, return',
  },
  { phrases: ['mend', 'mends', 'mended', 'mending', 'put right', 'puts right'], use: 'repair' },
  { phrases: ['slip', 'slips'], use: 'mistake' },
  { phrases: ['for ever'], use: 'permanently, forever' },
  { phrases: ['whosesoever', 'whatsoever', 'whomever'], use: 'any' },
  { phrases: ['is to be', 'are to be', 'was to be', 'were to be'], use: 'must be, should be, will be' },
  { phrases: ['all the same'], use: 'anyway, also' },
  { phrases: ['of which', 'out of which', 'wherein', 'thereof'], use: 'two sentences, "whose", "with"' },
  {
    phrases: ['is told', 'are told', 'was told', 'were told', 'be told'],
    use: 'receives, learns; or say who reports',
  },
  { phrases: ['begun anew', 'begin anew', 'begins anew', 'began anew'], use: 'restart, retry' },
  { phrases: ['takes back', 'taken back', 'take back', 'took back'], use: 'revoke, undo' },
  { phrases: ['goes on', 'go on', 'going on', 'went on', 'gone on'], use: 'continue' },
  { phrases: ['wish', 'wishes', 'wished'], use: 'request, option, requirement' },
  { phrases: ['foreign'], use: 'untrusted, other' },
  {
    phrases: ['had begun', 'begun before', 'nobody allowed', 'told to', 'told the'],
    use: 'the actor and the verb: "a second start", "was not approved", "receives"',
  },
  { phrases: ['shelf', 'shelves'], use: 'catalog' },
  { phrases: ['outlook', 'outlooks'], use: 'preview' },
  { phrases: ['lay', 'lays', 'laid', 'laying'], use: 'install, write, copy' },
  { phrases: ['the house', 'the room', 'rooms'], use: 'package, module; space, memory' },
  {
    phrases: [
      'analyse',
      'analysed',
      'behaviour',
      'catalogue',
      'colour',
      'colours',
      'favour',
      'honour',
      'learnt',
      'misspelt',
      'neighbour',
      'neighbours',
      'normalisation',
      'normalise',
      'normalised',
      'normalises',
      'optimise',
      'optimised',
      'recognise',
      'recognised',
      'recognises',
      'serialise',
      'serialised',
      'summarise',
      'summarised',
      'summarises',
      'tokeniser',
      'virtualisation',
    ],
    use: 'American spelling (but: cancelled)',
  },
]

export const allowed: readonly AllowedWord[] = [
  { phrase: 'laid', line: /laid (?:it )?out/, because: 'data is laid out on a disk or in memory' },
  { phrase: 'laying', line: /laying out/, because: 'data is laid out on a disk or in memory' },
  { phrase: 'go on', line: /"Go on\?"/, because: 'a person says it in an example' },
  {
    phrase: 'lays',
    line: /disk\.sh lays$|Lays an image out/,
    because: 'data is laid out on a disk or in memory',
  },
  { phrase: 'behaviour', line: /unsafeKeyBehaviour/, because: 'an option of smol-toml' },
  { phrase: 'desk', file: 'examples/', because: 'the example is an order desk' },
]

/** Longest line that holds a comment, in columns. */
const COMMENT_MAX_COLUMNS = 130
/** Longest sentence of the documents for people who use Caisson or begin to work on it, in words. */
const PAGE_MAX_WORDS = 25
/** The same of the contract and of the history. */
const SPEC_MAX_WORDS = 45
const pages = /^(?:docs\/|examples\/|README|AGENTS|CONTRIBUTING|SECURITY)/

/** Between the words of a phrase: spaces, a line break inside a comment or a quotation, or the joint of a name. */
const separator = String.raw`[\s*/#>_-]+`
const byPhrase = new Map(rules.flatMap(({ phrases, use }) => phrases.map((phrase) => [phrase, use] as const)))
const anyPhrase = new RegExp(
  // The longest phrase first: "is told" before "told".
  String.raw`(?<![\p{L}\p{N}]|\p{L}['’])(?:${[...byPhrase.keys()]
    .toSorted((a, b) => b.length - a.length)
    .map((phrase) => phrase.replaceAll(' ', separator))
    .join('|')})(?![\p{L}\p{N}]|['’]\p{L})`,
  'giu',
)

/** Forbidden words of a text and of its path (line 0). Adds the entries of {@link allowed} that it needs to `used`. */
export function findWords(file: string, text: string, used: Set<AllowedWord> = new Set()): Finding[] {
  const lines = text.split('\n')
  return [...matchesIn(file, 0), ...matchesIn(text, 1)].flatMap(({ phrase, line }) => {
    const content = lines[line - 1] ?? file
    const entry = allowed.find((one) => one.phrase === phrase && isAllowedAt(one, file, content))
    if (entry === undefined) return [{ file, line, problem: `"${phrase}": use ${byPhrase.get(phrase)}` }]
    used.add(entry)
    return []
  })
}

/** Comments of TypeScript that are wider than the limit. */
export function findWideComments(file: string, text: string): Finding[] {
  return text.split('\n').flatMap((content, index) => {
    const isWide = content.length > COMMENT_MAX_COLUMNS && /^\s*(?:\/\/|\/?\*)|[^:'"`]\/\/ /.test(content)
    const problem = `comment of ${content.length} columns: at most ${COMMENT_MAX_COLUMNS}`
    return isWide ? [{ file, line: index + 1, problem }] : []
  })
}

/** Sentences of a document that are longer than the limit. Code in backticks counts as one word. */
export function findLongSentences(file: string, text: string): Finding[] {
  const most = pages.test(file) ? PAGE_MAX_WORDS : SPEC_MAX_WORDS
  return blocksOf(text).flatMap(({ line, block }) =>
    sentencesOf(block).flatMap((sentence) => {
      const count = sentence.match(/[\p{L}\p{N}][\p{L}\p{N}'’/._-]*/gu)?.length ?? 0
      const problem = `sentence of ${count} words, at most ${most}: ${sentence.slice(0, 60)}`
      return count > most ? [{ file, line, problem }] : []
    }),
  )
}

/** Paragraphs, list items and table cells, without fenced code. */
function blocksOf(text: string): { line: number; block: string }[] {
  const withoutCode = text.replace(/^```[^\n]*\n[\s\S]*?^```/gm, (code) => code.replace(/[^\n]+/g, ''))
  const blocks: { line: number; block: string }[] = []
  let isOpen = false
  for (const [index, content] of withoutCode.split('\n').entries()) {
    const trimmed = content.trim()
    const last = blocks.at(-1)
    if (trimmed === '' || trimmed.startsWith('#')) isOpen = false
    else if (trimmed.startsWith('|')) {
      isOpen = false
      blocks.push(...trimmed.split(/(?<!\\)\|/).map((block) => ({ line: index + 1, block })))
    } else if (isOpen && last !== undefined && !/^(?:[-*]|\d+\.) /.test(trimmed)) last.block += ` ${trimmed}`
    else {
      isOpen = true
      blocks.push({ line: index + 1, block: trimmed.replace(/^(?:[-*]|\d+\.) /, '') })
    }
  }
  return blocks
}

function sentencesOf(block: string): string[] {
  return block
    .replace(/\]\([^)]*\)/g, ']')
    .replace(/`[^`]*`(?:, `[^`]*`)*/g, 'X')
    .replace(/\[[A-Z]\d*\.\d+[^\]]*\]/g, '')
    .split(/(?<=[.!?:]["”)]?\*{0,2})\s+(?=["“(*[]*[A-Z0-9])| · /)
}

function isAllowedAt(entry: AllowedWord, file: string, line: string): boolean {
  const { file: place = file } = entry
  const isPlace = place.endsWith('/') ? file.startsWith(place) : file === place
  return isPlace && (entry.line?.test(line) ?? true)
}

/** Phrases of a text; lines count from `firstLine`. */
function matchesIn(text: string, firstLine: number): { phrase: string; line: number }[] {
  // Parts names into words, and blanks escapes such as \n. It inserts no line break, so lines keep their numbers.
  const words = text.replace(/(?<=[a-z0-9])(?=[A-Z])|_|\\[nrt]/g, ' ')
  const found: { phrase: string; line: number }[] = []
  let line = firstLine
  let from = 0
  for (const { 0: match, index } of words.matchAll(anyPhrase)) {
    line += words.slice(from, index).split('\n').length - 1
    from = index
    found.push({ phrase: match.toLowerCase().replace(new RegExp(separator, 'g'), ' '), line })
  }
  return found
}
