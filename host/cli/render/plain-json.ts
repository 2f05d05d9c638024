/**
 * JSON on its way to a person: written so that it means the same and holds nothing that a terminal or an editor obeys, and read
 * from what an agent claims.
 */

/** What a terminal may obey or hide (C1 controls, bidi, zero-width): JSON leaves it as it is. */
const unsafe = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu
/** What editors take for settings of theirs, also in the middle of a file's first and last lines. */
const editorSettings = /(\b(?:vim?|Vim|ex)[<=>]?\d*|Local Variables|-\*)(:|-)/g

/** @param json without line breaks between its tokens */
export function escapeUnsafe(json: string): string {
  return json.replace(unsafe, (found) => found.split('').map(toEscape).join(''))
}

/** Indented, for a person to change in an editor. */
export function toPlainJson(value: unknown): string {
  const lines = JSON.stringify(value, null, 2).split('\n').map(escapeUnsafe)
  return `${lines.map((line) => line.replace(editorSettings, breakSetting)).join('\n')}\n`
}

function breakSetting(_: string, word: string, sign: string): string {
  return `${word}${toEscape(sign)}`
}

function toEscape(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** The object that `json` says; null where it says something else, or nothing. */
export function parseObject(json: string): object | null {
  try {
    const value: unknown = JSON.parse(json)
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null
  } catch {
    return null
  }
}
