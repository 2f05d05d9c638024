/**
 * Names of tools that every provider takes (a letter or `_`, then letters, digits, `_` and `-`, 64 at most), and the way back
 * from them. A name is the same whichever other tools there are, as long as no two would become one.
 */
import { createHash } from 'node:crypto'

const maxChars = 64
const safe = /^[A-Za-z_][A-Za-z0-9_-]{0,63}$/

/** The safe name by the real one. `names` are sorted and differ. */
export function makeSafeNames(names: readonly string[]): ReadonlyMap<string, string> {
  const safeNames = new Map<string, string>()
  // Who is safe already keeps its name, whoever comes first.
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

/** `plain`, cut where needed, with eight digits that stand for the whole of `name`. */
export function withDigest(plain: string, name: string): string {
  const digest = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return `${plain.slice(0, maxChars - 9)}_${digest}`
}
