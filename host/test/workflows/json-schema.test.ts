import { readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { workflowJsonSchema } from '../../workflows/json-schema.ts'

const root = new URL('../../../', import.meta.url)
const read = (file: string): unknown => JSON.parse(readFileSync(new URL(file, root), 'utf8'))

describe('the JSON schema of workflow files', () => {
  const validate = new Ajv2020({ strict: false }).compile(workflowJsonSchema())

  it('is the published one', () => {
    expect(read('specs/workflow.schema.json')).toEqual(workflowJsonSchema())
  })

  it('accepts the example [S3.01]', () => {
    expect(validate(read('examples/workflows/review.workflow.json')), JSON.stringify(validate.errors)).toBe(
      true,
    )
  })

  it.each([
    ['an unknown key', { 'A@1@stp-x#details': {} }],
    ['an unknown field', { 'A@1@step-x#details': { chats: [] } }],
    ['a wrong role', { 'A@1@step-x#details': { chat: [{ role: 'sys', content: 'x' }] } }],
    ['a function without a description', { 'A@1@func-x#details': {} }],
    ['a list without steps', { 'A@1#details': {} }],
  ])('refuses %s', (_, file) => {
    expect(validate(file)).toBe(false)
  })
})
