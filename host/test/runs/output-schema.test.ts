import { execFileSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { OptionsError } from '../../check-options.ts'
import { checkAnswer, checkOutputSchema, readOutputSchema } from '../../runs/output-schema.ts'

const schema = {
  type: 'object',
  properties: { total: { type: 'integer', minimum: 0 }, unit: { enum: ['kg', 't'] } },
  required: ['total'],
  additionalProperties: false,
}
const completed = { outcome: 'completed', reason: 'completed', message: 'done' } as const
const nested = (levels: number): object => (levels === 0 ? {} : { not: nested(levels - 1) })

describe('an output schema', () => {
  it('is a copy without $schema, also of one that zod writes [A.12]', async () => {
    const given = z.toJSONSchema(z.object({ total: z.int(), tags: z.array(z.string()) }))
    const checked = await checkOutputSchema(given)
    expect(checked).not.toHaveProperty('$schema')
    expect(checked).toMatchObject({ type: 'object', required: ['total', 'tags'] })
    const recursive = { $ref: '#/$defs/node', $defs: { node: { properties: { next: { $ref: '#' } } } } }
    expect(await checkOutputSchema(recursive)).toEqual(recursive)
  })

  it.each([
    ['no object', [1], 'outputSchema', /must be an object/],
    ['no keyword', { name: 'x', version: '1' }, 'outputSchema', /expected a JSON schema, with a keyword/],
    ['a wrong type', { type: 'strng' }, 'outputSchema.type', /expected array, boolean, .*string/],
    [
      'a wrong part',
      { properties: { a: { items: 3 } } },
      'outputSchema.properties.a.items',
      /must be an object/,
    ],
    ['a list for items', { items: [{ type: 'string' }] }, 'outputSchema.items', /must be an object/],
    [
      'a wrong pattern',
      { properties: { a: { pattern: '(' } } },
      'outputSchema.properties.a.pattern',
      /regular/,
    ],
    [
      'a reference to elsewhere',
      { properties: { a: { $ref: 'http://x/y' } } },
      'outputSchema.properties.a.$ref',
      /this schema/,
    ],
    ['a dangling reference', { items: { $ref: '#/$defs/no' } }, 'outputSchema.items.$ref', /this schema/],
    ['an endless reference', { $ref: '#' }, 'outputSchema', /"\$ref" leads back to itself/],
    [
      'an endless circle of references',
      { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/b' }, b: { $ref: '#/$defs/a' } } },
      'outputSchema',
      /"\$ref" leads back to itself/,
    ],
    ['too deep', nested(17), 'outputSchema', /at most 16 levels/],
    ['too long', { const: 'x'.repeat(70_000) }, 'outputSchema', /at most 65536 characters/],
  ])('is refused with the place: %s [A.12]', async (_, given, field, message) => {
    const error: unknown = await checkOutputSchema(given).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(OptionsError)
    expect((error as OptionsError).fields).toContain(field)
    expect((error as OptionsError).message).toMatch(message)
  })

  it('is read from a file, and refused with the file and the place [A.12]', async () => {
    const folder = await temporaryFolder('schemas')
    const file = path.join(folder, 'schema.json')
    await writeFile(file, JSON.stringify(schema))
    expect(await readOutputSchema(file)).toEqual(schema)
    for (const [text, words] of [
      ['{"type": "object",}', /schema\.json: expected a JSON schema, seen no JSON: .*position 18/],
      ['{"properties": {"a": {"type": "int"}}}', /schema\.json: properties\.a\.type: expected array/],
      ['"object"', /schema\.json: must be an object/],
      [' '.repeat(600_000), /schema\.json: 600000 bytes, expected at most 524288/],
    ] as const) {
      await writeFile(file, text)
      await expect(readOutputSchema(file)).rejects.toThrow(words)
    }
    execFileSync('mkfifo', [path.join(folder, 'fifo')])
    for (const name of ['fifo', 'none', '.'])
      await expect(readOutputSchema(path.join(folder, name))).rejects.toThrow(/cannot be read/)
  })
})

describe('the answer that an agent reports', () => {
  it('is checked by the host, whatever the agent says of it [A.12]', async () => {
    const ending = (summary: string) => checkAnswer({ ...completed, summary }, schema)
    expect(await ending(' {"total": 1, "total": 2} ')).toEqual({
      ...completed,
      summary: '{"total":2}',
      structured: true,
    })
    const wrong = await ending('{"total":-1,"unit":"lb"}')
    expect(wrong).toMatchObject({
      outcome: 'failed',
      reason: 'answer_invalid',
      summary: '{"total":-1,"unit":"lb"}',
    })
    expect(wrong.message).toMatch(/does not fit the output schema: .*total.*unit/)
    for (const summary of ['', 'three', '{"total":1'])
      expect(await ending(summary)).toMatchObject({ reason: 'answer_invalid', summary })
    const deep = await checkAnswer(
      { ...completed, summary: '['.repeat(9e4) + ']'.repeat(9e4) },
      { items: {} },
    )
    expect(deep.message).toContain('nests deeper than 64 levels')
  })

  it('is left as it is without a schema, or when the run failed [A.12]', async () => {
    const plain = { ...completed, summary: 'three' }
    expect(await checkAnswer(plain, undefined)).toBe(plain)
    const failed = { outcome: 'failed', reason: 'step_failed', message: 'm', summary: '' } as const
    expect(await checkAnswer(failed, schema)).toBe(failed)
  })

  it('stops a pattern that takes too long [A.12]', async () => {
    const slow = { properties: { a: { pattern: '^(a+)+$' } } }
    const summary = JSON.stringify({ a: `${'a'.repeat(40)}b` })
    expect((await checkAnswer({ ...completed, summary }, slow)).message).toContain('take too long')
  })
})
