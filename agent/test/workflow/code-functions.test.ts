// Workflows that call functions with code: whole runs with real programs.
import { afterAll, beforeAll, expect, it } from 'vitest'
import * as z from 'zod'
import { CodeFunction } from '#specs/protocol/workflow.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, toolSuccess } from '../../tool-calls/tool.ts'
import { toTool } from '../../tools/code/functions.ts'
import { TestPrograms } from '../support/programs.ts'
import { silentLogger } from '../support/run.ts'
import { runWhole } from '../support/whole-run.ts'
import { ways, workflowTask } from '../support/workflow.ts'

let programs: TestPrograms
beforeAll(async () => {
  programs = await TestPrograms.open()
})
afterAll(() => programs[Symbol.asyncDispose]())

const base = { description: 'Works.', parameters: { type: 'object' }, timeoutMs: 20_000, memoryMiB: 96 }

/** Calls `work`, then `use` with what it gave. */
async function run(code: string, use = 'def use(given): return repr(given)') {
  const functions = [
    { name: 'work', language: 'python', code },
    { name: 'use', language: 'python', code: use, parameters: { type: 'object', properties: { given: {} } } },
  ].map((one) => CodeFunction.parse({ ...base, ...one }))
  const task = workflowTask(
    {
      first: { call: { function: 'work', arguments: {} } },
      second: {
        call: { function: 'use', arguments: { given: '{{steps.first.output}}' } },
        after: ways('first'),
      },
    },
    { functions },
  )
  const tools = functions.map((one) => toTool(one, programs))
  const registry = createRegistry(tools, { logger: silentLogger })
  return (await runWhole(() => reply({ text: 'never asked' }), { task, parts: { registry } })).completion
}

it.each([
  ['null', 'None', 'None'],
  ['a text that looks like JSON', `'{"a": 1}'`, `'{"a": 1}'`],
  ['an empty text', "''", "''"],
  ['a list', '[1, None, {"constructor": 2}]', "[1, None, {'constructor': 2}]"],
  ['half a character', "'a\\ud800'", "'a\ufffd'"],
])('what code returns reaches the next function as it is: %s [S3.03 S3.10]', async (_, given, expected) => {
  const completion = await run(`def work(): return ${given}`)
  expect(completion).toMatchObject({ outcome: 'completed', summary: expected })
})

it.each([
  ['raises', 'def work(): raise ValueError("no sheet")', /step "first" failed: .*work.*no sheet/s],
  [
    'gives a deep list',
    'def work():\n  deep = []\n  for _ in range(40): deep = [deep]\n  return deep',
    /nests deeper than 32 levels/,
  ],
  ['ends its process', 'import os\ndef work(): os._exit(0)', /ended before the function returned/],
])('code that %s ends the run with the typed reason [S3.05 S3.10]', async (_, code, expected) => {
  const completion = await run(code)
  expect(completion).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
  expect(completion.message).toMatch(expected)
  await expect.poll(() => programs.running).toBe(0)
})

it.each([
  ['a list too deep', `${'['.repeat(100_000)}${']'.repeat(100_000)}`, 'output: nests deeper than 32 levels'],
  ['an infinite number', '[1e999]', 'output: has a number that is too large for JSON programs'],
  ['a forged prototype', '{"a":{"__proto__":1}}', 'output: has the key "__proto__"'],
])('a tool outside the VM that gives %s fails its step [S3.05]', async (_, given, expected) => {
  const far = defineTool({
    name: 'far',
    description: 'Far.',
    inputSchema: z.strictObject({}),
    outputSchema: z.string(),
    requiresApproval: false,
    readOnly: true,
    execute: async () => toolSuccess(given),
    render: (text) => text,
  })
  const task = workflowTask({ first: { call: { function: 'far', arguments: {} } } })
  const registry = createRegistry([far], { logger: silentLogger })
  const { completion } = await runWhole(() => reply({ text: 'never asked' }), { task, parts: { registry } })
  expect(completion).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
  expect(completion.message).toContain(`step "first" failed: ${expected}`)
})
