/**
 * Reads the text of a shell command as words, separators and redirections. Accepts a plain subset of bash and refuses
 * the rest: what it accepts, bash reads in the same way. One pass without recursion, linear in the hostile text.
 */

export interface Word {
  /** As written. */
  readonly raw: string
  /** Without quotes; null if bash may make another text of it, as of `*.ts` and `$HOME`. */
  readonly literal: string | null
}

/** `&`, `;` and a line break end a command; the others also need one after them. */
export type Separator = ';' | '&' | '\n' | '&&' | '||' | '|' | '|&'

export type Token =
  | { readonly kind: 'word'; readonly word: Word }
  | { readonly kind: 'separator'; readonly separator: Separator }
  /** `operator` with its descriptor, as in `2>>`; `>&1` and `2>&1` have no target. */
  | { readonly kind: 'redirection'; readonly operator: string; readonly target: string | null }

/** The tokens with their places in the text, or what in it is not understood; for people, a noun. */
export type Lexed =
  | { readonly ok: true; readonly tokens: readonly PlacedToken[] }
  | { readonly ok: false; readonly doubt: string }
export type PlacedToken = Token & { readonly from: number; readonly to: number }

class Doubt {
  readonly what: string
  constructor(what: string) {
    this.what = what
  }
}

/** A person or a model writes fewer words; it bounds memory. */
const tokensMax = 10_000

export function lexShell(text: string): Lexed {
  // bash uses some control characters itself, and a byte that is not text may be read in two ways.
  if (/[^\P{Cc}\t\n]/u.test(text) || !text.isWellFormed()) return refusal('a control character')
  // bash -c reads such a text as its own options.
  if (/^[-+]/.test(text)) return refusal('a text that begins with an option')
  const tokens: PlacedToken[] = []
  let at = skipBlanks(text, 0)
  while (at < text.length) {
    const read = readToken(text, at)
    if (read instanceof Doubt) return refusal(read.what)
    const [token, to] = read
    tokens.push({ ...token, from: at, to })
    if (tokens.length > tokensMax) return refusal(`more than ${tokensMax} words and separators`)
    at = skipBlanks(text, to)
  }
  return { ok: true, tokens }
}

function refusal(doubt: string): Lexed {
  return { ok: false, doubt }
}

type Read<T> = readonly [T, to: number] | Doubt

const separators = /&&|\|\||\|&|[;&|\n]/y
/** Standard output or error into the other. A following `<` or `>` would make the digit a descriptor. */
const duplication = /([12]?)>&([12])(?=[ \t\n;|&]|$)/y
const redirection = /&>>?|[12]?>>?|</y
const wordEnds = ' \t\n;&|<>'

function readToken(text: string, at: number): Read<Token> {
  const character = text[at] ?? ''
  if (character === '<' || character === '>' || text.startsWith('&>', at)) return readRedirection(text, at)
  const separator = match(separators, text, at)
  if (separator !== undefined)
    return [{ kind: 'separator', separator: separator[0] as Separator }, at + separator[0].length]
  const word = readWord(text, at)
  if (word instanceof Doubt) return word
  const [{ raw }, to] = word
  if (text[to] !== '<' && text[to] !== '>') return [{ kind: 'word', word: word[0] }, to]
  // Directly before a redirection, bash reads {NAME} and digits as its descriptor.
  if (raw.endsWith('}')) return new Doubt('a variable for a file descriptor')
  if (!/^\d+$/.test(raw)) return [{ kind: 'word', word: word[0] }, to]
  if (/^[12]$/.test(raw) && text[to] === '>') return readRedirection(text, at)
  return new Doubt(`the file descriptor ${raw.slice(0, 10)}`)
}

function readRedirection(text: string, at: number): Read<Token> {
  const double = match(duplication, text, at)
  if (double !== undefined)
    return [{ kind: 'redirection', operator: double[0], target: null }, at + double[0].length]
  const operator = match(redirection, text, at)?.[0]
  if (operator === undefined) return new Doubt('a redirection')
  const from = at + operator.length
  if (operator === '<' && text[from] === '<') return new Doubt('a here-document')
  if (text[from] === '(') return new Doubt('a process substitution')
  if ('<>|&'.includes(text[from] ?? ' ')) return new Doubt('a redirection')
  const target = skipBlanks(text, from)
  if (target >= text.length || `${wordEnds}#`.includes(text[target] ?? '')) return new Doubt('a redirection')
  const word = readWord(text, target)
  if (word instanceof Doubt) return word
  const [{ literal }, to] = word
  if (literal === null || literal === '') return new Doubt('a redirection whose file is not certain')
  if (text[to] === '<' || text[to] === '>') return new Doubt('a redirection')
  // bash connects to /dev/tcp/HOST/PORT and the like.
  if (/^\/dev\/(?:tcp|udp)\//.test(literal)) return new Doubt('a connection')
  return [{ kind: 'redirection', operator: operator.replace(/^1/, ''), target: literal }, to]
}

/** Unquoted characters that only mean themselves; `#` begins a comment only at the start of a word. */
const plain = /[\p{L}\p{N}\p{M}_./:,+=@%^#!-]+/uy
const expanded = /[*?[\]{}~]+/y
const variable = /\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|[?#!$@*0-9-])/y
const plainInQuotes = /[^"$`\\]+/y

/** @param at not at a blank, separator or redirection */
function readWord(text: string, from: number): Read<Word> {
  const parts: string[] = []
  let isFixed = true
  let at = from
  while (at < text.length && !wordEnds.includes(text[at] ?? '')) {
    const part = readPart(text, at)
    if (part instanceof Doubt) return part
    const [value, to] = part
    if (value === null) isFixed = false
    else parts.push(value)
    at = to
  }
  return [{ raw: text.slice(from, at), literal: isFixed ? parts.join('') : null }, at]
}

/** The next part of a word, without quotes; null for an expansion. */
function readPart(text: string, at: number): Read<string | null> {
  const plainText = match(plain, text, at)?.[0]
  if (plainText !== undefined) return [plainText, at + plainText.length]
  const open = match(expanded, text, at)?.[0] ?? match(variable, text, at)?.[0]
  if (open !== undefined) return [null, at + open.length]
  switch (text[at]) {
    case '\\':
      return readEscape(text, at)
    case "'": {
      const end = text.indexOf("'", at + 1)
      return end < 0 ? new Doubt('an open quote') : [text.slice(at + 1, end), end + 1]
    }
    case '"':
      return readQuoted(text, at + 1)
    case '$':
      return readDollar(text, at)
    default:
      return new Doubt(doubtOf(text[at] ?? ''))
  }
}

function readEscape(text: string, at: number): Read<string> {
  const escaped = String.fromCodePoint(text.codePointAt(at + 1) ?? 0)
  if (escaped === '\0' || escaped === '\n') return new Doubt('a line that continues inside a word')
  return [escaped, at + 1 + escaped.length]
}

/** A `$` that is no expansion: at the end of a word. */
function readDollar(text: string, at: number): Read<string> {
  const next = text[at + 1]
  if (next === undefined || wordEnds.includes(next)) return ['$', at + 1]
  if (next === '(') return new Doubt('a command substitution')
  return new Doubt(next === "'" || next === '"' ? `a $${next}…${next} quote` : 'an expansion')
}

/** @param from behind the opening quote */
function readQuoted(text: string, from: number): Read<string | null> {
  const parts: string[] = []
  let isFixed = true
  let at = from
  while (text[at] !== '"') {
    if (at >= text.length) return new Doubt('an open quote')
    const plainText = match(plainInQuotes, text, at)?.[0]
    const open = plainText === undefined ? match(variable, text, at)?.[0] : undefined
    const next = text[at + 1] ?? ''
    if (plainText !== undefined) parts.push(plainText)
    else if (open !== undefined) isFixed = false
    else if (text[at] === '\\') {
      if (next === '\n') return new Doubt('a line that continues inside a word')
      parts.push('$`"\\'.includes(next) ? next : '\\')
      at += '$`"\\'.includes(next) ? 2 : 1
      continue
    } else if (text[at] === '$' && /^[\s"|)]$/.test(next)) parts.push('$')
    else return new Doubt(text[at] === '`' || next === '(' ? 'a command substitution' : 'an expansion')
    at += (plainText ?? open ?? '$').length
  }
  return [isFixed ? parts.join('') : null, at + 1]
}

function doubtOf(character: string): string {
  if (character === '(' || character === ')') return 'a parenthesis'
  return character === '`' ? 'a command substitution' : 'a character outside of quotes'
}

/**
 * The place of the next token. A backslash before a line break counts as a blank only behind one: elsewhere bash joins
 * what stands on both sides of it. So a comment does not continue.
 */
function skipBlanks(text: string, from: number): number {
  let at = from
  while (at < text.length) {
    if (text[at] === ' ' || text[at] === '\t') at += 1
    else if (text.startsWith('\\\n', at) && at > 0 && ' \t\n'.includes(text[at - 1] ?? '')) at += 2
    else if (text[at] === '#' && (at === 0 || isTokenStart(text, at))) at = endOfLine(text, at)
    else break
  }
  return at
}

function isTokenStart(text: string, at: number): boolean {
  return ' \t\n;&|'.includes(text[at - 1] ?? '')
}

function endOfLine(text: string, at: number): number {
  const end = text.indexOf('\n', at)
  return end < 0 ? text.length : end
}

function match(pattern: RegExp, text: string, at: number): RegExpExecArray | undefined {
  pattern.lastIndex = at
  return pattern.exec(text) ?? undefined
}
