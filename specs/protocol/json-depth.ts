/** How deep a JSON value nests. Goes no deeper itself than it is asked about. */

/** Whether objects and lists lie in one another at most so deep; a plain value has no depth. */
export function isWithinDepth(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true
  return depth > 0 && Object.values(value).every((child) => isWithinDepth(child, depth - 1))
}
