// Everything at once: models that say anything of the corpus in any order, answered by tools that do
// anything, cancelled anywhere.

import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import * as z from 'zod'
import { dresses, faults } from '#specs/testing/model-quirks.ts'
import { delta, done, failure, reply, toolDelta } from '#specs/testing/model-replies.ts'
import type { ServerReply } from '#specs/testing/model-server.ts'
import { perTier } from '#specs/testing/tier.ts'
import { defineTool, toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { someRunId } from '../support/run.ts'
import { isPlanning, planReply } from '../support/scripted-model.ts'
import { answer, call, type Ending, eventsOf, runTask } from './world.ts'

const rawCall = (name: string, text: string): ServerReply => ({
  body: `${toolDelta({ index: 0, id: 'same', function: { name, arguments: text } })}${delta({}, 'tool_calls')}${done}`,
})

/** Does what its arguments say. */
const moody = defineTool({
  name: 'do_thing',
  description: 'Does a thing.',
  inputSchema: z.strictObject({ mood: z.string() }),
  outputSchema: z.string(),
  requiresApproval: false,
  readOnly: false,
  execute: async ({ mood }, { signal }) => {
    if (mood === 'throw') throw new Error('no')
    if (mood === 'fail') return toolFailure('unavailable', 'not now', true)
    if (mood === 'wrong') return toolSuccess(7 as never)
    if (mood === 'much') return toolSuccess('much '.repeat(100_000))
    if (mood === 'slow') await sleep(20, undefined, { signal }).catch(() => undefined)
    return toolSuccess(mood)
  },
})

const replies: readonly ServerReply[] = [
  ...Object.values<ServerReply>(dresses),
  ...Object.values<ServerReply>(faults),
  ...['throw', 'fail', 'wrong', 'much', 'slow', 'fine'].map((mood) => call('do_thing', { mood })),
  call('write_file', { path: 'a.txt', content: 'x' }),
  call('read_file', { path: 'a.txt' }),
  call('delete_file', { path: 'a.txt' }),
  call('read_output', { callId: 'same' }),
  call('no_such_tool', {}),
  rawCall('do_thing', '{"mood":"fi'),
  rawCall('do_thing', '{"__proto__":{"mood":"fine"}}'),
  reply({
    calls: ['fine', 'fail', 'much'].map((mood) => ({ id: 'same', name: 'do_thing', arguments: { mood } })),
  }),
  reply({ text: 'and so on', finishReason: 'length' }),
  reply({ text: 'held back', finishReason: 'content_filter' }),
  reply({ text: '', reasoning: 'hm' }),
  failure(400, 'maximum context length is 9000 tokens'),
  failure(429, 'slow down'),
  failure(500, 'oops'),
  answer('STEP FAILED: no'),
  answer('done'),
]

const plans = [
  [{ id: 'a' }],
  [{ id: 'a', retries: 2, onFailure: 'continue' }, { id: 'b' }, { id: 'c', needs: ['a', 'b'] }],
  [
    { id: 'a', onFailure: 'replan' },
    { id: 'b', when: { step: 'a', state: 'failed' } },
  ],
  [
    { id: 'a', output: { type: 'object', required: ['x'] } },
    { id: 'b', needs: ['a'], instructions: '{{steps.a.x}}' },
  ],
].map((steps) =>
  planReply({
    goal: 'g',
    steps: steps.map((step) => ({ title: 't', instructions: 'i', writes: [], ...step })),
  }),
)

/** What holds of every run, however it went. */
function expectSound(ending: Ending): void {
  const { completion, asked } = ending
  expect(completion.message).not.toBe('')
  const callIds = eventsOf(ending, 'tool-start').map(({ callId }) => callId)
  expect(new Set(callIds).size).toBe(callIds.length)
  // A call that a run's end went over has been told as well, or its run was left behind.
  expect(
    eventsOf(ending, 'tool-end')
      .map(({ callId }) => callId)
      .toSorted(),
  ).toEqual(callIds.toSorted())
  for (const { messages } of asked) {
    messages.forEach((message, at) => {
      const ids = message.tool_calls?.map(({ id }) => id) ?? []
      const results = messages.slice(at + 1, at + 1 + ids.length).map((one) => one.tool_call_id)
      expect(results.toSorted()).toEqual(ids.toSorted())
      // Who adapts requests to a provider replaces an empty text (specs/node/provider-quirks/adaptation.ts).
      expect(message.content === null && ids.length === 0).toBe(false)
    })
  }
}

it('ends with a reason, every call answered, whatever is said in whatever order [T.02]', async () => {
  const script = fc.record({
    plan: fc.constantFrom(...plans),
    said: fc.array(fc.nat(replies.length - 1), { minLength: 1, maxLength: 10 }),
    cancelAt: fc.oneof({ weight: 3, arbitrary: fc.constant(-1) }, { weight: 1, arbitrary: fc.nat(40) }),
  })
  await fc.assert(
    fc.asyncProperty(script, async ({ plan, said, cancelAt }) => {
      let turn = 0
      let heard = 0
      const ending = await runTask(
        (asked) => {
          if (isPlanning(asked)) return plan
          return replies[said[turn++] ?? -1] ?? answer('done')
        },
        {
          files: { 'a.txt': 'alpha' },
          tools: [moody],
          task: { limits: { maxTurnsPerStep: 12 } },
          model: { idleTimeoutMs: 40, firstEventTimeoutMs: 40 },
          onEvent: (_event, tasks) => {
            if (heard++ === cancelAt) tasks.cancel(someRunId, 'enough')
          },
          deadlineMs: 20_000,
        },
      )
      expectSound(ending)
    }),
    { numRuns: perTier(20, 60), seed: 5, endOnFailure: true },
  )
}, 120_000)
