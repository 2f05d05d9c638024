/**
 * The rules of the offline model: one pattern per order, over a whole clause. The first that fits and makes an intent wins,
 * so a rule stands before those that would also take its words.
 */
import { readArithmetic } from './arithmetic.ts'
import { type CountUnit, countUnits, type Intent } from './intents.ts'
import { type Groups, looksLikeFile, patternOf } from './rule-groups.ts'
import {
  makeAsk,
  makeDeletes,
  makeList,
  makeMove,
  makeOccurrences,
  makeRead,
  makeRecall,
  makeRemember,
  makeReplace,
  makeRun,
  makeScript,
  makeSearch,
} from './rule-makers.ts'
import { called, everyFile, inFolder, name, quoted, target, text, the, value } from './rule-pieces.ts'
import type { Scene } from './understand-csv.ts'

export interface Rule {
  readonly pattern: RegExp
  /** Null when the match turns out not to be this order. */
  make(groups: Groups, scene: Scene): Intent | Intent[] | null
}

function rule(pattern: string, make: Rule['make']): Rule {
  return { pattern: new RegExp(`^${pattern}$`, 'is'), make }
}

/** The beginning of an order to count what a file holds. */
const countOf =
  '(?:count|how many|what is the number of|tell me (?:the number of|how many))\\s+(?:the\\s+)?(?:number\\s+of\\s+)?(?<unit>lines|words|characters|chars|letters|bytes|rows|records)\\s+(?:(?:are|is|does|do|has|have|there|of|in)\\s+)*'

function unitOf(g: Groups): CountUnit | undefined {
  const given = g.raw('unit')?.toLowerCase() ?? ''
  const wanted = { chars: 'characters', letters: 'characters', records: 'rows' }[given] ?? given
  return countUnits.find((known) => known === wanted)
}

export const rules: readonly Rule[] = [
  rule(
    `(?:remember|keep in mind|memori[sz]e)\\s*(?:(?:that|this|for (?:later|next time))\\s*)*[:,]?\\s+(?<note>.+)`,
    (g) => makeRemember(g),
  ),
  rule(
    `(?:what (?:do you|can you)|(?:tell|show) me what you|list what you)\\s+(?:remember|recall)(?:\\s+(?:about|of)\\s+(?:the\\s+|this\\s+)?(?<query>.+))?`,
    (g) => makeRecall(g),
  ),
  rule(
    `recall(?:\\s+(?:everything|all|(?:the\\s+)?notes)|\\s+(?:what\\s+(?:you\\s+know|is\\s+known)\\s+)?(?:about\\s+|of\\s+)?(?:the\\s+|this\\s+)?(?<query>.+))?`,
    (g) => makeRecall(g),
  ),
  rule(`(?:load|use|open|show)\\s+(?:me\\s+)?${the}skill\\s+${called}(?<skill>${name})`, (g) => ({
    kind: 'use-skill',
    skill: g.text('skill') ?? '',
  })),
  rule(
    `ask\\s+(?:me|the\\s+user)\\s*:?\\s*(?<question>${quoted})(?:\\s*,?\\s*(?:(?<confirm>yes\\s+or\\s+no)|(?:(?:with|from|out of)\\s+)?${the}(?:options?|choices|answers|one of)\\s*:?\\s*(?<options>${quoted}(?:\\s*(?:,|or|and|, or|, and)\\s*${quoted})+)))?`,
    (g) => makeAsk(g),
  ),
  rule(
    `(?:create|make|add|generate)\\s+${the}(?:new\\s+)?(?:folder|directory)\\s+${called}(?<path>${name})`,
    (g) => ({
      kind: 'make-folder',
      path: g.path('path'),
    }),
  ),
  rule(
    `(?:create|make|write|add|generate|save|start|touch)\\s+(?:me\\s+)?${target('path')}(?:\\s*,?\\s*(?:and\\s+)?(?:(?:with|containing|that contains|which contains|holding|put|write)\\s+(?:in it\\s+)?(?:the\\s+|this\\s+|these\\s+|just\\s+|only\\s+)?${value('content')}(?:\\s+(?:in|into)\\s+it)?|(?:that says|which says|saying|that reads|which reads|reading)\\s*:?\\s*(?<said>.+))|\\s*:?\\s*(?<fence>${quoted}))?`,
    (g) => {
      const path = g.path('path')
      if (!looksLikeFile(path, g.raw('path'))) return null
      return { kind: 'create', path, content: g.text('content') ?? g.text('said') ?? g.text('fence') ?? '' }
    },
  ),
  rule(
    `(?:write|put|save|store|insert)\\s+${text('content')}\\s+(?:to|into|in|inside)\\s+${target('path')}`,
    (g) => {
      const content = g.text('content')
      return content === null ? null : { kind: 'create', path: g.path('path'), content }
    },
  ),
  rule(
    `(?:replace|change)\\s+(?:(?:all|every|each|the|any)\\s+)*(?:(?:occurrences?|instances?)\\s+of\\s+)?(?:the\\s+)?${value('from')}\\s+(?:with|by|to|into)\\s+(?:the\\s+)?${value('to')}\\s+(?:everywhere\\s+)?(?:in|inside|within|of)\\s+${target('path')}`,
    (g) => makeReplace(g),
  ),
  rule(
    `(?:in|inside)\\s+${target('path')}\\s*,?\\s*(?:replace|change)\\s+(?:(?:all|every|each|the|any)\\s+)*(?:(?:occurrences?|instances?)\\s+of\\s+)?${value('from')}\\s+(?:with|by|to|into)\\s+(?:the\\s+)?${value('to')}`,
    (g) => makeReplace(g),
  ),
  rule(
    `(?:remove|delete)\\s+(?:(?:all|every|each|the)\\s+)*(?:(?:occurrences?|instances?)\\s+of\\s+)?(?:(?:text|word|string|phrase)\\s+)?(?<from>${quoted})\\s+(?:from|in)\\s+${target('path')}`,
    (g) => ({
      kind: 'replace',
      path: g.path('path'),
      from: g.text('from') ?? '',
      to: '',
    }),
  ),
  rule(
    `(?:append|add)\\s+${text('content')}\\s+(?:to|at)\\s+(?:the\\s+(?:end|bottom)\\s+of\\s+)?${target('path')}`,
    (g) => {
      const text = g.text('content')
      return text === null ? null : { kind: 'append', path: g.path('path'), text }
    },
  ),
  rule(
    `(?<verb>rename|move|mv|copy|duplicate|cp)\\s+${target('path')}\\s+(?:to|as|into|in)\\s+${the}(?<into>(?:folder|directory)\\s+)?${called}(?<to>${name})(?<into2>\\s+(?:folder|directory))?`,
    (g, scene) => makeMove(g, scene),
  ),
  rule(`(?:delete|remove|erase|rm)\\s+(?<names>.+)`, (g) => makeDeletes(g)),
  rule(
    `(?:search|look|grep|scan)\\s*(?:(?:in|through|across)?\\s*${the}(?:all\\s+)?(?:files|workspace|code|project|everything|here)?)\\s*for\\s+(?:the\\s+)?${value('text')}${inFolder}`,
    (g) => makeSearch(g),
  ),
  rule(
    `(?:search|grep|scan)\\s+(?!for\\b)${target('place')}\\s+for\\s+(?:the\\s+)?${value('text')}`,
    (g) => ({
      kind: 'search',
      text: g.text('text') ?? '',
      path: g.path('place'),
    }),
  ),
  rule(
    `find\\s+(?:me\\s+)?(?:all\\s+|every\\s+)?${the}(?:(?:occurrences?|mentions?|uses?|instances?)\\s+of|lines?\\s+(?:with|containing)|where)\\s+${value('text')}${inFolder}`,
    (g) => makeSearch(g),
  ),
  rule(
    `(?:find|which|what|list|show me)\\s+(?:all\\s+)?(?:the\\s+)?files?\\s+(?:that\\s+|which\\s+)?(?:contain|contains|mention|mentions|containing|mentioning|have|use)\\s+(?:the\\s+)?${value('text')}${inFolder}`,
    (g) => makeSearch(g),
  ),
  rule(
    `where\\s+(?:is|are|does)\\s+(?:the\\s+)?${value('text')}\\s+(?:used|mentioned|defined|appear|occur|found)${inFolder}`,
    (g) => makeSearch(g),
  ),
  rule(
    `(?:count\\s+how\\s+(?:many\\s+times|often)|how\\s+(?:many\\s+times|often)\\s+(?:does|do|is))\\s+(?:the\\s+)?${value('text')}\\s+(?:occurs?|appears?|used|mentioned|found)${inFolder}`,
    (g) => makeOccurrences(g),
  ),
  rule(
    `count\\s+(?:the\\s+)?(?:number\\s+of\\s+)?(?:occurrences?|appearances|mentions)\\s+of\\s+(?:the\\s+)?${value('text')}${inFolder}`,
    (g) => makeOccurrences(g),
  ),
  rule(
    `(?:count|how many|what is the number of|tell me the number of)\\s+(?:of\\s+)?(?:the\\s+)?(?:number\\s+of\\s+)?(?:all\\s+)?(?:the\\s+)?(?:(?<type>[\\w.*+-]+)\\s+)?files?(?:\\s+(?:are|exist|do|does|there|we|i|have|is))*(?:\\s+here)?${inFolder}`,
    (g) => ({
      kind: 'count-files',
      pattern: patternOf(g.raw('type')),
      path: g.folder(),
    }),
  ),
  rule(`${countOf}${everyFile}(?:\\s+(?:have|has|contain|contains))?${inFolder}`, (g) => {
    const unit = unitOf(g)
    const pattern = patternOf(g.raw('type') ?? g.raw('types'))
    return unit === undefined ? null : { kind: 'count-each', unit, pattern, path: g.folder() }
  }),
  rule(`${countOf}${target('path')}(?:\\s+(?:have|has|contain|contains))?`, (g) => {
    const unit = unitOf(g)
    return unit === undefined ? null : { kind: 'count', unit, path: g.path('path') }
  }),
  rule(
    `(?:read|show|print|display|cat|open|view)\\s+(?:me\\s+)?(?:the\\s+)?(?:contents?\\s+of\\s+)?${target('path')}`,
    (g) => makeRead(g),
  ),
  rule(
    `(?:list|show|display|print|ls|dir|enumerate)(?:\\s+me)?\\s*(?:all\\s+)?${the}(?:all\\s+)?(?:(?<type>[\\w.*+-]+)\\s+)?(?:files|contents|entries|everything)(?:\\s+and\\s+(?:folders|directories))?(?:\\s+(?:here|there))?${inFolder}`,
    (g) => makeList(g),
  ),
  rule(
    `(?:what|which)\\s+(?:(?<type>[\\w.*+-]+)\\s+)?files\\s+(?:are|exist|do you see|do i have)(?:\\s+(?:there|here|present))?${inFolder}`,
    (g) => makeList(g),
  ),
  rule(`(?:ls|dir|list)(?:\\s+${target('path')})?`, (g) => ({
    kind: 'list',
    pattern: '*',
    path: g.raw('path') === undefined ? '.' : g.path('path'),
  })),
  rule(
    `find\\s+${the}(?:all\\s+)?(?:the\\s+)?(?:files?\\s+)?(?:named|called|matching|ending (?:in|with))\\s+(?<pattern>${name})${inFolder}`,
    (g) => ({
      kind: 'list',
      pattern: patternOf(g.path('pattern')),
      path: g.folder(),
    }),
  ),
  rule(`find\\s+(?:all\\s+)?(?:the\\s+)?(?<type>[\\w.*+-]+)\\s+files${inFolder}`, (g) => makeList(g)),
  rule(
    `find\\s+(?:the\\s+)?(?:(?:word|text|string|phrase)\\s+(?<text>${name})|(?<text2>${quoted}))${inFolder}`,
    (g) => ({
      kind: 'search',
      text: g.text('text') ?? g.text('text2') ?? '',
      path: g.folder(),
    }),
  ),
  rule(`what(?:'s|\\s+is|\\s+does)\\s+(?:in\\s+|inside\\s+)?${target('path')}(?:\\s+(?:contain|say))?`, (g) =>
    makeRead(g),
  ),
  rule(`find\\s+(?:the\\s+)?(?<found>[^\\s,;:]+)\\s+in\\s+${target('place')}`, (g) => ({
    kind: 'search',
    text: g.text('found') ?? '',
    path: g.path('place'),
  })),
  rule(
    `(?:run|execute|start|launch)\\s+(?:the\\s+)?(?:(?:shell|bash)\\s+)?(?:command|cmd)\\s*:?\\s*(?<command>.+)`,
    (g) => makeRun(g, 'command'),
  ),
  rule(
    `(?:run|execute|start|launch)\\s+(?:the\\s+)?(?<runner>python3?|bash|shell|sh|node)?\\s*(?:script|program|file)\\s+(?:called\\s+|named\\s+)?(?<script>${name})`,
    (g) => makeScript(g.path('script'), g.raw('runner')),
  ),
  rule(`(?:run|execute|start|launch)\\s+(?<command>.+)`, (g) => makeRun(g, 'any')),
  rule(
    `(?:calculate|compute|evaluate|work out|what is|what's|how much is|solve)\\s+(?:the\\s+)?(?:(?:value|result)\\s+of\\s+)?(?<sum>.+)`,
    (g) => {
      const expression = readArithmetic(g.text('sum') ?? '')
      return expression === null ? null : { kind: 'calculate', expression }
    },
  ),
  // A bare sum; a number alone asks for nothing.
  rule(`(?<sum>.+)`, (g) => {
    const expression = readArithmetic(g.text('sum') ?? '')
    return expression === null || !/[-+*/%(]/.test(expression) ? null : { kind: 'calculate', expression }
  }),
]
