/** Which notes fit a few words: by the words they share, the rarer the better. The same words give the same order. */

/** What of a note is looked at. */
export interface Rankable {
  readonly noteId: string
  readonly text: string
  readonly tags: readonly string[]
}

const weights = { tag: 3, word: 2, beginning: 1 } as const
/** Words of a query that count. */
const queryMaxWords = 32

/**
 * Those of `notes` that share a word with the query, the best first; of equals the one that comes first in `notes`. All of
 * them for a query without words.
 */
export function rankNotes<T extends Rankable>(query: string, notes: readonly T[]): T[] {
  const wanted = [...wordsOf(query)].slice(0, queryMaxWords)
  if (wanted.length === 0) return [...notes]
  const read = notes.map((note) => ({
    note,
    words: wordsOf(note.text),
    tags: wordsOf(note.tags.join(' ')),
  }))
  const scores = new Map(read.map(({ note }) => [note, 0]))
  for (const word of wanted) {
    const hits = read.flatMap(({ note, words, tags }) => {
      const weight = weightOf(word, words, tags)
      return weight === 0 ? [] : [{ note, weight }]
    })
    const rarity = Math.log(1 + notes.length / (hits.length + 1))
    for (const { note, weight } of hits) scores.set(note, (scores.get(note) ?? 0) + weight * rarity)
  }
  const found = notes.filter((note) => (scores.get(note) ?? 0) > 0)
  return found.toSorted((a, b) => (scores.get(b) ?? 0) - (scores.get(a) ?? 0))
}

function weightOf(word: string, words: ReadonlySet<string>, tags: ReadonlySet<string>): number {
  if (tags.has(word)) return weights.tag
  if (words.has(word)) return weights.word
  const begins = (other: string): boolean =>
    Math.min(word.length, other.length) >= 3 && (other.startsWith(word) || word.startsWith(other))
  return [...words, ...tags].some(begins) ? weights.beginning : 0
}

function wordsOf(text: string): Set<string> {
  const plain = text.normalize('NFKC').toLowerCase()
  return new Set(plain.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== ''))
}
