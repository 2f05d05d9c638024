/**
 * Resolves a list of tool names: patterns with `*`, and exclusions with a leading `!`. A list that begins with an
 * exclusion starts from all tools.
 */
import type { Result } from '#specs/protocol/error.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'

/** The matching names in the order of `all`; the error holds the entries that match nothing. */
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
    // An exclusion pattern may match nothing; an unknown name is an error.
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
