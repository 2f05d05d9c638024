/**
 * Parts of rules, as sources of regular expressions, and the values of a match: paths, texts and folders, with quotes resolved
 * and `it` replaced. Words of a clause are one blank apart; only named groups are read.
 */
import { kindOfFiles } from './chores.ts'
import { type Clause, isQuoted, quotedPattern, readToken } from './phrases.ts'
import type { CsvContext } from './understand-csv.ts'

/** Words for several files; not names unless quoted. */
const quantifier = '(all|any|both|each|every|everything|anything|some|several|most|no)(?=[\\s,;:]|$)'
export const name = `(${quotedPattern}|(?!${quantifier})[^\\s,;:"'\uE000\uE001]+)`
export const quoted = `(${quotedPattern})`
export const the = '((the|a|an|my|this|that|our|its) )?'
const adjectives =
  '((new|empty|small|short|simple|text|plain|python|shell|bash|markdown|existing|whole|entire) )*'
const fileWord = '((file|document|note|script|folder|directory) )?'
export const called = '((called|named|at|with the name) )?'
const textWord =
  '((following )?(text|line|lines|word|words|content|contents|string|sentence|phrase|value|pattern|number|message|code)( of)? ?:? ?)'
/** Without quoted text: what is around quotes belongs to the order. */
const plain = '[^\uE000\uE001]+?'
const plainWord = `([^\\s,;:"'\uE000\uE001]|:(?=[^\\s\uE000\uE001]))+`
/** Text to write or find: quoted, or plain after a word such as `text`. */
export const value = (group: string): string =>
  `(${textWord}?(?<${group}>${quoted})|${textWord}(?<${group}Plain>${plain})|(?<${group}Word>${plainWord}))`
/** As {@link value}, but after an article a word such as `text` is required: `a poem` is not text to write. */
export const text = (group: string): string =>
  `(${the}(new )?${textWord}?(?<${group}>${quoted})|${the}(new )?${textWord}(?<${group}Plain>${plain})|(?!(the|a|an|my|this|that)\\s)(?<${group}Word>[^\\s,;:"'\uE000\uE001]+))`
export const target = (group: string): string =>
  `${the}${adjectives}${fileWord}${called}(?<${group}>${name})( (file|folder|directory))?`
export const inFolder = `( (in|inside|under|from|within|of|across|through) ((the|this|my|our) (whole|entire|current) )?(${the}(folder|directory|file) (?<folder1>${name})|${the}(?<folder2>${name})( (folder|directory|file))?|(?<anywhere>(all|every|any)( of)?( (the|my|these))? \\w+)))?`
/** Several files, such as `every .md file` or `the files`. */
export const everyFile =
  '((each|every|any) (of the )?((?<type>[\\w.*+-]+) )?files?|((all|the|these|my|of) )+((?<types>[\\w.*+-]+) )?files)'

/** Several files in an order that changes them; `kindOfFiles` has to know the kind. */
export const manyFiles =
  '(((all|every|each|any|of|the|my|our|these|those) )*((?<kind>[\\w.*+-]+) )?files?|(all|every|each)( (of|the|my|our|these|those))* (?<kinds>[\\w.*+-]+)|(?<glob>[\\w.-]*\\*[\\w.*-]*)( files)?)'

/** A condition, or another place: without quotes nobody knows whether it is text. */
const isPartOfOrder =
  /\b(unless|except|if|instead of)\b|\b(in|into|inside|under) ((the|a|my|this) )?((new )?(folder|directory)\b|\S*\/)/i

/** Reads the match of a clause. */
export interface Groups {
  /** A path; `it` is the last path of the order before. */
  path(group: string): string
  /** Text to write or find; null when absent, and for unquoted text that may hold a part of the order. */
  text(group: string): string | null
  /** The folder that was named; `.` for the workspace. */
  folder(): string
  raw(group: string): string | undefined
  /** Whether a text was given, also one that {@link Groups.text} does not take. */
  has(group: string): boolean
  /** The group as the user wrote it, with quotes. */
  written(group: string): string
}

export function groupsOf(match: RegExpExecArray, clause: Clause, scene: CsvContext): Groups {
  const raw = (group: string): string | undefined =>
    group.startsWith('=') ? group.slice(1) : match.groups?.[group]
  const path = (group: string): string => {
    const token = raw(group) ?? ''
    if (/^(it|that|them)$/i.test(token)) return scene.last ?? ''
    return readToken(token, clause.quoted)
      .replace(/^(\.\/)+(?=.)/, '')
      .replace(/(?<=.)\/+$/, '')
  }
  const text = (group: string): string | null => {
    const unquoted = raw(`${group}Plain`) ?? (isQuoted(raw(group) ?? '') ? undefined : raw(group))
    if (unquoted !== undefined && isPartOfOrder.test(unquoted)) return null
    const token = raw(group) ?? raw(`${group}Plain`) ?? raw(`${group}Word`)
    return token === undefined ? null : readToken(token, clause.quoted)
  }
  const folder = (): string => {
    const group = raw('folder1') === undefined ? 'folder2' : 'folder1'
    const token = raw(group)
    if (
      token === undefined ||
      /^(here|workspace|project|repo|repository|codebase|folder|directory|current|files|code|everything|total|all|there)$/i.test(
        token,
      )
    )
      return '.'
    return path(group) || '.'
  }
  const written = (group: string): string =>
    (raw(group) ?? '').replaceAll(new RegExp(quotedPattern, 'g'), (mark) => readToken(mark, clause.written))
  const has = (group: string): boolean =>
    [group, `${group}Plain`, `${group}Word`].some((each) => raw(each) !== undefined)
  return { raw, has, path, text, folder, written }
}

/** `.py`, `py` and `python` mean `*.py`; undefined means every file. */
export function patternOf(type: string | undefined): string {
  if (type === undefined || /^(all|the|any|every|of|regular)$/i.test(type)) return '*'
  return kindOfFiles(type) ?? (type.includes('.') ? type : `*.${type}`)
}

/** The listed path that a name means: `readme` is README.md, `cart.js` is src/cart.js, if there is no other. */
export function resolvePath(path: string, paths: readonly string[]): string {
  if (path === '' || path.includes('/') || paths.includes(path) || paths.includes(`${path}/`)) return path
  const wanted = path.toLowerCase()
  const listed = paths.filter((known) => !known.endsWith('/'))
  const base = (known: string): string => known.slice(known.lastIndexOf('/') + 1).toLowerCase()
  for (const fits of [
    (known: string) => known.toLowerCase() === wanted,
    (known: string) => known.toLowerCase().replace(/\.\w+$/, '') === wanted,
    (known: string) => base(known) === wanted,
  ]) {
    const found = listed.filter(fits)
    if (found.length > 0) return found.length === 1 ? (found[0] ?? path) : path
  }
  return path
}

/** Whether it is quoted or has an extension or a slash, as names of files do. */
export function looksLikeFile(path: string, token: string | undefined): boolean {
  return (
    path !== '' &&
    (isQuoted(token ?? '') ||
      /[./]/.test(path) ||
      /^(Makefile|Dockerfile|LICENSE|README|CHANGELOG)$/i.test(path) ||
      /^(it|that)$/i.test(token ?? ''))
  )
}
