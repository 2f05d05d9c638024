// The input of a tool has the type of its schema. The types are checked when tsc reads this file.
import { expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { type ApplicationTools, defineTool, type LLMToolContext } from '../index.ts'

it('types the input of execute from a zod schema, with its defaults [S2.19]', async () => {
  const parameters = z.object({ city: z.string(), days: z.int().default(1) })
  const weather = defineTool({
    description: 'The weather of a city',
    parameters,
    execute(input, context) {
      expectTypeOf(input).toEqualTypeOf<{ city: string; days: number }>()
      expectTypeOf(context).toEqualTypeOf<LLMToolContext>()
      return `${input.city}: ${input.days}`
    },
  })
  const tools: ApplicationTools = { weather }
  const context = { toolCallId: 'c', signal: new AbortController().signal }
  expect(await tools.weather?.execute?.(parameters.parse({ city: 'Oslo' }), context)).toBe('Oslo: 1')
})

it('leaves the input of a JSON schema unknown [S2.19]', () => {
  const echo = defineTool({
    description: 'Repeats a text',
    parameters: { type: 'object', properties: { text: { type: 'string' } } },
    execute(input) {
      expectTypeOf(input).toEqualTypeOf<unknown>()
      return input
    },
  })
  expectTypeOf(echo).toExtend<ApplicationTools[string]>()
  expect(echo.parameters.type).toBe('object')
})

it('refuses a function whose input is not that of the schema [S2.19]', () => {
  const wrong = defineTool({
    description: 'Adds one',
    parameters: z.object({ count: z.number() }),
    // @ts-expect-error count is a number
    execute: ({ count }) => count.toUpperCase(),
  })
  expect(wrong.description).toBe('Adds one')
})
