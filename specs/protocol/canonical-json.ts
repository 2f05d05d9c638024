/** Canonical JSON, so that equal values have equal text. */

/** JSON of `value` with the keys of every object sorted. */
export function toCanonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, child: unknown) =>
    typeof child === 'object' && child !== null && !Array.isArray(child)
      ? Object.fromEntries(Object.entries(child).toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : child,
  )
}
