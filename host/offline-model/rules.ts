/**
 * The rules of the offline model: patterns over a whole clause. The first that matches and makes an intent wins, so a rule
 * precedes those that would also match its words.
 */

import { readArithmetic } from './arithmetic.ts'
import { type ChoreName, kindOfFiles } from './chores.ts'
import { type CountUnit, countUnits, type UserIntent } from './intents.ts'
import { isQuoted, quotedPattern } from './phrases.ts'
import {
  called,
  everyFile,
  type Groups,
  inFolder,
  looksLikeFile,
  manyFiles,
  name,
  patternOf,
  quoted,
  resolvePath,
  target,
  text,
  the,
  value,
} from './rule-groups.ts'
import type { CsvContext } from './understand-csv.ts'

/** Null when the match is another order after all. */
type Maker = (groups: Groups, scene: CsvContext) => UserIntent | UserIntent[] | null

const rule = (make: Maker, ...patterns: string[]): readonly { pattern: RegExp; make: Maker }[] =>
  patterns.map((pattern) => ({ pattern: new RegExp(`^${pattern}$`, 'is'), make }))

/** The start of an order to count what a file holds. */
const countOf =
  '(count|how many|what is the number of|tell me (the number of|how many)) (the )?(number of )?(?<unit>lines|words|characters|chars|letters|bytes|rows|records) ((are|is|does|do|has|have|there|of|in) )*'
const everyOccurrence = '((all|every|each|the|any) )*((occurrences?|instances?) of )?'
const fileType = '((?<type>[\\w.*+-]+) )?'
const deletes = '(delete|remove|erase|rm|get rid of|throw away|clear out)'
/** A figure of a column, by the words that ask for it. */
const columnFigures: readonly (readonly [ChoreName, string])[] = [
  ['sum-column', 'sum|total'],
  ['average-column', 'average|mean'],
  ['largest-in-column', 'maximum|max|largest|highest|biggest|greatest'],
  ['smallest-in-column', 'minimum|min|smallest|lowest'],
]
const asksFigure =
  "((calculate|compute|work out|find|get|give me|tell me|show me|what is|what's|what are) )?((the|an) )?"
const column = `(the )?(?<column>${quoted}|[^\\s,;:"'\uE000\uE001]+)`
const everywhere = `( everywhere| (in|across|throughout|inside|within) ((the|this|my) )?(whole |entire )?(project|repo|repository|codebase|workspace)| (in|across|throughout|inside|within) ${manyFiles}${inFolder})`
const runs = '(run|execute|start|launch) '
const proposal = '(the proposal |proposal )?(?<proposal>PROP-[A-Za-z0-9._-]{0,63}[A-Za-z0-9_])'

export const rules = [
  ...rule(
    makeAddNote,
    `(add|write|put|attach) (a |this |the )?(governance )?note (to|for|on) ${proposal} ?[:,]? ?(?<note>.+)`,
  ),
  ...rule(
    (g) => ({ kind: 'list-notes', proposalId: proposalOf(g) }),
    `(list|show|show me|get|read|what are) (all )?(the )?(governance )?notes (of|for|on) ${proposal}`,
  ),
  ...rule(
    makeWebSearch,
    '(search|look) (on |in )?((the )?(web|internet|net)|online) for (?<query>.+)',
    '(do )?(a )?web search (for )?(?<query>.+)',
  ),
  ...rule(
    makeRemember,
    '(remember|keep in mind|memori[sz]e) ?((that|this|for (later|next time)) ?)*[:,]? (?<note>.+)',
    '(note that|(make|take) a note( that|:| of:)) (?<note>.+)',
  ),
  ...rule(
    makeRecall,
    '(what (do you|can you)|(tell|show) me what you|list what you) (remember|recall)( (about|of) (the |this )?(?<query>.+))?',
    'recall( (everything|all|(the )?notes)| (what (you know|is known) )?(about |of )?(the |this )?(?<query>.+))?',
  ),
  ...rule(
    (g) => ({ kind: 'use-skill', skill: g.text('skill') ?? '' }),
    `(load|use|open|show) (me )?${the}skill ${called}(?<skill>${name})`,
  ),
  ...rule(
    makeAsk,
    `ask (me|the user) ?:? ?(?<question>${quoted})( ?,? ?((?<confirm>yes or no)|((with|from|out of) )?${the}(options?|choices|answers|one of) ?:? ?(?<options>${quoted}( ?(,|or|and|, or|, and) ?${quoted})+)))?`,
  ),
  ...rule(
    (g) => ({ kind: 'make-folder', path: g.path('path') }),
    `(create|make|add|generate) ${the}(new )?(folder|directory) ${called}(?<path>${name})`,
  ),
  ...rule(
    makeProgram,
    `(create|write|make|generate) (me )?${the}((new|simple|small|short|little) )*(?<lang>python|node|javascript|js|bash|shell) (script|program|file)( (called|named) (?<path>${name}))?( and have it| that| which| to)? (prints?|outputs?|says?|displays?) ((the )?(text|words?|message) )?(?<said>${quoted}|hello,? world!?)`,
  ),
  ...rule(
    (g) => {
      const path = g.path('path')
      const given = ['content', 'said', 'fence'].filter((group) => g.has(group))
      const content =
        given.length === 0 ? '' : given.map((group) => g.text(group)).find((text) => text !== null)
      return content === undefined || !looksLikeFile(path, g.raw('path'))
        ? null
        : { kind: 'create', path, content }
    },
    `(create|make|write|add|generate|save|start|touch) (me )?${target('path')}( ?,? ?(and )?((with|containing|that contains|which contains|holding|put|write) (in it )?(the |this |these |just |only )?${value('content')}( (in|into) it)?|(that says|which says|saying|that reads|which reads|reading) ?:? ?(?<said>${quoted}|[^\uE000\uE001]+))| ?:? ?(?<fence>${quoted}))?`,
  ),
  ...rule(
    makeWrite,
    `(?<verb>write|put|save|store|insert) ${text('content')} (to|into|in|inside) ${target('path')}`,
  ),
  ...rule(
    (g) => {
      const [text, to] = [g.text('from') ?? '', g.text('to') ?? '']
      const pattern = kindsIn(g)
      return text === '' || pattern === null
        ? null
        : { kind: 'chore', chore: 'replace-in-files', text, to, pattern, path: g.folder() }
    },
    `(replace|change|substitute|rename) ${everyOccurrence}(the )?${value('from')} (with|by|to|into) (the )?${value('to')}${everywhere}`,
  ),
  ...rule(
    makeCommit,
    'commit ((it|everything|all|(all )?(of )?((the|my|our|these) )?(changes|work|files))( to git)? )?(with |using )?(the |a )?((commit )?message )?(?<said>\uE000\\d+\uE001)',
  ),
  ...lineRules(),
  ...rule(
    (g) => ({ kind: 'chore', chore: 'check-json', path: g.path('path') }),
    `(is|check (if|whether|that)) ${target('path')} (is )?(a )?(valid|correct|well[- ]formed)( json( file)?)?`,
    `validate (the json (in|of) )?${target('path')}`,
  ),
  ...rule(
    (g, scene) => ofEnding(g, scene, /\.json$/i, (path) => ({ kind: 'chore', chore: 'format-json', path })),
    `(format|pretty[- ]?print|prettify|indent|beautify|tidy( up)?|reformat) (the json (in|of) )?${target('path')}( nicely| properly)?`,
  ),
  ...rule(
    (g, scene) =>
      ofEnding(g, scene, /\.csv$/i, (path) => {
        const to = g.raw('to') === undefined ? path.replace(/\.csv$/i, '.json') : g.path('to')
        return /\.json$/i.test(to) ? { kind: 'chore', chore: 'csv-to-json', path, to } : null
      }),
    `(convert|turn|transform|change|export) ${target('path')} (to|into|as) ${the}(json( file)?( (called|named|as) (?<to>${name}))?)`,
    `(convert|turn|transform|change|export) ${target('path')} (to|into|as) (?<to>[^\\s,;:"'\uE000\uE001]+\\.json)`,
  ),
  ...columnRules(),
  ...rule(
    (g) => {
      const path = g.path('path')
      const to = g.raw('to') === undefined ? `${path}.zip` : g.path('to')
      return /\.zip$/.test(to) ? { kind: 'chore', chore: 'zip', path, to } : null
    },
    `(zip|compress|archive)( up)? ${target('path')}( (to|into|as|in) ${the}(zip( file)? )?${called}(?<to>${name}))?`,
    `(make|create) (a )?zip( file| archive)? (of|from|with) ${target('path')}( (called|named|as) (?<to>${name}))?`,
  ),
  ...rule(
    (g, scene) => {
      const path = resolvePath(g.path('path'), scene.paths)
      return { kind: 'copy', path, to: g.raw('to') === undefined ? `${path}.bak` : g.path('to') }
    },
    `(back ?up|(make|create|take|save) (a )?(backup|copy|backup copy) of|duplicate) ${target('path')}( ((called|named|to|as|in) )+(?<to>${name}))?`,
  ),
  ...rule(
    (g) =>
      ofManyFiles(g, (pattern) => {
        const to = g.path('to')
        const chore = /^(copy|cp)$/i.test(g.raw('verb') ?? '') ? 'copy-files' : 'move-files'
        return to === '' ? null : { kind: 'chore', chore, pattern, path: '.', to }
      }),
    `(?<verb>move|mv|put|copy|cp|collect) ${manyFiles} (into|to|in|inside) ${the}((new|separate) )?(folder |directory )?${called}(?<to>${name})( folder| directory)?`,
  ),
  ...rule(
    (g) =>
      ofManyFiles(g, (pattern) => {
        const path = g.folder()
        // All files of the workspace are more than anybody asks to delete.
        return pattern === '*' && path === '.' ? null : { kind: 'delete-files', pattern, path }
      }),
    `${deletes} ${manyFiles}${inFolder}`,
  ),
  ...rule(
    withText('from', (from, g) => ({ kind: 'replace', path: g.path('path'), from, to: g.text('to') ?? '' })),
    `(replace|change) ${everyOccurrence}(the )?${value('from')} (with|by|to|into) (the )?${value('to')} (everywhere )?(in|inside|within|of) ${target('path')}`,
    `(in|inside) ${target('path')} ?,? ?(replace|change) ${everyOccurrence}${value('from')} (with|by|to|into) (the )?${value('to')}`,
    `(remove|delete) ${everyOccurrence}((text|word|string|phrase) )?(?<from>${quoted}) (from|in) ${target('path')}`,
  ),
  ...rule(
    withText('content', (text, g) => ({ kind: 'append', path: g.path('path'), text }), true),
    `(append|add) ${text('content')} (to|at) (the (end|bottom) of )?${target('path')}`,
  ),
  ...rule(
    makeMove,
    `(?<verb>rename|move|mv|copy|duplicate|cp) ${target('path')} (to|as|into|in) ${the}(?<into>(folder|directory) )?${called}(?<to>${name})(?<into2> (folder|directory))?`,
  ),
  ...rule(makeDeletes, `${deletes} (?<names>.+)`),
  ...rule(
    withText('text', (text, g) => ({ kind: 'search', text, path: g.folder() })),
    `(search|look|grep|scan) ?((in|through|across)? ?${the}(all )?(files|workspace|code|project|everything|here)?) ?for (the )?${value('text')}${inFolder}`,
    `(search|grep|scan) (?!for\\b)${target('folder1')} for (the )?${value('text')}`,
    `find (me )?(all |every )?${the}((occurrences?|mentions?|uses?|instances?) of|lines? (with|containing)|where) ${value('text')}${inFolder}`,
    `(find|which|what|list|show me) (all )?(the )?files? (that |which )?(contain|contains|mention|mentions|containing|mentioning|have|use) (the )?${value('text')}${inFolder}`,
    `where (is|are|does|do we|do i) (define |use |call )?(the )?((function|class|method|variable|constant|type|component) )?${value('text')} (used|mentioned|defined|declared|called|implemented|appear|occur|found)${inFolder}`,
  ),
  ...rule(
    withText('text', (text, g) => ({ kind: 'occurrences', text, path: g.folder() })),
    `(count )?how (many times|often) ((does|do|is) )?(the )?${value('text')} (occurs?|appears?|used|mentioned|found)${inFolder}`,
    `count (the )?(number of )?(occurrences?|appearances|mentions) of (the )?${value('text')}${inFolder}`,
  ),
  ...rule(
    (g) => ({ kind: 'count-files', pattern: patternOf(g.raw('type')), path: g.folder() }),
    `(count|how many|what is the number of|tell me the number of) (of )?(the )?(number of )?(all )?(the )?${fileType}files?( (are|exist|do|does|there|we|i|have|is))*( here)?${inFolder}`,
  ),
  ...rule((g) => {
    const pattern = patternOf(g.raw('type') ?? g.raw('types'))
    return { kind: 'count-each', unit: unitOf(g), pattern, path: g.folder() }
  }, `${countOf}${everyFile}( (have|has|contain|contains))?${inFolder}`),
  ...rule(
    (g) => ({ kind: 'count', unit: unitOf(g), path: g.path('path') }),
    `${countOf}${target('path')}( (have|has|contain|contains))?`,
  ),
  ...rule(makeRead, `(read|show|print|display|cat|open|view) (me )?(the )?(contents? of )?${target('path')}`),
  ...rule(
    (g) => {
      const pattern = patternOf(g.raw('pattern') === undefined ? g.raw('type') : g.path('pattern'))
      return { kind: 'list', pattern, path: g.folder() }
    },
    `(list|show|display|print|ls|dir|enumerate)( me)? ?(all )?${the}(all )?${fileType}(files|contents|entries|everything)( and (folders|directories))?( (here|there))?${inFolder}`,
    `(what|which) ${fileType}files (are|exist|do you see|do i have)( (there|here|present))?${inFolder}`,
    `(ls|dir|list)( ${target('folder1')})?`,
    `find ${the}(all )?(the )?(files? )?(named|called|matching|ending (in|with)) (?<pattern>${name})${inFolder}`,
    `find (all )?(the )?(?<type>[\\w.*+-]+) files${inFolder}`,
  ),
  ...rule(
    withText('text', (text, g) => ({ kind: 'search', text, path: g.folder() })),
    `find (the )?((word|text|string|phrase) (?<textWord>${name})|(?<text>${quoted}))${inFolder}`,
  ),
  ...rule(
    (g, scene) => {
      const path = g.path('path')
      return scene.paths.includes(`${path}/`) ? { kind: 'list', pattern: '*', path } : null
    },
    `(what is|what's|what are the files|show me what is|tell me what is) (in|inside) ${target('path')}`,
  ),
  ...rule(makeRead, `what('s| is| does) (in |inside )?${target('path')}( (contain|say))?`),
  ...rule(
    withText('text', (text, g) => ({ kind: 'search', text, path: g.folder() })),
    `find (the )?(?<text>[^\\s,;:]+) in ${target('folder1')}`,
  ),
  ...rule(
    (_, scene) => (scene.last === null ? null : makeScript(scene.last, undefined)),
    `${runs}(it|that|the (script|program|file))`,
  ),
  ...rule((g) => makeRun(g, 'command'), `${runs}(the )?((shell|bash) )?(command|cmd) ?:? ?(?<command>.+)`),
  ...rule(
    (g) => makeScript(g.path('script'), g.raw('runner')),
    `${runs}(the )?(?<runner>python3?|bash|shell|sh|node)? ?(script|program|file) (called |named )?(?<script>${name})`,
  ),
  ...rule((g) => makeRun(g, 'any'), `${runs}(?<command>.+)`),
  ...rule(
    (g) => makeSum(g, false),
    "(calculate|compute|evaluate|work out|what is|what's|how much is|solve) (the )?((value|result) of )?(?<sum>.+)",
  ),
  ...rule((g) => makeSum(g, true), '(?<sum>.+)'),
  // Several words without quotes are no text of a file.
  ...rule(makeWebSearch, 'search for (?<query>[^\\s\uE000]+( [^\\s\uE000]+)+)'),
]

/** Not "put a.txt in docs", which moves a file, and not "insert a line in a.txt", which keeps the others. */
function makeWrite(g: Groups, { paths }: CsvContext): UserIntent | null {
  const path = g.path('path')
  const content = g.text('content')
  if (content === null || paths.includes(`${path}/`)) return null
  const word = g.raw('contentWord')
  if (word !== undefined && (looksLikeFile(word, word) || paths.includes(word))) return null
  const isOverwritten = paths.includes(resolvePath(path, paths))
  return isOverwritten && !/^(write|save)$/i.test(g.raw('verb') ?? '')
    ? null
    : { kind: 'create', path, content }
}

function withText(
  group: string,
  make: (text: string, groups: Groups) => UserIntent,
  isEmptyAllowed = false,
): Maker {
  return (g) => {
    const found = g.text(group)
    return found === null || (found === '' && !isEmptyAllowed) ? null : make(found, g)
  }
}

/** The kind of files of `manyFiles`; null for one that is not known. */
function kindsIn(g: Groups): string | null {
  const word = g.raw('glob') ?? g.raw('kind') ?? g.raw('kinds')
  return word === undefined || /^(all|every|each|any|of|the|my|our|these|those)$/i.test(word)
    ? '*'
    : kindOfFiles(word)
}

function ofManyFiles(g: Groups, make: (pattern: string) => UserIntent | null): UserIntent | null {
  const pattern = kindsIn(g)
  return pattern === null ? null : make(pattern)
}

function ofEnding(
  g: Groups,
  scene: CsvContext,
  ending: RegExp,
  make: (path: string) => UserIntent | null,
): UserIntent | null {
  const path = resolvePath(g.path('path'), scene.paths)
  return ending.test(path) ? make(path) : null
}

/** Orders about the numbers in a column of a CSV file. */
function columnRules() {
  const make =
    (chore: ChoreName): Maker =>
    (g, scene) => {
      const text = g.text('column')
      return text === null || text === ''
        ? null
        : ofEnding(g, scene, /\.csv$/i, (path) => ({ kind: 'chore', chore, path, text }))
    }
  return [
    ...rule(
      make('sum-column'),
      `(sum|add up|total)( up)? ${column}( column| values| numbers)? (of|in|from) ${target('path')}`,
    ),
    ...rule(
      make('average-column'),
      `average ${column}( column| values| numbers)? (of|in|from) ${target('path')}`,
    ),
    ...columnFigures.flatMap(([chore, words]) =>
      rule(
        make(chore),
        `${asksFigure}(${words})( values?| numbers?)?( of| in| for)? ${column}( column| values| numbers)? (of|in|from) ${target('path')}`,
        `${asksFigure}(${words})( values?| numbers?)? (of|in|for) (the )?column ${column} (of|in|from) ${target('path')}`,
      ),
    ),
  ]
}

/** Orders about the lines of a file. */
function lineRules() {
  const changes: readonly (readonly [ChoreName, string])[] = [
    [
      'reverse-sort-lines',
      `sort (the )?(lines (of|in) )?${target('path')} (in reverse( order)?|in descending order|backwards|descending|from z to a)`,
    ],
    [
      'sort-lines',
      `(sort|alphabeti[sz]e|order) (the )?(lines (of|in) )?${target('path')}( alphabetically| by name| in (alphabetical|ascending) order| from a to z)?`,
    ],
    [
      'unique-lines',
      `(remove|delete|drop) (all |any )?(the )?(duplicate|duplicated|repeated) lines (from|in|of) ${target('path')}`,
    ],
    ['unique-lines', `(dedupe|deduplicate) (the )?(lines (of|in) )?${target('path')}`],
    [
      'drop-empty-lines',
      `(remove|delete|drop|strip) (all |any )?(the )?(empty|blank) lines (from|in|of) ${target('path')}`,
    ],
    [
      'trim-lines',
      `(remove|delete|strip|trim) (all |any )?(the )?trailing (white ?space|spaces|blanks) (from|in|of) ${target('path')}`,
    ],
  ]
  const shows = '(show|print|give|display|read|what are|get|see) (me )?'
  return [
    ...changes.flatMap(([chore, pattern]) =>
      rule((g) => ({ kind: 'chore', chore, path: g.path('path') }), pattern),
    ),
    ...rule(
      (g) => {
        const chore = /^(last|bottom|final)$/i.test(g.raw('end') ?? '') ? 'last-lines' : 'first-lines'
        return { kind: 'chore', chore, path: g.path('path'), text: String(Number(g.raw('count') ?? 10)) }
      },
      `${shows}(the )?(?<end>first|last|top|bottom|final) ((?<count>[1-9]\\d{0,4}) )?lines? (of|in|from) ${target('path')}`,
      `(?<end>first|last) (?<count>[1-9]\\d{0,4}) lines? (of|in|from) ${target('path')}`,
    ),
  ]
}

const programsThatPrint: Readonly<Record<string, readonly [string, (text: string) => string]>> = {
  python: ['py', (text) => `print(${JSON.stringify(text)})\n`],
  javascript: ['js', (text) => `console.log(${JSON.stringify(text)})\n`],
  shell: ['sh', (text) => `printf '%s\\n' '${text.replaceAll("'", String.raw`'\''`)}'\n`],
}

/** A program that prints a text; it takes the place of no other file. */
function makeProgram(g: Groups, scene: CsvContext): UserIntent | null {
  const lang = (g.raw('lang') ?? '').toLowerCase()
  const kind = /^(node|js)$/.test(lang) ? 'javascript' : lang === 'bash' ? 'shell' : lang
  const [ending, write] = programsThatPrint[kind] ?? []
  const said = g.text('said')
  if (ending === undefined || write === undefined || said === null) return null
  const path =
    g.raw('path') === undefined ? `${/^hello/i.test(said) ? 'hello' : 'main'}.${ending}` : g.path('path')
  return scene.paths.includes(path) ? null : { kind: 'create', path, content: write(said) }
}

function makeCommit(g: Groups): UserIntent | null {
  const text = g.text('said')?.trim() ?? ''
  return text === '' ? null : { kind: 'chore', chore: 'commit', text }
}

function unitOf(g: Groups): CountUnit {
  const given = g.raw('unit')?.toLowerCase() ?? ''
  const wanted = { chars: 'characters', letters: 'characters', records: 'rows' }[given] ?? given
  return countUnits.find((known) => known === wanted) ?? 'lines'
}

function makeSum(g: Groups, isBare: boolean): UserIntent | null {
  const expression = readArithmetic(g.text('sum') ?? '')
  // A number alone asks for nothing.
  return expression === null || (isBare && !/[-+*/%(]/.test(expression))
    ? null
    : { kind: 'calculate', expression }
}

/** Requires at least two different options, if any. */
function makeAsk(g: Groups): UserIntent | null {
  const question = g.text('question')?.trim() ?? ''
  const marks = (g.raw('options') ?? '').match(new RegExp(quotedPattern, 'g')) ?? []
  const options = marks.map((mark) => g.text(`=${mark}`) ?? '')
  if (question === '' || options.includes('') || new Set(options).size < options.length) return null
  return { kind: 'ask', question, options, confirm: g.raw('confirm') !== undefined }
}

function makeMove(g: Groups, scene: CsvContext): UserIntent {
  const path = g.path('path')
  const to = g.path('to')
  const base = path.slice(path.lastIndexOf('/') + 1)
  const isFolder =
    g.raw('into') !== undefined ||
    g.raw('into2') !== undefined ||
    to.endsWith('/') ||
    scene.paths.includes(`${to}/`)
  const renamed = g.raw('verb')?.toLowerCase() === 'rename' && !to.includes('/') && path.includes('/')
  const place = isFolder
    ? `${to.replace(/\/+$/, '')}/${base}`
    : renamed
      ? `${path.slice(0, path.length - base.length)}${to}`
      : to
  return /^(copy|duplicate|cp)$/i.test(g.raw('verb') ?? '')
    ? { kind: 'copy', path, to: place }
    : { kind: 'move', path, to: place }
}

function makeDeletes(g: Groups): UserIntent[] | null {
  const parts = (g.raw('names') ?? '').split(/\s*(?:,\s*and\s+|,|\s+and\s+)\s*/)
  const one = new RegExp(`^${target('path')}$`, 'i')
  const names = parts.map((part) => one.exec(part)?.groups?.path)
  if (names.some((found) => found === undefined)) return null
  const paths = names.map((found) => g.path(`=${found}`))
  // A bare word such as "everything" is not a name to delete.
  const clear = paths.every(
    (path, index) =>
      looksLikeFile(path, names[index]) ||
      /\b(file|folder|directory)\b/i.test(parts[index] ?? '') ||
      /^(it|that)$/i.test(names[index] ?? ''),
  )
  return clear && paths.every((path) => path !== '') ? paths.map((path) => ({ kind: 'delete', path })) : null
}

function makeRead(g: Groups, scene: CsvContext): UserIntent | null {
  const path = resolvePath(g.path('path'), scene.paths)
  return looksLikeFile(path, g.raw('path')) ? { kind: 'read', path } : null
}

const programs =
  /^(awk|bash|cat|cp|curl|cut|date|df|diff|du|echo|env|file|find|git|grep|head|id|ls|make|md5sum|mkdir|mv|node|npm|npx|printf|pwd|python3?|rg|rm|sed|seq|sh|sha256sum|sort|tail|tar|tee|touch|tr|true|uname|uniq|wc|which|whoami|xargs)$/

function makeRun(g: Groups, how: 'command' | 'any'): UserIntent | null {
  const raw = g.raw('command') ?? ''
  const command = isQuoted(raw) ? (g.text('command') ?? '') : g.written('command')
  if (/^\S+\.(py|sh|js|mjs|cjs|ts)$/.test(command)) return makeScript(command, undefined)
  if (isQuoted(raw) || how === 'command') return { kind: 'run', command }
  const program = command.split(' ', 1)[0] ?? ''
  return programs.test(program) || program.startsWith('./') ? { kind: 'run', command } : null
}

/** By word of an order and by extension. */
const interpreters: Readonly<Record<string, string>> = {
  python: 'python3',
  python3: 'python3',
  py: 'python3',
  bash: 'bash',
  shell: 'bash',
  sh: 'bash',
  node: 'node',
  js: 'node',
  mjs: 'node',
  cjs: 'node',
  ts: 'node',
}

function makeScript(path: string, runner: string | undefined): UserIntent {
  const program = interpreters[runner?.toLowerCase() ?? /\.(\w+)$/.exec(path)?.[1] ?? '']
  const word = /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", String.raw`'\''`)}'`
  return {
    kind: 'run',
    command: program === undefined ? `./${word.replace(/^\.\//, '')}` : `${program} ${word}`,
  }
}

function proposalOf(g: Groups): string {
  return `PROP-${(g.raw('proposal') ?? '').slice('PROP-'.length)}`
}

function makeAddNote(g: Groups): UserIntent | null {
  const text = isQuoted(g.raw('note') ?? '') ? (g.text('note') ?? '') : g.written('note')
  return text.trim() === '' ? null : { kind: 'add-note', proposalId: proposalOf(g), text: text.trim() }
}

function makeWebSearch(g: Groups): UserIntent | null {
  const query = isQuoted(g.raw('query') ?? '') ? (g.text('query') ?? '') : g.written('query')
  return query.trim() === '' ? null : { kind: 'search-web', query: query.trim() }
}

/** The words as the user wrote them, without quotes around all of them. */
function makeRemember(g: Groups): UserIntent | null {
  const note = isQuoted(g.raw('note') ?? '') ? (g.text('note') ?? '') : g.written('note')
  return note.trim() === '' ? null : { kind: 'remember', note: note.trim() }
}

function makeRecall(g: Groups): UserIntent {
  const query = g.raw('query') ?? ''
  const isAll = query === '' || /^(?:workspace|project|folder|directory|everything|here|it)$/i.test(query)
  return {
    kind: 'recall',
    query: isAll ? '' : isQuoted(query) ? (g.text('query') ?? '') : g.written('query'),
  }
}
