import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { closeSchema, toGoogleSchema } from '#specs/node/model-protocols/schemas.ts'
import { isRecord } from '../../llm/json-schema.ts'
import { makeSafeNames } from '../../providers/names.ts'

const node = {
  type: 'object',
  properties: { next: { $ref: '#/$defs/node' }, value: { type: ['integer', 'null'], minimum: 0 } },
}

describe('schemas for Gemini', () => {
  it('keep what is nested, and say in its words what it words otherwise [S2.06]', () => {
    const schema = {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      additionalProperties: false,
      required: ['list', 'gone'],
      properties: {
        list: {
          type: 'array',
          items: { type: 'object', properties: { deep: { type: 'array', items: { type: 'number' } } } },
        },
        either: { anyOf: [{ type: 'string' }, { type: 'null' }], description: 'one' },
        both: { type: ['string', 'number'], description: 'two' },
        fixed: { const: 'k' },
        level: { enum: [1, 2, 3], description: 'How much.' },
        tree: { $ref: '#/$defs/node' },
        merged: { allOf: [{ type: 'object', properties: { a: { type: 'string' } } }, { required: ['a'] }] },
        bare: {},
        items: { type: 'array' },
      },
      $defs: { node },
    }
    expect(toGoogleSchema(schema)).toEqual({
      type: 'object',
      required: ['list'],
      properties: {
        list: {
          type: 'array',
          items: { type: 'object', properties: { deep: { type: 'array', items: { type: 'number' } } } },
        },
        either: { type: 'string', nullable: true, description: 'one' },
        both: { anyOf: [{ type: 'string' }, { type: 'number' }], description: 'two' },
        fixed: { type: 'string', enum: ['k'] },
        level: { type: 'number', description: 'How much. One of: 1, 2, 3.' },
        tree: {
          type: 'object',
          properties: { next: { type: 'object' }, value: { type: 'integer', nullable: true, minimum: 0 } },
        },
        merged: { type: 'object', properties: { a: { type: 'string' } }, required: ['a'] },
        bare: { type: 'string' },
        items: { type: 'array', items: { type: 'string' } },
      },
    })
    expect(toGoogleSchema({ type: 'object', properties: {} })).toBeUndefined()
  })

  it("stay small where a stranger's references would multiply [S2.06]", () => {
    const defs: Record<string, unknown> = {}
    for (let at = 0; at < 40; at++) {
      const $ref = `#/$defs/d${at + 1}`
      defs[`d${at}`] = { type: 'object', properties: { a: { $ref }, b: { $ref } } }
    }
    const converted = toGoogleSchema({
      type: 'object',
      properties: { x: { $ref: '#/$defs/d0' } },
      $defs: defs,
    })
    expect(JSON.stringify(converted).length).toBeLessThan(1_000_000)
  })

  it('never throw, and always have a type, whatever they are made of', () => {
    const { schema } = fc.letrec((tie) => ({
      schema: fc.oneof(
        { maxDepth: 5 },
        fc.jsonValue(),
        fc.record(
          {
            type: fc.oneof(fc.constantFrom('object', 'array', 'string', 'null', 'number'), fc.jsonValue()),
            properties: fc.dictionary(fc.oneof(fc.string(), fc.constant('__proto__')), tie('schema'), {
              maxKeys: 3,
            }),
            items: fc.oneof(tie('schema'), fc.array(tie('schema'), { maxLength: 2 })),
            anyOf: fc.array(tie('schema'), { maxLength: 3 }),
            allOf: fc.array(tie('schema'), { maxLength: 3 }),
            enum: fc.array(fc.jsonValue(), { maxLength: 3 }),
            required: fc.oneof(fc.array(fc.string()), fc.jsonValue()),
            $ref: fc.constantFrom('#', '#/$defs/a', '#/nowhere', 'https://x'),
          },
          { requiredKeys: [] },
        ),
      ),
    }))
    const check = (value: unknown) => {
      const root = { type: 'object', properties: { value }, $defs: { a: value } }
      const converted = toGoogleSchema(root)
      closeSchema(root)
      const inner = isRecord(converted?.properties) ? converted.properties.value : undefined
      expect(isRecord(inner) && (typeof inner.type === 'string' || Array.isArray(inner.anyOf))).toBe(true)
    }
    fc.assert(fc.property(schema, check), { seed: 20_261_121, numRuns: 500 })
    expect(Reflect.ownKeys(Object.prototype)).not.toContain('type')
  })
})

describe('safe names of tools', () => {
  it('are taken by every provider, differ, and depend on the name alone where they can [S0.11]', () => {
    const long = `server_${'x'.repeat(80)}`
    const names = ['1st', 'a b', 'a_b', 'a.b', long, `${long}y`, 'ok-1_A', '', 'é'].toSorted()
    const safe = makeSafeNames(names)
    expect(new Set(safe.values()).size).toBe(names.length)
    for (const name of safe.values()) expect(name).toMatch(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/)
    expect(safe.get('a_b')).toBe('a_b')
    expect(safe.get('ok-1_A')).toBe('ok-1_A')
    expect(safe.get('1st')).toBe('_1st')
    expect(makeSafeNames([long]).get(long)).toBe(safe.get(long))
  })

  it('differ whatever the names are [S0.11]', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.string({ maxLength: 70 }), { maxLength: 30 }), (names) => {
        expect(new Set(makeSafeNames(names.toSorted()).values()).size).toBe(names.length)
      }),
      { seed: 7, numRuns: 300 },
    )
  })
})
