/**
 * Maps tool names to names that every provider accepts (a letter or `_`, then letters, digits, `_` and `-`, at most
 * 64) and back. A name does not depend on other tools unless two would collide.
 */
import { createHash } from 'node:crypto'

const maxChars = 64
const safe = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/

/** Safe names by real name. `names` are sorted and unique. */
export function makeSafeNames(names: readonly string[]): ReadonlyMap<string, string> {
  const safeNames = new Map<string, string>()
  // Names that are safe stay unchanged, regardless of order.
  const taken = new Set(names.filter((name) => safe.test(name)))
  for (const name of names) {
    const plain = safe.test(name) ? name : makeSafe(name)
    const free = plain === name || !taken.has(plain) ? plain : withDigest(plain, name)
    taken.add(free)
    safeNames.set(name, free)
  }
  return safeNames
}

function makeSafe(name: string): string {
  const plain = name.replaceAll(/[^A-Za-z0-9_-]/g, '_')
  const begun = /^[A-Za-z_]/.test(plain) ? plain : `_${plain}`
  return begun.length <= maxChars ? begun : withDigest(begun, name)
}

/** `plain`, shortened if needed, with an eight-digit digest of `name`. */
export function withDigest(plain: string, name: string): string {
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return `${plain.slice(0, maxChars - 9)}_${digest}`
}
