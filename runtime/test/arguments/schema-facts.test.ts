// Schemas of servers, which may be made to keep the reader busy.
import { describe, expect, it } from 'vitest'
import { decodeNestedJson } from '../../arguments/nested-json.ts'
import { acceptedTypes, allowsNull } from '../../arguments/schema-facts.ts'

/** Options that lead to the same part in 40 to the power of 7 ways. */
function manyWays(last: object) {
  const $defs: Record<string, unknown> = { L0: last }
  for (let level = 1; level < 8; level += 1)
    $defs[`L${level}`] = { anyOf: Array(40).fill({ $ref: `#/$defs/L${level - 1}` }) }
  return { type: 'object', $defs, properties: { p: { $ref: '#/$defs/L7' } } }
}

describe('what a schema accepts', () => {
  it('is read once for each part, however many ways lead to it [G.07]', () => {
    const schema = manyWays({ type: 'object' })
    expect(acceptedTypes(schema.properties.p, schema)).toEqual(new Set(['object']))
    expect(allowsNull(schema.properties.p, schema)).toBe(false)
    expect(allowsNull(schema.properties.p, manyWays({ type: 'null' }))).toBe(true)
    expect(decodeNestedJson({ p: '{"a":1}' }, schema, [])).toEqual({ p: { a: 1 } })
  })

  it('is anything where it leads back to itself alone, and what its other options say besides', () => {
    const $defs = { A: { $ref: '#/$defs/B' }, B: { $ref: '#/$defs/A' }, C: {} as object }
    $defs.C = { anyOf: [{ $ref: '#/$defs/C' }, { type: 'null' }] }
    const root = { $defs }
    expect(acceptedTypes($defs.A, root)).toBeNull()
    expect(acceptedTypes($defs.C, root)).toBeNull()
    expect(allowsNull($defs.C, root)).toBe(true)
  })

  it('is that of no other object for names that objects have by themselves', () => {
    const root = JSON.parse('{"$defs":{"__proto__":{"type":"object"}}}')
    expect(acceptedTypes({ $ref: '#/$defs/__proto__' }, root)).toEqual(new Set(['object']))
    expect(acceptedTypes({ $ref: '#/$defs/constructor' }, root)).toBeNull()
    expect(acceptedTypes({ $ref: '#/__proto__/toString' }, root)).toBeNull()
    const args = JSON.parse('{"__proto__":"{\\"polluted\\":true}"}')
    const decoded = decodeNestedJson(args, { additionalProperties: { type: 'object' } }, [])
    expect(Object.getOwnPropertyDescriptor(decoded, '__proto__')?.value).toEqual({ polluted: true })
    expect(Object.getPrototypeOf(decoded)).toBe(Object.prototype)
  })
})
