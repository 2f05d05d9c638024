// What a person does to one sub-agent: a message, and a cancel that its parent survives.
import { describe, expect, it } from 'vitest'
import type { Step } from '#specs/protocol/plan.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { runAgentStep } from '../../plan/agent-step.ts'
import { Steering } from '../../run/steering.ts'
import { SubAgents } from '../../run/sub-agents.ts'
import { runStep } from '../../step/step.ts'
import { byBrief, makeAgents, write } from '../support/agents.ts'
import { modelAt } from '../support/run.ts'

const never = new AbortController().signal
const step: Step = {
  id: 'fan-out',
  title: 'Fan out',
  instructions: 'ROOT',
  needs: [],
  writes: ['*'],
  onFailure: 'abort',
}
const opening = [
  { role: 'system', content: "You are Caisson's agent." },
  { role: 'user', content: 'ROOT' },
] as const
const message = (messageId: string, text: string) => ({ messageId, text })
const spawn = (name: string) => ({ name: 'spawn_agent', arguments: { name, brief: name.toUpperCase() } })
const waitLong = reply({ calls: [{ name: 'wait_long', arguments: {} }] })
const saidTo = (word: string, server: { asked: readonly { messages: readonly unknown[] }[] }) =>
  server.asked.map(({ messages }) => JSON.stringify(messages)).filter((text) => text.includes(word))

describe('a person and one sub-agent', () => {
  it('sends it a message, which it alone has at its next turn [A.07 A.08]', async () => {
    await using server = await startModelServer(
      byBrief({
        ROOT: [reply({ calls: [spawn('one'), spawn('two')] }), reply({ text: 'all done' })],
        ONE: [
          () => {
            expect(bench.run.subAgents.steer('root/one', message('m1', 'use tabs'))).toEqual({
              ok: true,
              value: {},
            })
            // Sent again after a lost session.
            expect(bench.run.subAgents.steer('root/one', message('m1', 'use tabs')).ok).toBe(true)
            return write('one.txt', '1')
          },
          reply({ text: 'one is done' }),
        ],
        TWO: [write('two.txt', '2'), reply({ text: 'two is done' })],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl) })
    expect(await runStep(step, opening, bench.run, never)).toMatchObject({ text: 'all done' })
    expect(saidTo('use tabs', server)).toHaveLength(1)
    expect(saidTo('use tabs', server)[0]).toContain('ONE')
    expect(saidTo('use tabs', server)[0]?.split('use tabs')).toHaveLength(2)
    expect(bench.heard.get('root/one')).toContainEqual({
      type: 'steer-seen',
      stepId: 'agent',
      messageIds: ['m1'],
    })
    expect(bench.run.subAgents.steer('root/one', message('m2', 'late'))).toEqual({
      ok: false,
      error: { code: 'notFound', message: 'no sub-agent root/one is at work; none is' },
    })
    expect(bench.run.subAgents.steer('root/one', message('m1', 'use tabs')).ok).toBe(true)
  })

  it('cancels it: those below end, its parent learns why and continues, its files are not merged [A.07 A.08]', async () => {
    await using server = await startModelServer(
      byBrief({
        ROOT: [reply({ calls: [spawn('one'), spawn('two')] }), reply({ text: 'all done' })],
        ONE: [write('one.txt', '1'), reply({ calls: [spawn('deep')] }), reply({ text: 'never said' })],
        DEEP: [
          () => {
            setTimeout(() => bench.run.subAgents.cancel('root/one', 'not needed'), 20)
            return waitLong
          },
        ],
        TWO: [write('two.txt', '2'), reply({ text: 'two is done' })],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl) })
    expect(await runStep(step, opening, bench.run, never)).toMatchObject({
      state: 'completed',
      text: 'all done',
    })
    const told = server.asked.at(-1)?.messages.filter(({ role }) => role === 'tool')
    expect(told?.map(({ content }) => content?.split('\n'))).toEqual([
      [
        '[sub-agent one: cancelled (cancelled)]',
        '[Caisson] Cancelled by the person: not needed',
        '[it brought no changes]',
      ],
      ['[sub-agent two: completed]', 'two is done', '[brought over: two.txt]'],
    ])
    for (const path of ['root/one', 'root/one/deep'])
      expect(bench.heard.get(path)?.at(-1)).toMatchObject({ type: 'agent-end', state: 'cancelled' })
    expect(bench.open.size).toBe(0)
    expect(bench.run.subAgents.cancel('root/one', 'again').ok).toBe(true)
    expect(bench.run.subAgents.cancel('root/two', 'late')).toMatchObject({
      ok: false,
      error: { code: 'notFound' },
    })
  })

  it('withdraws the questions of a cancelled one [A.07 A.08]', async () => {
    const ask = { name: 'ask_user', arguments: { question: 'Which?', kind: 'text' } }
    await using server = await startModelServer(
      byBrief({ ONE: [reply({ calls: [ask] }), reply({ text: 'never' })] }),
    )
    const withdrawn = Promise.withResolvers<void>()
    using bench = makeAgents({
      model: modelAt(server.baseUrl),
      decide: (_request, signal) => {
        signal.addEventListener('abort', () => withdrawn.resolve(), { once: true })
        setTimeout(() => bench.run.subAgents.cancel('root/one', ''), 10)
        return new Promise<never>((_, reject) => {
          signal.addEventListener('abort', () => reject(new Error('withdrawn')), { once: true })
        })
      },
    })
    const result = await bench.agents.spawn({ brief: 'ONE: ask', name: 'one' }, 'fan-out', never)
    expect(result).toMatchObject({ state: 'cancelled', text: '[Caisson] Cancelled by the person.' })
    await withdrawn.promise
  })

  it('cancels the one that carries out a step of a plan: the step fails as denied and is not tried again [A.01 A.07]', async () => {
    await using server = await startModelServer(
      byBrief({
        LONG: [
          () => {
            setTimeout(() => bench.run.subAgents.cancel('root/fan-out', 'not needed'), 10)
            return waitLong
          },
        ],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl) })
    const ended = await runAgentStep({ ...step, title: 'LONG', kind: 'agent' }, [], bench.run, never)
    expect(ended).toMatchObject({ state: 'failed', reason: 'denied', isFinal: true })
    expect(ended.text).toContain('Cancelled by the person: not needed')
  })

  it('does not begin again when the run continues after a loss; messages reach those that do [A.07 A.08 R.01]', async () => {
    await using server = await startModelServer(byBrief({ TWO: [reply({ text: 'two is done' })] }))
    const steering = new Steering()
    const subAgents = new SubAgents(steering, {
      cancelledAgents: [{ agentPath: 'root/one', reason: 'not needed' }],
      messages: [
        { ...message('m1', 'use tabs'), agentPath: 'root/two' },
        { ...message('m2', 'and you'), agentPath: 'root/three' },
      ],
    })
    using bench = makeAgents({ model: modelAt(server.baseUrl), subAgents })
    const one = await bench.agents.spawn({ brief: 'ONE: do it', name: 'one' }, 'fan-out', never)
    expect(one).toMatchObject({ state: 'cancelled', text: '[Caisson] Cancelled by the person: not needed' })
    expect(bench.heard.has('root/one')).toBe(false)
    // Sent again by the host.
    expect(subAgents.steer('root/two', message('m1', 'use tabs')).ok).toBe(true)
    await bench.agents.spawn({ brief: 'TWO: do it', name: 'two' }, 'fan-out', never)
    expect(saidTo('use tabs', server)).toHaveLength(1)
    expect(subAgents.close()).toMatchObject([{ messageId: 'm2', text: 'and you' }])
  })
})
