/**
 * Which tools are meant by a list of names: patterns with `*`, and `!` in front to take some away. A list whose first entry takes
 * away begins with all.
 */
import type { Result } from '#specs/protocol/error.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'

/** The names that are meant, in the order of `all`; the error holds the entries that are about none of them. */
export function chooseNames(
  all: readonly string[],
  wanted: readonly string[],
): Result<readonly string[], readonly string[]> {
  const isNegative = (entry: string | undefined): boolean => entry?.startsWith('!') ?? false
  const chosen = new Set<string>(isNegative(wanted[0]) ? all : [])
  const unknown: string[] = []
  for (const entry of wanted) {
    const pattern = isNegative(entry) ? entry.slice(1) : entry
    const matching = all.filter((name) => matchesPattern(pattern, name))
    // Nothing to take away is no mistake where a pattern says so; a name that nothing has is one.
    if (matching.length === 0 && !(isNegative(entry) && pattern.includes('*'))) unknown.push(entry)
    for (const name of matching) {
      if (isNegative(entry)) chosen.delete(name)
      else chosen.add(name)
    }
  }
  return unknown.length > 0
    ? { ok: false, error: unknown }
    : { ok: true, value: all.filter((name) => chosen.has(name)) }
}
