/** Ranks notes by the words they share with a query; rarer words count more. Deterministic. */

/** The searched fields of a note. */
interface Rankable {
  readonly noteId: string
  readonly text: string
  readonly tags: readonly string[]
}

const weights = { tag: 3, word: 2, beginning: 1 } as const
/** Maximum words of a query. */
const queryMaxWords = 16
/** Minimum length of a shared prefix. */
const beginningChars = 3

interface Words {
  readonly text: ReadonlySet<string>
  readonly tags: ReadonlySet<string>
  /** Prefixes of all words. */
  readonly beginnings: ReadonlySet<string>
}

/** Caches the words of each note. */
const known = new WeakMap<Rankable, Words>()

/** Notes that share a word with the query, best first; ties keep their order. An empty query returns all. */
export function rankNotes<T extends Rankable>(query: string, notes: readonly T[]): T[] {
  const wanted = [...wordsOf(query)].slice(0, queryMaxWords)
  if (wanted.length === 0) return [...notes]
  const scores = new Map<T, number>()
  for (const word of wanted) {
    const hits = notes.flatMap((note) => {
      const weight = weightOf(word, readNote(note))
      return weight === 0 ? [] : [{ note, weight }]
    })
    const rarity = Math.log(1 + notes.length / (hits.length + 1))
    for (const { note, weight } of hits) scores.set(note, (scores.get(note) ?? 0) + weight * rarity)
  }
  const found = notes.filter((note) => (scores.get(note) ?? 0) > 0)
  return found.toSorted((a, b) => (scores.get(b) ?? 0) - (scores.get(a) ?? 0))
}

function weightOf(word: string, { text, tags, beginnings }: Words): number {
  if (tags.has(word)) return weights.tag
  if (text.has(word)) return weights.word
  if (word.length < beginningChars || !beginnings.has(word.slice(0, beginningChars))) return 0
  const begins = (other: string): boolean =>
    other.length >= beginningChars && (other.startsWith(word) || word.startsWith(other))
  return [...text, ...tags].some(begins) ? weights.beginning : 0
}

function readNote(note: Rankable): Words {
  const read = known.get(note)
  if (read !== undefined) return read
  const text = wordsOf(note.text)
  const tags = wordsOf(note.tags.join(' '))
  const beginnings = new Set([...text, ...tags].map((word) => word.slice(0, beginningChars)))
  const found = { text, tags, beginnings }
  known.set(note, found)
  return found
}

function wordsOf(text: string): Set<string> {
  const plain = text.normalize('NFKC').toLowerCase()
  return new Set(plain.split(/[^\p{L}\p{N}]+/u).filter((word) => word !== ''))
}
