/**
 * The one path of foreign text to a terminal (guest, model, files, web): whatever could move the cursor, change
 * colours, reorder or hide text becomes a visible escape. Everything else in this folder prints foreign text through here.
 */

/** Controls, format characters (bidi, zero-width, tags), lone surrogates, line and paragraph separators, all that Unicode renders as nothing; U+FE0F stays, emoji need it. */
const dangerous = /[[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]--[\u{fe0f}]]/gv

/** One line: every line break and tab is an escape too. Cut at `maxChars` with a mark that says how much is missing. */
export function foreignLine(text: string, maxChars = 500): string {
  const shown = text.length > maxChars ? text.slice(0, maxChars) : text
  const rest = text.length - shown.length
  return shown.replace(dangerous, escapeOf) + (rest > 0 ? `… (${rest} more characters)` : '')
}

/**
 * Several lines behind a margin, so that none can look like a line of ours. Only LF breaks a line; a tab is two spaces.
 * @param maxLines lines beyond it are counted, not shown
 */
export function foreignBlock(text: string, margin = '  │ ', maxLines = 200): string {
  const lines = text.split('\n')
  if (lines.at(-1) === '') lines.pop()
  const shown = lines
    .slice(0, maxLines)
    .map((line) => margin + foreignLine(line.replaceAll('\t', '  '), 2_000))
  if (lines.length > maxLines) shown.push(`${margin}… (${lines.length - maxLines} more lines)`)
  return shown.join('\n')
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
