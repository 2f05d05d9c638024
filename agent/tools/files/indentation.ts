/**
 * Adapts new lines to a file's indentation: a constant shift, or tabs for a number of spaces. Applies only what the
 * matched lines prove; refuses everything else. Pure.
 */

/** The white space before a line's text. */
function indentOf(line: string): string {
  return /^[ \t]*/.exec(line)?.[0] ?? ''
}

/** Applies the file's indentation to a new line; null when it is ambiguous. */
type Reindent = (line: string) => string | null

const units = ['\t', '  ', '   ', '    ', '        ']

/**
 * Finds the indentation change between `written` and `found`, lines equal except for white space; null when it is
 * ambiguous.
 */
export function findReindent(written: readonly string[], found: readonly string[]): Reindent | null {
  const known = new Map<string, string>()
  for (const [at, line] of written.entries()) {
    if (line.trim() === '') continue
    const from = indentOf(line)
    const to = indentOf(found[at] ?? '')
    if ((known.get(from) ?? to) !== to) return null
    known.set(from, to)
  }
  const rules = rulesFor([...known])
  return (line) => {
    if (line.trim() === '') return line
    const from = indentOf(line)
    const to = known.get(from) ?? agreed(rules.map((rule) => rule(from)))
    return to === null ? null : to + line.slice(from.length)
  }
}

type Rule = (indent: string) => string | null

/** One shift if it explains all pairs; otherwise every unit conversion that does. */
function rulesFor(pairs: readonly (readonly [string, string])[]): readonly Rule[] {
  const fits = (rule: Rule): boolean => pairs.every(([from, to]) => rule(from) === to)
  const [from, to] = pairs[0] ?? ['', '']
  const shifts: Rule[] = []
  if (to.endsWith(from)) {
    const more = to.slice(0, to.length - from.length)
    shifts.push((indent) => more + indent)
  }
  if (from.endsWith(to)) {
    const less = from.slice(0, from.length - to.length)
    shifts.push((indent) => (indent.startsWith(less) ? indent.slice(less.length) : null))
  }
  const shift = shifts.find(fits)
  if (shift !== undefined) return [shift]
  return units.flatMap((unit) => units.map((other) => exchange(unit, other))).filter(fits)
}

function exchange(unit: string, other: string): Rule {
  return (indent) => {
    const count = indent.length / unit.length
    return Number.isInteger(count) && indent === unit.repeat(count) ? other.repeat(count) : null
  }
}

/** The common result of all rules that apply; null when they differ or none applies. */
function agreed(answers: readonly (string | null)[]): string | null {
  const said = new Set(answers.filter((answer) => answer !== null))
  const [only] = said
  return said.size === 1 && only !== undefined ? only : null
}
