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
/** The end of a part, where the next one follows. */
const plainEnds = /[a-z0-9](?=[A-Z])|[A-Z](?=[A-Z][a-z])/g
const anyEnds = /[\p{Ll}\p{N}](?=\p{Lu})|\p{Lu}(?=\p{Lu}\p{Ll})/gu
const isPlain = /^[\0-\x7f]*$/
/** Longer runs are data, not names. */
const nameMaxChars = 80
/** Names whose parts are remembered while one text after the other is prepared. */
const knownMaxNames = 20_000
/** Of a query; the rest says nothing more. */
const queryMaxTerms = 48

/** Asked for only where a query has nothing else. */
const commonWords = new Set(
  'a an and are as at be by do does for from how i in is it of on or that the this to was what when where which who why with you'.split(
    ' ',
  ),
)

/** Prepares texts for the index; one for many texts. */
export class IndexWords {
  readonly #known = new Map<string, string>()

  /** `text`, and behind it the parts of its joined names, so that these are found by their parts as well as whole. */
  prepare(text: string): string {
    const names = text.match(isPlain.test(text) ? plainNames : anyNames)
    if (names === null) return text
    let prepared = text
    for (const name of names) if (name.length <= nameMaxChars) prepared += this.#partsOf(name)
    return prepared
  }

  #partsOf(name: string): string {
    const known = this.#known.get(name)
    if (known !== undefined) return known
    const parts = `\n${partsOf(name)}`
    if (this.#known.size >= knownMaxNames) this.#known.clear()
    this.#known.set(name, parts)
    return parts
  }
}

/** A name with spaces between its parts. */
function partsOf(name: string): string {
  return name.replaceAll(isPlain.test(name) ? plainEnds : anyEnds, '$& ')
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
