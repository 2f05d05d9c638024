/**
 * The one path of untrusted text to a terminal (guest, model, files, web): whatever could move the cursor, change
 * colors, reorder or hide text becomes a visible escape. Everything else in this folder prints untrusted text through here.
 */
import { fitLine, leftToRightMark } from './fit.ts'

/**
 * Controls, format characters (bidi, zero-width, tags), lone surrogates, line and paragraph separators, all
 * that Unicode renders as nothing; U+FE0F stays, emoji need it.
 */
const dangerous = /[[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]--[\u{fe0f}]]/gv

/** What is drawn onto the character before it: marks, and the Korean letters that join. */
const marks = /[\p{M}\u{1160}-\u{11ff}\u{d7b0}-\u{d7ff}]+/gv
/** Marks on one character; no script's syllables need more. */
const marksMax = 8

/** Of a row in {@link sanitizeWhole}: editors and other clients break rows themselves. */
const wholeRowCells = 1_000

/** Blocks of scripts written from right to left, their digits and signs included. */
const rightToLeft =
  /[\u{590}-\u{8ff}\u{fb1d}-\u{fdff}\u{fe70}-\u{fefc}\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/v
/**
 * One line: every line break and tab is an escape too. Cut at `maxChars` with a mark that says how much is missing.
 * Right-to-left text stands between two left-to-right marks, and nothing else here draws nothing.
 */
export function sanitizeLine(text: string, maxChars = 500): string {
  const shown = text.length > maxChars ? text.slice(0, maxChars) : text
  const rest = text.length - shown.length
  return fence(escapeText(shown)) + (rest > 0 ? `… (${rest} more characters)` : '')
}

/**
 * Several lines behind a margin, so that none can look like a line of ours. Only LF breaks a line; a tab is two spaces.
 * @param maxLines lines beyond it are counted, not shown
 */
export function sanitizeBlock(text: string, margin = '  │ ', maxLines = 200): string {
  const lines = linesOf(text)
  const shown = lines.slice(0, maxLines).map((line) => margin + sanitizeLine(line, 2_000))
  if (lines.length > maxLines) shown.push(`${margin}… (${lines.length - maxLines} more lines)`)
  return shown.join('\n')
}

/** All of a text behind a margin, in rows of at most `width` cells. */
export function sanitizeRows(text: string, margin: string, width: number): string[] {
  return linesOf(text).flatMap((line) => fitLine(margin + fence(escapeText(line)), width))
}

/** All of a text, where a person decides by it: nothing is cut, and a long line continues in further rows. */
export function sanitizeWhole(text: string, margin = '  │ '): string {
  return sanitizeRows(text, margin, wholeRowCells).join('\n')
}

function linesOf(text: string): string[] {
  const lines = text.replaceAll('\t', '  ').split('\n')
  if (lines.at(-1) === '') lines.pop()
  return lines
}

function escapeText(text: string): string {
  return text.replace(dangerous, escapeOf).replace(marks, boundMarks)
}

/** Marks at the beginning would be drawn onto what we wrote before; too many grow over the lines around. */
function boundMarks(run: string, at: number): string {
  const kept = at === 0 ? 0 : marksMax
  const characters = [...run]
  return characters.slice(0, kept).join('') + characters.slice(kept).map(escapeOf).join('')
}

/** Keeps right-to-left text from reordering the words and numbers that we print beside it. */
function fence(text: string): string {
  return rightToLeft.test(text) ? leftToRightMark + text + leftToRightMark : text
}

const names: Readonly<Record<string, string>> = {
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\u001b': '\\e',
  '\0': '\\0',
}

function escapeOf(character: string): string {
  const code = character.codePointAt(0) ?? 0
  return (
    names[character] ??
    (code <= 0xff ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u{${code.toString(16)}}`)
  )
}
