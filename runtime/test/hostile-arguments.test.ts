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

const call = { id: 'c', type: 'function', function: { name: 'x', arguments: '{}' } } as const
async function executed(work: (environment: runtime.LLMEnvironment) => unknown): Promise<void> {
  await using environment = runtime.createLLMEnvironment()
  await work(environment)
}

const functions: Readonly<Record<string, (value: never) => unknown>> = {
  generate: (value) => runtime.generate(value),
  stream: (value) => drain(runtime.stream(value)),
  generateStructured: (value) => runtime.generateStructured(value),
  runTurnLoop: (value) => runtime.runTurnLoop(value),
  complete: (value) => runtime.complete(value),
  streamComplete: (value) => drain(runtime.streamComplete(value)),
  createRuntime: (value) => runtime.createRuntime(value),
  executeTool: (value) => runtime.executeTool(value, call, {}),
  'executeTool, its call': (value) => executed((environment) => runtime.executeTool(environment, value, {})),
  'executeTool, its options': (value) =>
    executed((environment) => runtime.executeTool(environment, call, value)),
  createLLMEnvironment: (value) => runtime.createLLMEnvironment(value),
  disposeLLMEnvironment: (value) => runtime.disposeLLMEnvironment(value),
  getProviderStatus: (value) => runtime.getProviderStatus(value),
  parseMcpConfig: (value) => runtime.parseMcpConfig(value),
  parsePendingUserInput: (value) => runtime.parsePendingUserInput(value),
  createUserInputResult: (value) => runtime.createUserInputResult(value, value),
  parseToolFailureArtifact: (value) => runtime.parseToolFailureArtifact(value),
  parsePendingHumanRequest: (value) => runtime.parsePendingHumanRequest(value),
  parseToolValidationFailureArtifact: (value) => runtime.parseToolValidationFailureArtifact(value),
  McpRegistry: (value) => new runtime.McpRegistry(value),
  'McpRegistry.callTool': (value) => new runtime.McpRegistry().callTool(value, value, value, value),
  SkillRegistry: (value) => new runtime.SkillRegistry(value),
  'SkillRegistry.setRoots': (value) => new runtime.SkillRegistry().setRoots(value),
  'SkillRegistry.getSkill': (value) => new runtime.SkillRegistry().getSkill(value),
  'SkillRegistry.loadSkill': (value) => new runtime.SkillRegistry().loadSkill(value),
  ProviderStore: (value) => new runtime.ProviderStore(value),
  'ProviderStore.configure': (value) => new runtime.ProviderStore().configure(value, value),
  'ProviderStore.get': (value) => new runtime.ProviderStore().get(value),
  'ProviderStore.remove': (value) => new runtime.ProviderStore().remove(value),
  'ProviderStore.status': (value) => new runtime.ProviderStore().status(value),
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
