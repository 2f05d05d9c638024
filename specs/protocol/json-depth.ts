/** Checks the nesting depth of a JSON value. Its own recursion is bounded by the requested depth. */

/** Whether objects and lists nest at most this deep; a primitive has depth zero. */
export function isWithinDepth(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return depth > 0 && Object.values(value).every((child) => isWithinDepth(child, depth - 1))
}
