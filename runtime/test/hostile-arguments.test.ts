// What an application may get wrong: each public function of the library is given values of every type.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { CaissonError, hasCode } from '#specs/errors.ts'
import * as runtime from '../index.ts'
import { createScriptedModel } from '../testing/index.ts'

const anything = fc.oneof(fc.anything(), fc.record({ provider: fc.anything(), model: fc.anything() }))
const drain = async (items: AsyncIterable<unknown>): Promise<void> => {
  for await (const _ of items);
}

const functions: Readonly<Record<string, (value: never) => unknown>> = {
  generate: (value) => runtime.generate(value),
  stream: (value) => drain(runtime.stream(value)),
  generateStructured: (value) => runtime.generateStructured(value),
  runTurnLoop: (value) => runtime.runTurnLoop(value),
  executeTool: (value) =>
    runtime.executeTool(value, { id: 'c', type: 'function', function: { name: 'x', arguments: '{}' } }, {}),
  parseMcpConfig: (value) => runtime.parseMcpConfig(value),
  createScriptedModel: (value) => createScriptedModel(value),
}

it.each(Object.keys(functions))('%s refuses what it cannot use with a code [E.01 S2.01]', async (name) => {
  await fc.assert(
    fc.asyncProperty(anything, async (value) => {
      const thrown = await Promise.resolve()
        .then(() => functions[name]?.(value as never))
        .then(
          () => undefined,
          (error: unknown) => error,
        )
      if (thrown === undefined) return
      expect(thrown).toBeInstanceOf(CaissonError)
      expect(hasCode(thrown, 'internal'), String(thrown)).toBe(false)
    }),
    { seed: 20_261_122, numRuns: 100 },
  )
})
