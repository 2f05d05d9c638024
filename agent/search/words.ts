/**
 * Words of code: what an index is given of a text, and what a query asks of it. A query is words and nothing else: whatever
 * the index takes for syntax is dropped before it gets there.
 */

/**
 * Names whose parts are joined by capitals, `readFile`, `HTTPServer`. Each looks for all of them at once, in V8's own code: in a VM
 * without acceleration a loop in JavaScript takes twenty times as long.
 */
const plainNames = /(?<![A-Za-z0-9])[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*/g
const anyNames = /(?<![\p{L}\p{N}])[\p{L}\p{N}]*(?:[\p{Ll}\p{N}]\p{Lu}|\p{Lu}{2}\p{Ll})[\p{L}\p{N}]*/gu
/** Between a part and the next one. */
const plainSeams = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g
const anySeams = /(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/gu
const isPlain = /^[\0-\x7f]*$/
/** Longer runs are data, not names. */
const nameMaxChars = 80
/** Of a query; the rest says nothing more. */
const queryMaxTerms = 48

/** Asked for only where a query has nothing else. */
const commonWords = new Set(
  'a an and are as at be by do does for from how i in is it of on or that the this to was what when where which who why with you'.split(
    ' ',
  ),
)

/**
 * `text`, and behind it the parts of its joined names, so that these are found by their parts as well as whole.
 * @param isAscii known of the text or of what it was cut from; absent: it is looked at
 */
export function prepareText(text: string, isAscii = isPlain.test(text)): string {
  const names = text.match(isAscii ? plainNames : anyNames)
  if (names === null) return text
  // All names at once, for the same reason.
  const parts = partsOf(names.filter(({ length }) => length <= nameMaxChars).join('\n'), isAscii)
  return parts === '' ? text : `${text}\n${parts}`
}

/** Names with spaces between their parts. */
function partsOf(names: string, isAscii = isPlain.test(names)): string {
  return names.replace(isAscii ? plainSeams : anySeams, ' ')
}

/**
 * What of the index is asked for `query`: any of its words, each name also as a whole and as its parts beside one another,
 * whichever way it is joined. Quoted letters and digits with `OR` between them; null where the query has none.
 */
export function matchOf(query: string): string | null {
  const wanted = new Set<string>()
  const common = new Set<string>()
  // A name with everything that joins its parts: read_file, read-file, readFile, file.read.ts.
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
