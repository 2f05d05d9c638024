/**
 * Tokenizes JSON and what models write instead: decoded strings, brackets, words and separators. Compares a repaired
 * text with its source and detects duplicate keys. Refuses ambiguous text; reads each character once.
 */

export interface JsonToken {
  readonly kind: 'open' | 'close' | 'string' | 'word'
  /** A string's decoded text; otherwise the bracket or word itself. */
  readonly value: string
  /** The separator between this token and the one before; empty when there was none. */
  readonly after: '' | ',' | ':'
}

export interface TokenList {
  readonly tokens: readonly JsonToken[]
  /** A trailing separator. */
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
 * The tokens of `text`; null for an unterminated string, an unknown escape or a doubled separator.
 * @param comments whether comments are skipped. One directly after a string never is: the quotation mark before it
 * may belong to the content.
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
    // Only a key may become a string with certainty.
    const isKey = b.tokens[index + 1]?.after === ':'
    return written.kind === 'word' && read.kind === 'string' && isKey && isPlainKey(written, read)
  })
}

/**
 * Why parsing would lose part of `text`: a duplicate key, or a number that JavaScript cannot represent. Null when
 * nothing is lost.
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

/** Whether parsing changes a JSON number: a rounded integer, an overflow, or an underflow to zero. */
export function isInexact(number: string): boolean {
  const value = Number(number)
  if (Number.isNaN(value)) return false
  if (!Number.isFinite(value)) return true
  if (value === 0) return /^[-.0]*[1-9]/.test(number)
  // Text that reproduces the number is safe.
  if (!/^-?\d+$/.test(number) || Number.isSafeInteger(value) || String(value) === number) return false
  return BigInt(number) !== BigInt(value)
}

/**
 * Parses JSON; numbers that JavaScript cannot represent become text, so that they fail validation as numbers.
 * @throws SyntaxError for text that is not JSON
 */
export function parseExactly(text: string): unknown {
  // Most texts contain no such number, and a reviver is slow.
  if (!/\d{16}|\de[+-]?\d{3}/i.test(text)) return JSON.parse(text)
  return JSON.parse(text, (_key, value: unknown, context?: { readonly source?: string }) => {
    const source = context?.source
    return typeof value === 'number' && source !== undefined && isInexact(source) ? source : value
  })
}

/**
 * Appends the closing braces missing from `text`; null when more than braces may be missing: after a number, a key or
 * a separator, within a string or a list.
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
 * Reads the string whose quote is at `start`; raw control characters are literal.
 * @param tolerant whether to accept escapes invalid in JSON or read differently by Python
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
