/** The words from which the rules of the offline model are put together, as sources of regular expressions. */
import { quotedPattern } from './phrases.ts'

/** Words that stand for several files; none is the name of one unless it is quoted. */
const quantifier = '(?:all|any|both|each|every|everything|anything|some|several|most|no)(?=[\\s,;:]|$)'
export const name = `(?:${quotedPattern}|(?!${quantifier})[^\\s,;:"'\uE000\uE001]+)`
export const quoted = `(?:${quotedPattern})`
export const the = '(?:(?:the|a|an|my|this|that|our|its)\\s+)?'
const adjectives =
  '(?:(?:new|empty|small|short|simple|text|plain|python|shell|bash|markdown|existing|whole|entire)\\s+)*'
const fileWord = '(?:(?:file|document|note|script|folder|directory)\\s+)?'
export const called = '(?:(?:called|named|at|with the name)\\s+)?'
const textWord =
  '(?:(?:following\\s+)?(?:text|line|lines|word|words|content|contents|string|sentence|phrase|value|pattern|number|message|code)(?:\\s+of)?\\s*:?\\s*)'
/** Text to write or find: set aside, or plain after a word that announces text. */
export const value = (group: string): string =>
  `(?:${textWord}?(?<${group}>${quoted})|${textWord}(?<${group}Plain>.+?)|(?<${group}Word>[^\\s,;:"'\uE000\uE001]+))`
/** As {@link value}, but after an article only what announces itself as text: `a poem` is no text to write. */
export const text = (group: string): string =>
  `(?:${the}(?:new\\s+)?${textWord}?(?<${group}>${quoted})|${the}(?:new\\s+)?${textWord}(?<${group}Plain>.+?)|(?!(?:the|a|an|my|this|that)\\s)(?<${group}Word>[^\\s,;:"'\uE000\uE001]+))`
export const target = (group: string): string =>
  `${the}${adjectives}${fileWord}${called}(?<${group}>${name})(?:\\s+(?:file|folder|directory))?`
export const inFolder = `(?:\\s+(?:in|inside|under|from|within|of|across|through)\\s+(?:${the}(?:folder|directory|file)\\s+(?<folder1>${name})|${the}(?<folder2>${name})(?:\\s+(?:folder|directory|file))?|(?<anywhere>(?:all|every|any)(?:\\s+of)?(?:\\s+(?:the|my|these))?\\s+\\w+)))?`
/** Several files by one word, such as `every .md file` or `the files`. */
export const everyFile =
  '(?:(?:each|every|any)\\s+(?:of\\s+the\\s+)?(?:(?<type>[\\w.*+-]+)\\s+)?files?|(?:(?:all|the|these|my|of)\\s+)+(?:(?<types>[\\w.*+-]+)\\s+)?files)'
