/** Objects of JSON, and references within one document. */

/** Resolves a reference within `root`; undefined when it is external or dangling. */
export function definitionOf(reference: string, root: Readonly<Record<string, unknown>>): unknown {
  if (reference === '#') return root
  if (!reference.startsWith('#/')) return undefined
  let at: unknown = root
  for (const step of reference.slice(2).split('/')) {
    const key = step.replaceAll('~1', '/').replaceAll('~0', '~')
    if (!isRecord(at) || !Object.hasOwn(at, key)) return undefined
    at = at[key]
  }
  return at
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
