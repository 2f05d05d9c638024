/**
 * Tokenizes code: the index terms of a text, and the match expression of a query. A query contains only words; index
 * syntax in it is dropped.
 */

/**
 * Camel-case names, `readFile`, `HTTPServer`. Each expression finds all of them in one native pass: in a VM without
 * acceleration a JavaScript loop is twenty times slower.
 */
const plainNames = /(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*/g
const anyNames = /(?<![\p{L}\p{N}])[\p{L}\p{N}]*(?:[\p{Ll}\p{N}]\p{Lu}|\p{Lu}{2}\p{Ll})[\p{L}\p{N}]*/gu
/** Boundary between two parts. */
const plainSeams = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g
const anySeams = /(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/gu
const isPlain = /^[\0-\x7f]*$/
/** Longer runs are data, not names. */
const nameMaxChars = 80
/** Maximum terms of a query; more add nothing. */
const queryMaxTerms = 48

/** Stop words, used only when a query has nothing else. */
const commonWords = new Set(
  'a an and are as at be by do does for from how i in is it of on or that the this to was what when where which who why with you'.split(
    ' ',
  ),
)

/**
 * `text`, followed by the parts of its camel-case names, so that both the name and its parts match.
 * @param isAscii known of the text or of its source; absent: it is checked
 */
export function prepareText(text: string, isAscii = isPlain.test(text)): string {
  const names = text.match(isAscii ? plainNames : anyNames)
  if (names === null) return text
  // All names in one pass, for the same reason.
  const parts = partsOf(names.filter(({ length }) => length <= nameMaxChars).join('\n'), isAscii)
  return parts === '' ? text : `${text}\n${parts}`
}

/** Names with spaces between their parts. */
function partsOf(names: string, isAscii = isPlain.test(names)): string {
  return names.replace(isAscii ? plainSeams : anySeams, ' ')
}

/**
 * The match expression for `query`: any of its words, each name as a whole and as adjacent parts, however joined.
 * Quoted letters and digits with `OR` between them; null when the query has no word.
 */
export function matchOf(query: string): string | null {
  const wanted = new Set<string>()
  const common = new Set<string>()
  // A name with all joining characters: read_file, read-file, readFile, file.read.ts.
  for (const [name] of query.matchAll(/[\p{L}\p{N}]+(?:[-_.:/\\]+[\p{L}\p{N}]+)*/gu)) {
    const runs = name.split(/[^\p{L}\p{N}]+/u).filter((run) => run.length <= nameMaxChars)
    const parts = runs.flatMap((run) => partsOf(run).toLowerCase().split(' '))
    if (parts.length > 1 && parts.length <= 8) wanted.add(parts.join(' '))
    for (const word of [...runs.map((run) => run.toLowerCase()), ...parts])
      (commonWords.has(word) ? common : wanted).add(word)
  }
  const terms = [...(wanted.size === 0 ? common : wanted)].slice(0, queryMaxTerms)
  return terms.length === 0 ? null : terms.map((term) => `"${term}"`).join(' OR ')
}
