/** Which name somebody meant who misspelled one. */

/** The name that is at most a third of its letters away; case does not count. */
export function nearestName(wrong: string, names: readonly string[]): string | undefined {
  const word = wrong.slice(0, 64).toLowerCase()
  const ranked = names
    .map((name) => ({ name, distance: distanceOf(word, name.toLowerCase()) }))
    .filter(({ name, distance }) => distance <= Math.max(1, Math.floor(name.length / 3)))
    .toSorted((a, b) => a.distance - b.distance)
  return ranked[0]?.name
}

/** Letters that are inserted, removed, replaced or swapped with the next one. */
export function distanceOf(a: string, b: string): number {
  let before: number[] = []
  let row = Array.from({ length: b.length + 1 }, (_, index) => index)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const isSame = a[i - 1] === b[j - 1]
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      next.push(
        Math.min(
          (next[j - 1] ?? 0) + 1,
          (row[j] ?? 0) + 1,
          (row[j - 1] ?? 0) + (isSame ? 0 : 1),
          isSwapped ? (before[j - 2] ?? 0) + 1 : Number.POSITIVE_INFINITY,
        ),
      )
    }
    before = row
    row = next
  }
  return row.at(-1) ?? 0
}
