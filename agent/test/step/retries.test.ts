// What a broken answer may never do: make a tool run on half a turn, or twice for one.
import { expect, it } from 'vitest'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { createModel } from '#runtime/llm/model.ts'
import { faults } from '#specs/testing/model-quirks.ts'
import { delta, event, reply, toolDelta } from '#specs/testing/model-replies.ts'
import { type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { runStep } from '../../step/step.ts'
import { makeRun } from '../support/run.ts'

const step = { id: 's', title: 't', instructions: 'i', needs: [], writes: ['*'], onFailure: 'abort' as const }
const opening: readonly ChatMessage[] = [
  { role: 'system', content: 'system' },
  { role: 'user', content: 'user' },
]
const args = { path: 'a', content: 'x' }
const call = reply({ calls: [{ name: 'write_note', arguments: args }] })
const wholeCall = toolDelta({
  index: 0,
  id: 'c1',
  function: { name: 'write_note', arguments: JSON.stringify(args) },
})

async function perform(replies: readonly ServerReply[]) {
  await using server = await startModelServer(replies)
  const waits = { firstEventTimeoutMs: 300, idleTimeoutMs: 300, firstDelayMs: 1, maxDelayMs: 1 }
  const { run, diary, events, deltas } = makeRun({
    model: createModel({ model: 'm', baseUrl: server.baseUrl, ...waits }),
  })
  const result = await runStep(step, opening, run, run.signal)
  run.budget.stop()
  return { result, asked: server.asked, calls: diary.calls, events: events.map(({ type }) => type), deltas }
}

/** Whole calls in answers that break off behind them. */
const broken: Readonly<Record<string, ServerReply>> = {
  'the connection is reset': { body: wholeCall, after: 'reset' },
  'the connection is closed': { body: wholeCall, after: 'cut' },
  'nothing more comes': { body: wholeCall, after: 'hang' },
  'the stream ends without a finish': { body: wholeCall },
  'an error follows': { body: `${wholeCall}${event({ error: { message: 'overloaded', code: 503 } })}` },
  'the next event is not JSON': { body: `${wholeCall}data: {oops\n\n` },
  'another call is cut off': {
    body: `${wholeCall}${toolDelta({ index: 1, id: 'c2', function: { name: 'drop_note', arguments: '{"pa' } })}${delta({}, 'tool_calls')}`,
  },
}

it.each(Object.entries(broken))(
  'starts no call of a turn when %s behind it, and one call when the turn comes whole [G.05]',
  async (_name, reply1) => {
    const { result, calls, events, asked } = await perform([reply1, call, reply({ text: 'ok' })])
    expect(result).toMatchObject({ state: 'completed', text: 'ok' })
    expect(calls).toEqual(['write a'])
    expect(events.filter((type) => type === 'tool-start')).toHaveLength(1)
    expect(asked).toHaveLength(3)
  },
)

it('voids the pieces of a broken turn, and begins the offsets of the next request anew [S1.10]', async () => {
  const half = { body: delta({ content: 'half' }), after: 'reset' } as const
  const { deltas } = await perform([half, call, reply({ text: 'ok' })])
  expect(deltas.slice(0, 2)).toMatchObject([
    { type: 'text-delta', text: 'half', offset: 0 },
    { type: 'turn-reset', stepId: 's', turn: 1 },
  ])
  const pieces = deltas.filter((one) => one.type === 'arguments-delta')
  expect(pieces[0]).toMatchObject({ turn: 1, offset: 0, index: 0, tool: 'write_note' })
  expect(pieces.map(({ text }) => text).join('')).toBe(JSON.stringify(args))
  expect(deltas.at(-1)).toEqual({ type: 'text-delta', stepId: 's', turn: 2, offset: 0, text: 'ok' })
})

it.each(Object.entries<ServerReply>(faults))(
  'does not repeat a turn whose calls were started when the next answer is %s [G.05]',
  async (_name, fault) => {
    const { result, calls, asked } = await perform([call, fault, reply({ text: 'ok' })])
    expect(calls).toEqual(['write a'])
    // What is asked again is the next turn: it carries the result of the call.
    for (const { messages } of asked.slice(1)) expect(messages.at(-1)).toMatchObject({ role: 'tool' })
    if (result.state === 'completed') expect(result.text).toBe('ok')
    else expect(result.reason).toMatch(/^model_/)
  },
)
