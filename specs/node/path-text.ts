/**
 * File names as text. Linux names are bytes; bytes that are not UTF-8 stand as lone surrogates U+DC80 to U+DCFF
 * (PEP 383), so every name has exactly one text and every text made here gives its bytes back.
 */
import { isUtf8 } from 'node:buffer'

const ESCAPE_BASE = 0xdc00

/** The text of a path given as bytes. */
export function decodePath(bytes: Buffer): string {
  if (isUtf8(bytes)) return bytes.toString('utf8')
  let text = ''
  let at = 0
  while (at < bytes.length) {
    const lead = bytes[at] ?? 0
    const length = sequenceLength(lead)
    const sequence = bytes.subarray(at, at + length)
    if (sequence.length === length && isUtf8(sequence)) {
      text += sequence.toString('utf8')
      at += length
    } else {
      text += String.fromCharCode(ESCAPE_BASE + lead)
      at += 1
    }
  }
  return text
}

/** The bytes of a path given as text. Throws a TypeError on text that stands for no bytes; see {@link isPathText}. */
export function encodePath(text: string): Buffer {
  if (text.isWellFormed()) return Buffer.from(text, 'utf8')
  const parts: Buffer[] = []
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0
    if (code >= 0xd800 && code <= 0xdfff) {
      const byte = code - ESCAPE_BASE
      if (byte < 0x80 || byte > 0xff)
        throw new TypeError('path text holds a surrogate that stands for no byte')
      parts.push(Buffer.from([byte]))
    } else parts.push(Buffer.from(character, 'utf8'))
  }
  return Buffer.concat(parts)
}

/**
 * Whether `text` is the one text of some bytes. Escapes that together spell valid UTF-8 are refused: they would be
 * a second text for a path that has one already, and so slip past checks for doubles.
 */
export function isPathText(text: string): boolean {
  if (text.isWellFormed()) return true
  try {
    return decodePath(encodePath(text)) === text
  } catch {
    return false
  }
}

/**
 * Characters that write lines of their own, are not seen, or turn the order of what follows; and bytes that are no UTF-8. The
 * line and paragraph separators are U+2028 and U+2029.
 */
const hidden = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu

/** A path in quotes: a JSON string in which every character is seen, and which gives the path back. */
export function quotePath(path: string): string {
  return JSON.stringify(path).replace(hidden, (character) =>
    Array.from(
      { length: character.length },
      (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`,
    ).join(''),
  )
}

/**
 * A path as a line of ours holds it: as it is, or as {@link quotePath} has it where a reader could not tell what the name is
 * or where it ends. What begins with a quotation mark is such a string, always.
 */
export function nameInLine(path: string): string {
  return /^["\s]|\s$/.test(path) || path.search(hidden) !== -1 ? quotePath(path) : path
}

/** What a list says that has such names: calls take the name itself. */
export const quotedNamesNote = 'names in quotes are JSON strings'

/** What node:fs takes for this path: text where it is UTF-8 (faster), else bytes. */
export function toSystemPath(text: string): string | Buffer {
  return text.isWellFormed() ? text : encodePath(text)
}

/** The text of a name that node:fs returned with `encoding: 'latin1'`, the cheapest way to get names as bytes. */
export function decodeLatin1Name(name: string): string {
  for (let at = 0; at < name.length; at++) {
    if (name.charCodeAt(at) >= 0x80) return decodePath(Buffer.from(name, 'latin1'))
  }
  return name
}

/**
 * The order of paths in a change set: name by name, each by UTF-16 code units, so that a directory comes before
 * what is in it and all of that before its next sibling. Negative, zero or positive, as for `sort`.
 */
export function comparePaths(left: string, right: string): number {
  const shared = Math.min(left.length, right.length)
  for (let at = 0; at < shared; at++) {
    const a = left.charCodeAt(at)
    const b = right.charCodeAt(at)
    if (a === b) continue
    if (a === 0x2f) return -1
    if (b === 0x2f) return 1
    return a - b
  }
  return left.length - right.length
}

function sequenceLength(lead: number): number {
  if (lead < 0x80) return 1
  if (lead < 0xe0) return 2
  return lead < 0xf0 ? 3 : 4
}
