// The input of a workflow as fields.
import { expect, it } from 'vitest'
import { fieldsOf, inputOf, inputOfJson } from '../runs/input-form.ts'

const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more })

it('a schema of plain properties has a field for each, with its first value [S3.04 H.02]', () => {
  const schema = object(
    {
      file: { type: 'string', description: 'A path' },
      hours: { type: 'integer', default: 8 },
      share: { type: 'number' },
      how: { enum: ['fast', 'slow'] },
      deep: { type: 'boolean' },
    },
    { required: ['file', 'how'] },
  )
  expect(fieldsOf(schema)).toEqual([
    { name: 'file', kind: 'text', options: [], isRequired: true, description: 'A path', initial: '' },
    { name: 'hours', kind: 'integer', options: [], isRequired: false, description: '', initial: '8' },
    { name: 'share', kind: 'number', options: [], isRequired: false, description: '', initial: '' },
    {
      name: 'how',
      kind: 'choice',
      options: ['fast', 'slow'],
      isRequired: true,
      description: '',
      initial: 'fast',
    },
    { name: 'deep', kind: 'boolean', options: [], isRequired: false, description: '', initial: '' },
  ])
  expect(fieldsOf(object({}))).toEqual([])
})

it.each([
  undefined,
  true,
  { type: 'array', items: {} },
  object({ a: { type: 'object' } }),
  object({ a: { type: ['string', 'null'] } }),
  object({ a: { enum: ['x', 1] } }),
  object({ a: { $ref: '#/$defs/a' } }),
  object({ a: { type: 'string' } }, { oneOf: [] }),
  object({ a: { type: 'string' } }, { required: ['b'] }),
  object(Object.fromEntries(Array.from({ length: 21 }, (_, at) => [`p${at}`, { type: 'string' }]))),
])('another schema is typed as JSON: %j [S3.04 H.02]', (schema) => {
  expect(fieldsOf(schema)).toBeUndefined()
})

it('what is typed becomes JSON of the right types; what is left empty and not required is left out [S3.04 H.02]', () => {
  const fields =
    fieldsOf(
      object(
        {
          text: { type: 'string' },
          n: { type: 'integer' },
          ok: { type: 'boolean' },
          sure: { type: 'boolean' },
        },
        { required: ['text', 'sure'] },
      ),
    ) ?? []
  expect(inputOf(fields, { n: '' })).toEqual({ ok: true, value: { text: '', sure: false } })
  expect(inputOf(fields, { text: 'a', n: ' 7 ', ok: 'false', sure: 'true' })).toEqual({
    ok: true,
    value: { text: 'a', n: 7, ok: false, sure: true },
  })
  for (const n of ['1.5', 'x', ' ', 'Infinity'])
    expect(inputOf(fields, { n })).toEqual({ ok: false, error: 'n: expected a whole number' })
  expect(inputOf(fieldsOf(object({ __proto__x: { type: 'string' } })) ?? [], { __proto__x: 'y' })).toEqual({
    ok: true,
    value: { __proto__x: 'y' },
  })
})

it('JSON is read as it is; nothing is no input [S3.04 H.02]', () => {
  expect(inputOfJson(' ')).toEqual({ ok: true, value: undefined })
  expect(inputOfJson('[1]')).toEqual({ ok: true, value: [1] })
  expect(inputOfJson('{a}')).toMatchObject({ ok: false, error: expect.stringContaining('is not JSON') })
})
