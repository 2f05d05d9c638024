/**
 * File names as text. Linux names are bytes; invalid UTF-8 bytes become lone surrogates U+DC80 to U+DCFF (PEP 383).
 * Every name has exactly one text, and every such text converts back to its bytes.
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

/** The bytes of a path given as text. Throws a TypeError for text without a byte form; see {@link isPathText}. */
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
 * Whether `text` is the canonical text of some bytes. Escapes that together form valid UTF-8 are refused: a second
 * text for one path could evade duplicate checks.
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
 * Line breaks, invisible characters, characters that reorder text, and invalid UTF-8 bytes. The line and paragraph
 * separators are U+2028 and U+2029.
 */
const hidden = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu

/** A quoted path: a JSON string in which every character is visible and which parses back to the path. */
export function quotePath(path: string): string {
  return JSON.stringify(path).replace(hidden, (character) =>
    Array.from(
      { length: character.length },
      (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`,
    ).join(''),
  )
}

/**
 * A path for use in a line of text: unchanged, or quoted by {@link quotePath} when a reader could mistake the name or
 * its end. Text that begins with a quotation mark is always quoted.
 */
export function nameInLine(path: string): string {
  return /^["\s]|\s$/.test(path) || path.search(hidden) !== -1 ? quotePath(path) : path
}

/** Note for lists with such names: calls take the unquoted name. */
export const quotedNamesNote = 'names in quotes are JSON strings'

/** A path for node:fs: a string for UTF-8 (faster), else bytes. */
export function toSystemPath(text: string): string | Buffer {
  return text.isWellFormed() ? text : encodePath(text)
}

/** Converts a name that node:fs returned with `encoding: 'latin1'`, the cheapest way to get names as bytes. */
export function decodeLatin1Name(name: string): string {
  for (let at = 0; at < name.length; at++) {
    if (name.charCodeAt(at) >= 0x80) return decodePath(Buffer.from(name, 'latin1'))
  }
  return name
}

/**
 * Sort order of paths in a change set: by name, each by UTF-16 code units, so that a directory precedes its content,
 * which precedes its next sibling. Returns negative, zero or positive, as for `sort`.
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
