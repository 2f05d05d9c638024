/**
 * Words of code: what an index is given of a text, and what a query asks of it. A query is words and nothing else: whatever
 * the index takes for syntax is dropped before it gets there.
 */

/** Where one part of an identifier ends and the next begins: `readFile`, `HTTPServer`. */
const seam = /[\p{Ll}\p{N}]\p{Lu}|\p{Lu}{2}\p{Ll}/gu
/** The same of plain letters, in a fraction of the time. */
const plainSeam = /[a-z0-9][A-Z]|[A-Z]{2}[a-z]/g
const isPlain = /^[\0-\x7f]*$/
const seams = /(?<=[\p{Ll}\p{N}])(?=\p{Lu})|(?<=\p{Lu})(?=\p{Lu}\p{Ll})/u
const letter = /[\p{L}\p{N}]/u
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
    let parts = ''
    let end = 0
    for (const { index } of text.matchAll(isPlain.test(text) ? plainSeam : seam)) {
      if (index < end) continue
      let start = index
      while (start > end && index - start <= nameMaxChars && isLetter(text, start - 1)) start--
      end = index + 2
      while (end < text.length && end - start <= nameMaxChars && isLetter(text, end)) end++
      if (end - start <= nameMaxChars) parts += `\n${this.#partsOf(text.slice(start, end))}`
    }
    return text + parts
  }

  #partsOf(name: string): string {
    const known = this.#known.get(name)
    if (known !== undefined) return known
    const parts = name.split(seams).join(' ')
    if (this.#known.size >= knownMaxNames) this.#known.clear()
    this.#known.set(name, parts)
    return parts
  }
}

function isLetter(text: string, at: number): boolean {
  const code = text.charCodeAt(at)
  if (code < 0x80)
    return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122)
  return letter.test(text.charAt(at))
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
    const parts = runs.flatMap((run) => run.split(seams)).map((part) => part.toLowerCase())
    if (parts.length > 1 && parts.length <= 8) wanted.add(parts.join(' '))
    for (const word of [...runs.map((run) => run.toLowerCase()), ...parts])
      (commonWords.has(word) ? common : wanted).add(word)
  }
  const terms = [...(wanted.size === 0 ? common : wanted)].slice(0, queryMaxTerms)
  return terms.length === 0 ? null : terms.map((term) => `"${term}"`).join(' OR ')
}
