/** A digest that identifies equal configurations. Their text, which holds keys, is not stored. */
import { createHash } from 'node:crypto'

/** Objects other than plain data (clients, dispatchers, adapters) equal only themselves. */
const identities = new WeakMap<object, number>()
let identityCount = 0

/** sha256 of the value with sorted keys; undefined counts as absent. */
export function hashConfig(value: unknown): string {
  return createHash('sha256').update(toCanonical(value)).digest('hex')
}

function toCanonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(toCanonical).join(',')}]`
  if (typeof value === 'function' || (typeof value === 'object' && value !== null && !isPlain(value)))
    return `#${identityOf(value)}`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null'
  const entries = Object.entries(value).filter(([, child]) => child !== undefined)
  const sorted = entries.toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${sorted.map(([key, child]) => `${JSON.stringify(key)}:${toCanonical(child)}`).join(',')}}`
}

/** Whether the value is plain data without methods. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return false
  return Object.values(value).every((child) => typeof child !== 'function')
}

function identityOf(value: object): number {
  const known = identities.get(value)
  if (known !== undefined) return known
  identities.set(value, ++identityCount)
  return identityCount
}
