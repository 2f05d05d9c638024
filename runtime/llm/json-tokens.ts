/**
 * JSON and what models write in its place, as tokens: strings decoded, brackets, words, and the separators between them.
 * Says whether a repaired text still says what was written, and which key is given twice. Refuses whatever may be read
 * in two ways; each character is seen once.
 */

export interface JsonToken {
  readonly kind: 'open' | 'close' | 'string' | 'word'
  /** A string's decoded text; otherwise the bracket or the word itself. */
  readonly value: string
  /** The separator between this token and the one before; empty when there was none. */
  readonly after: '' | ',' | ':'
}

export interface TokenList {
  readonly tokens: readonly JsonToken[]
  /** A separator that nothing follows. */
  readonly trailing: '' | ',' | ':'
}

const escapes: Readonly<Record<string, string>> = {
  '"': '"',
  "'": "'",
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
}

/**
 * The tokens of `text`; null where a string does not end, an escape is unknown or a separator stands twice.
 * @param comments whether comments are skipped. One that begins right behind a string never is: the quotation mark before
 *   it may belong to the content.
 */
export function readTokens(text: string, comments = true): TokenList | null {
  const tokens: JsonToken[] = []
  let after: JsonToken['after'] = ''
  const push = (kind: JsonToken['kind'], value: string): void => {
    tokens.push({ kind, value, after })
    after = ''
  }
  for (let at = 0; at < text.length; ) {
    const char = text.charAt(at)
    if (isSpace(char)) at++
    else if (char === ',' || char === ':') {
      if (after !== '') return null
      after = char
      at++
    } else if (char === '{' || char === '[') {
      push('open', char)
      at++
    } else if (char === '}' || char === ']') {
      push('close', char)
      at++
    } else if (char === '"' || char === "'") {
      const string = readString(text, at, comments)
      if (string === null) return null
      push('string', string.value)
      at = string.end
    } else if (text.startsWith('//', at) || text.startsWith('/*', at)) {
      if (!comments || /["']/.test(text.charAt(at - 1))) return null
      const line = text.charAt(at + 1) === '/'
      const end = text.indexOf(line ? '\n' : '*/', at + 2)
      if (end < 0 && !line) return null
      at = end < 0 ? text.length : end + (line ? 1 : 2)
    } else {
      const end = endOfWord(text, at)
      push('word', text.slice(at, end))
      at = end
    }
  }
  return { tokens, trailing: after }
}

/**
 * Whether `repaired`, which is JSON, says what `source` said: the same brackets, strings, numbers, constants and colons in
 * the same order. Different may be quotes, a key without any, commas before a closing bracket, raw line breaks within
 * strings, how Python spells its constants, and comments where `comments` allows them.
 */
export function saysTheSame(source: string, repaired: string, comments = true): boolean {
  const a = readTokens(source, comments)
  const b = readTokens(repaired)
  if (a === null || b === null || a.trailing === ':' || a.tokens.length !== b.tokens.length) return false
  return a.tokens.every((written, index) => {
    const read = b.tokens[index]
    if (read === undefined) return false
    const dropped = written.after === ',' && read.after === '' && read.kind === 'close'
    if (written.after !== read.after && !dropped) return false
    if (written.kind === read.kind) return wordOf(written) === read.value
    // A word became a string: certain of a key alone.
    const isKey = b.tokens[index + 1]?.after === ':'
    return written.kind === 'word' && read.kind === 'string' && isKey && isPlainKey(written, read)
  })
}

/**
 * Why JSON that parses would lose something of `text`: a key that one object has twice, or a number that JavaScript cannot
 * keep. Null when nothing is lost.
 */
export function findLoss(text: string): string | null {
  const tokens = readTokens(text)?.tokens ?? []
  const open: Set<string>[] = []
  for (const [index, { kind, value }] of tokens.entries()) {
    if (kind === 'open') open.push(new Set())
    else if (kind === 'close') open.pop()
    else if (kind === 'word' && isInexact(value)) {
      return `the number ${value.slice(0, 100)} cannot be kept exactly; use a smaller one, or text where text is taken`
    } else if (tokens[index + 1]?.after === ':') {
      const keys = open.at(-1)
      if (keys?.has(value) === true) return `the key ${JSON.stringify(value.slice(0, 100))} is given twice`
      keys?.add(value)
    }
  }
  return null
}

/** Whether a number of JSON becomes another one: an integer that is rounded, one beyond all numbers, or one that becomes zero. */
export function isInexact(number: string): boolean {
  const value = Number(number)
  if (Number.isNaN(value)) return false
  if (!Number.isFinite(value)) return true
  if (value === 0) return /^[-.0]*[1-9]/.test(number)
  // What is written again as it stood is kept.
  if (!/^-?\d+$/.test(number) || Number.isSafeInteger(value) || String(value) === number) return false
  return BigInt(number) !== BigInt(value)
}

/**
 * A value of JSON; a number that JavaScript cannot keep is given as its text, so that it passes as no number.
 * @throws SyntaxError for what is not JSON
 */
export function parseExactly(text: string): unknown {
  // Most texts hold no such number, and a reviver is slow.
  if (!/\d{16}|\de[+-]?\d{3}/i.test(text)) return JSON.parse(text)
  return JSON.parse(text, (_key, value: unknown, context?: { readonly source?: string }) => {
    const source = context?.source
    return typeof value === 'number' && source !== undefined && isInexact(source) ? source : value
  })
}

/**
 * `text` with the braces that its end lacks; null where more may be missing than braces: after a number, a key or a
 * separator, within a string or a list.
 */
export function closeObjects(text: string, comments = true): string | null {
  const read = readTokens(text, comments)
  const last = read?.tokens.at(-1)
  if (read === null || last === undefined || read.trailing !== '') return null
  let open = ''
  for (const { kind, value } of read.tokens) {
    if (kind === 'open') open = value + open
    else if (kind === 'close') open = open.slice(1)
  }
  const whole =
    last.kind === 'close' ||
    (last.after === ':' && (last.kind === 'string' || /^(true|false|null)$/.test(last.value)))
  return whole && /^\{+$/.test(open) ? text + '}'.repeat(open.length) : null
}

function wordOf({ kind, value }: JsonToken): string {
  if (kind !== 'word') return value
  return value === 'True' ? 'true' : value === 'False' ? 'false' : value === 'None' ? 'null' : value
}

function isPlainKey(written: JsonToken, read: JsonToken): boolean {
  return written.value === read.value && /^[A-Za-z_$][\w$]*$/.test(written.value)
}

function isSpace(char: string): boolean {
  return char === ' ' || char === '\n' || char === '\r' || char === '\t'
}

function endOfWord(text: string, start: number): number {
  let at = start + 1
  while (
    at < text.length &&
    !/[\s,:{}[\]"']/.test(text.charAt(at)) &&
    !/^\/[/*]/.test(text.slice(at, at + 2))
  )
    at++
  return at
}

/**
 * The string whose quote stands at `start`; raw control characters stand for themselves.
 * @param tolerant whether escapes are read that JSON does not have in these quotes, or that Python reads in another way
 */
function readString(text: string, start: number, tolerant: boolean): { value: string; end: number } | null {
  const quote = text.charCodeAt(start)
  const parts: string[] = []
  let from = start + 1
  for (let at = from; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === quote) return { value: parts.join('') + text.slice(from, at), end: at + 1 }
    if (code !== 0x5c) continue
    parts.push(text.slice(from, at))
    const letter = text.charAt(at + 1)
    const hex = letter === 'u' ? /^[0-9a-fA-F]{4}/.exec(text.slice(at + 2, at + 6))?.[0] : undefined
    const decoded = hex === undefined ? escapes[letter] : String.fromCharCode(Number.parseInt(hex, 16))
    if (decoded === undefined) return null
    if (!tolerant && letter === (quote === 0x22 ? "'" : '/')) return null
    parts.push(decoded)
    at += hex === undefined ? 1 : 5
    from = at + 1
  }
  return null
}
