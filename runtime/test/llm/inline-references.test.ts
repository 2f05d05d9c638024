// References in the schemas of servers and applications, which some model servers do not follow.
import { Validator } from '@cfworker/json-schema'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { inlineReferences } from '../../llm/inline-references.ts'

describe('references within a schema', () => {
  it('are replaced by what they name, as pydantic writes them [G.07]', () => {
    const schema = {
      type: 'object',
      $defs: {
        Address: { type: 'object', properties: { city: { type: 'string' }, kind: { $ref: '#/$defs/Kind' } } },
        Kind: { enum: ['home', 'work'], type: 'string' },
      },
      properties: {
        address: { $ref: '#/$defs/Address', description: 'Where to' },
        others: { anyOf: [{ type: 'array', items: { $ref: '#/$defs/Address' } }, { type: 'null' }] },
      },
      required: ['address'],
    }
    const kind = { enum: ['home', 'work'], type: 'string' }
    const address = { type: 'object', properties: { city: { type: 'string' }, kind } }
    expect(inlineReferences(schema)).toEqual({
      type: 'object',
      properties: {
        address: { ...address, description: 'Where to' },
        others: { anyOf: [{ type: 'array', items: address }, { type: 'null' }] },
      },
      required: ['address'],
    })
  })

  it('of a recursive type are expanded once; deeper values are of its type alone', () => {
    const node = {
      type: 'object',
      description: 'A node',
      properties: { name: { type: 'string' }, children: { type: 'array', items: { $ref: '#/$defs/Node' } } },
      additionalProperties: false,
    }
    const inlined = inlineReferences({
      $defs: { Node: node },
      type: 'object',
      properties: { root: { $ref: '#/$defs/Node' } },
    })
    expect(JSON.stringify(inlined)).not.toContain('$ref')
    const value = { root: { name: 'a', children: [{ name: 'b', children: [] }] } }
    expect(new Validator(inlined, '2020-12').validate(value).valid).toBe(true)
    expect(new Validator(inlined, '2020-12').validate({ root: { children: [1] } }).valid).toBe(false)
  })

  it.each([
    ['of the web', { type: 'object', properties: { a: { $ref: 'https://example.com/schema' } } }],
    ['that name nothing', { type: 'object', $defs: { B: {} }, properties: { a: { $ref: '#/$defs/A' } } }],
  ])('%s stay, with the definitions', (_, schema) => {
    expect(inlineReferences(schema)).toEqual(schema)
  })

  it('are words where they are no references: names of properties, values', () => {
    const schema = {
      type: 'object',
      properties: { $ref: { type: 'string' }, a: { enum: [{ $ref: '#/x' }], default: { $ref: '#/y' } } },
    }
    expect(inlineReferences(schema)).toEqual(schema)
  })

  it('that would make a schema huge leave it unchanged', () => {
    const $defs: Record<string, unknown> = { L0: { type: 'string', description: 'lol' } }
    for (let level = 1; level < 40; level += 1) {
      const $ref = `#/$defs/L${level - 1}`
      $defs[`L${level}`] = {
        type: 'object',
        properties: Object.fromEntries([...'abcdefgh'].map((name) => [name, { $ref }])),
      }
    }
    const bomb = { type: 'object', $defs, properties: { a: { $ref: '#/$defs/L39' } } }
    expect(inlineReferences(bomb)).toBe(bomb)
  })

  it.each([
    ['empty schemas', {}],
    ['values that are no schemas', 'x'.repeat(40)],
  ])('that repeat a long list of %s leave it unchanged', (_, part) => {
    const properties = Object.fromEntries(
      Array.from({ length: 1_000 }, (_, at) => [`p${at}`, { $ref: '#/$defs/x' }]),
    )
    const bomb = { type: 'object', $defs: { x: { allOf: Array(10_000).fill(part) } }, properties }
    expect(inlineReferences(bomb)).toBe(bomb)
  })

  it('accept the same values as before, for any schema without recursion', () => {
    const leaf = fc.constantFrom(
      { type: 'string' },
      { type: 'integer' },
      { type: 'boolean' },
      { enum: ['a', 1] },
    )
    const child = fc.oneof(
      leaf,
      fc.integer({ min: 0, max: 2 }).map((at) => ({ $ref: `#/$defs/D${at}` })),
    )
    const object = (part: fc.Arbitrary<object>) =>
      fc.record({
        type: fc.constant('object'),
        properties: fc.dictionary(fc.constantFrom('a', 'b', '$ref'), part),
      })
    const definitions = fc.tuple(object(leaf), object(leaf), leaf).map(([D0, D1, D2]) => ({ D0, D1, D2 }))
    fc.assert(
      fc.property(definitions, object(child), fc.jsonValue({ maxDepth: 3 }), (found, root, value) => {
        const schema = { ...root, $defs: found }
        const inlined = inlineReferences(schema)
        expect(JSON.stringify(inlined)).not.toContain('#/$defs')
        const values = [value, { a: value }, { a: { a: value, b: 1 }, b: 'x' }, { a: { a: 'a' } }]
        for (const one of values)
          expect(new Validator(inlined, '2020-12').validate(one).valid).toBe(
            new Validator(schema, '2020-12').validate(one).valid,
          )
      }),
      { numRuns: 300 },
    )
  })
})
