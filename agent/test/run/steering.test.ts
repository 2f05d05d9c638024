// What a person does to a running agent: messages, pauses, and a cancel that keeps what was said.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { limits } from '#specs/protocol/limits.ts'
import { delta, reply } from '#specs/testing/model-replies.ts'
import { type Script, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { followPauses } from '../../run/pause.ts'
import { Steering } from '../../run/steering.ts'
import { runStep } from '../../step/step.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, toolSuccess } from '../../tool-calls/tool.ts'
import { performStep, type StepTestOptions, someOpening, someStep } from '../support/one-step.ts'
import { makeRun, modelAt, silentLogger, type TestRun } from '../support/run.ts'

const message = (messageId: string, text = `text of ${messageId}`) => ({ messageId, text })
const call = (name: string, args: unknown) => reply({ calls: [{ name, arguments: args }] })

const perform = (
  script: Script | readonly ServerReply[],
  during: (test: TestRun) => void = () => undefined,
  options: Omit<StepTestOptions, 'during'> = {},
) => performStep(script, { ...options, during })

it('a message that the host sends again is no new one to the conversation that had it, nor to the run [R.01 V.05]', () => {
  const steering = new Steering()
  for (const id of ['old', 'new']) steering.push(message(id))
  using reader = steering.join()
  using other = steering.join()
  reader.forget([message('old')])
  steering.restore([message('old')])
  expect(reader.take()).toEqual([message('new')])
  expect(other.take()).toEqual([message('old'), message('new')])
  expect(steering.push(message('old'))).toBe('taken')
  expect(steering.close()).toEqual([])
  expect(steering.seen).toEqual([message('old'), message('new')])
})

describe('messages of a person', () => {
  it('reach every conversation that is active once, and go to those that begin later [A.08]', () => {
    const steering = new Steering()
    expect(steering.push(message('early'))).toBe('taken')
    using first = steering.join()
    using second = steering.join()
    expect(first.take()).toEqual([message('early')])
    expect(second.take()).toEqual([message('early')])
    expect(first.take()).toEqual([])
    expect(first.pending).toBe(false)
    steering.push(message('late'))
    expect(first.pending).toBe(true)
    expect(first.take()).toEqual([message('late')])
    expect(second.take()).toEqual([message('late')])
    expect(steering.seen).toEqual([message('early'), message('late')])
    using third = steering.join()
    expect(third.take()).toEqual([])
  })

  it('are the same message when they come again, wait in a bounded number, and end with the run [A.08]', () => {
    const steering = new Steering()
    for (let n = 0; n < limits.steerMaxPending; n++) expect(steering.push(message(`m${n}`))).toBe('taken')
    expect(steering.push(message('one too many'))).toBe('busy')
    expect(steering.push(message('m0'))).toBe('taken')
    expect(steering.close()).toHaveLength(limits.steerMaxPending)
    expect(steering.push(message('after'))).toBe('over')
    expect(steering.push(message('m0'))).toBe('taken')
  })

  it('wait in a bounded number also for a conversation that is long in coming to them [A.08]', () => {
    const steering = new Steering()
    using quick = steering.join()
    using slow = steering.join()
    const ids = Array.from({ length: limits.steerMaxPending }, (_, n) => `m${n}`)
    for (const id of ids) {
      expect(steering.push(message(id))).toBe('taken')
      quick.take()
    }
    expect(steering.push(message('one too many'))).toBe('busy')
    // As many as one event names.
    expect(slow.take().map(({ messageId }) => messageId)).toEqual(ids)
    expect(steering.push(message('the next'))).toBe('taken')
  })

  it('are known again as long as the host can send them again, and no longer [A.08]', () => {
    const steering = new Steering()
    using reader = steering.join()
    const send = (id: string): number => {
      expect(steering.push(message(id))).toBe('taken')
      return reader.take().length
    }
    expect(send('first')).toBe(1)
    for (let n = 1; n < limits.pendingMaxRequests; n++) expect(send(`m${n}`)).toBe(1)
    expect(send('first')).toBe(0)
    expect(send('one more')).toBe(1)
    expect(send('first')).toBe(1)
  })

  it('are each seen or given back at the end, whoever reads when [A.08]', () => {
    const operation = fc.oneof(
      fc.constant('push' as const),
      fc.constant('join' as const),
      fc.nat(3).map((reader) => ({ take: reader })),
      fc.nat(3).map((reader) => ({ leave: reader })),
    )
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 40 }), (operations) => {
        const steering = new Steering()
        const readers: { reader: ReturnType<Steering['join']>; got: string[] }[] = []
        const pushed: string[] = []
        for (const one of operations) {
          if (one === 'push') {
            if (steering.push(message(`m${pushed.length}`)) === 'taken') pushed.push(`m${pushed.length}`)
          } else if (one === 'join') readers.push({ reader: steering.join(), got: [] })
          else if ('take' in one) {
            const entry = readers[one.take]
            entry?.got.push(...entry.reader.take().map(({ messageId }) => messageId))
          } else readers[one.leave]?.reader[Symbol.dispose]()
        }
        const seen = new Set(readers.flatMap(({ got }) => got))
        const left = steering.close().map(({ messageId }) => messageId)
        expect([...seen, ...left].toSorted()).toEqual(pushed.toSorted())
        for (const { got } of readers) expect(new Set(got).size).toBe(got.length)
      }),
      { seed: 21, numRuns: 300 },
    )
  })

  it('stand in the conversation from the next turn on, in a block that they cannot close [A.08]', async () => {
    let test: TestRun | undefined
    const { asked, events, result } = await perform(
      (_asked, index) => {
        if (index === 0) test?.run.steering.push(message('m1', 'in German\n</message>\nand more'))
        return index === 0 ? call('read_note', { path: 'a' }) : reply({ text: 'fertig' })
      },
      (made) => {
        test = made
      },
    )
    expect(result.text).toBe('fertig')
    expect(asked[1]?.messages.at(-1)).toEqual({
      role: 'user',
      content: '# Messages from the user\n<message>\nin German\n<\\/message>\nand more\n</message>',
    })
    const types = events.map(({ type }) => type)
    expect(types).toEqual(['turn-end', 'tool-start', 'tool-end', 'steer-seen', 'turn-end'])
    expect(events[3]).toEqual({ type: 'steer-seen', stepId: 's', messageIds: ['m1'] })
  })

  it('that come while the model gives its last answer get another turn [A.08]', async () => {
    let test: TestRun | undefined
    const { asked, result } = await perform(
      (_asked, index) => {
        if (index === 0) test?.run.steering.push(message('m1'))
        return reply({ text: index === 0 ? 'done' : 'done as you said' })
      },
      (made) => {
        test = made
      },
    )
    expect(result).toMatchObject({ state: 'completed', text: 'done as you said' })
    expect(asked[1]?.messages.at(-2)).toMatchObject({ role: 'assistant', content: 'done' })
  })

  it('are left for whoever comes next where the step has no turn left [A.08]', async () => {
    let test: TestRun | undefined
    const { run, result } = await perform(
      () => {
        test?.run.steering.push(message('m1'))
        return reply({ text: 'done' })
      },
      (made) => {
        test = made
      },
      { task: { limits: { maxTurnsPerStep: 1 } } },
    )
    expect(result.text).toBe('done')
    expect(run.steering.close()).toEqual([message('m1')])
  })

  it('are not for sub-agents [A.08]', async () => {
    await using server = await startModelServer([reply({ text: 'done' })])
    const { run } = makeRun({ model: modelAt(server.baseUrl) })
    run.steering.push(message('m1'))
    await runStep(
      someStep,
      someOpening,
      { ...run, steering: new Steering(run.steering), agentPath: 'root/child' },
      run.signal,
    )
    run.budget.stop()
    expect(JSON.stringify(server.asked[0]?.messages)).not.toContain('text of m1')
    expect(run.steering.close()).toHaveLength(1)
  })
})

describe('a pause', () => {
  const paused = (test: TestRun) => {
    const told = followPauses(test.run.steering, test.run.budget, test.run.report, silentLogger)
    test.run.steering.setPaused(true)
    return told
  }

  it('holds before a turn and continues after it, told once, with the clock standing [A.08]', async () => {
    let told: ReturnType<typeof paused> | undefined
    const { asked, events, result } = await perform(
      [reply({ text: 'done' })],
      (test) => {
        told = paused(test)
        test.run.steering.setPaused(true)
        setTimeout(() => {
          expect(test.deltas).toEqual([])
          test.run.steering.setPaused(false)
        }, 1_300)
      },
      { task: { limits: { maxWallMs: 1_000 } } },
    )
    await told?.end()
    expect(asked).toHaveLength(1)
    expect(result.state).toBe('completed')
    expect(events.map(({ type }) => type)).toEqual(['pause-start', 'pause-end', 'turn-end'])
  })

  it('holds before each call of a turn, and lets what is under way end [A.08]', async () => {
    const done: string[] = []
    let test: TestRun | undefined
    // The first call is under way when the person pauses.
    const pausing = defineTool({
      name: 'write_note',
      description: 'Writes.',
      inputSchema: z.strictObject({ path: z.string() }),
      outputSchema: z.strictObject({}),
      requiresApproval: false,
      readOnly: false,
      execute: async ({ path }) => {
        if (path === 'a') {
          test?.run.steering.setPaused(true)
          setTimeout(() => {
            done.push('resumed')
            test?.run.steering.setPaused(false)
          }, 60)
          await new Promise((resolve) => setTimeout(resolve, 5))
        }
        done.push(path)
        return toolSuccess({})
      },
    })
    const calls = ['a', 'b'].map((path) => ({ name: 'write_note', arguments: { path } }))
    const { result } = await perform(
      (_asked, index) => (index === 0 ? reply({ calls }) : reply({ text: 'done' })),
      (made) => {
        test = made
      },
      { registry: createRegistry([pausing], { logger: silentLogger }) },
    )
    expect(done).toEqual(['a', 'resumed', 'b'])
    expect(result.state).toBe('completed')
  })

  it('holds before a call that is allowed meanwhile [A.08] [S1.11]', async () => {
    const done: string[] = []
    let test: TestRun | undefined
    const calls = [{ name: 'drop_note', arguments: { path: 'a' } }]
    const { result } = await perform(
      (_asked, index) => (index === 0 ? reply({ calls }) : reply({ text: 'done' })),
      (made) => {
        test = made
      },
      {
        decide: async () => {
          test?.run.steering.setPaused(true)
          setTimeout(() => {
            done.push(...(test?.diary.calls ?? []), 'resumed')
            test?.run.steering.setPaused(false)
          }, 60)
          return { decision: 'allow' }
        },
      },
    )
    expect(done).toEqual(['resumed'])
    expect(test?.diary.calls).toEqual(['drop a'])
    expect(result.state).toBe('completed')
  })

  it('does not keep a run from being cancelled, and ends with it [A.08]', async () => {
    let told: ReturnType<typeof paused> | undefined
    const { asked, events, result } = await perform([reply({ text: 'done' })], (test) => {
      told = paused(test)
      setTimeout(() => test.cancel(), 30)
    })
    await told?.end()
    expect(result.state).toBe('cancelled')
    expect(asked).toHaveLength(0)
    expect(events.map(({ type }) => type)).toEqual(['pause-start', 'pause-end'])
  })
})

describe('a cancel', () => {
  it('keeps what the model had said, in the journal and in the conversation [A.08 S1.10]', async () => {
    const silent = { body: delta({ content: 'I have found' }), after: 'hang' } as const
    const { result, events } = await perform([silent], (test) => {
      const watch = setInterval(() => {
        if (test.deltas.length === 0) return
        clearInterval(watch)
        test.cancel()
      }, 2)
    })
    expect(result).toMatchObject({ state: 'cancelled', text: 'interrupted while the model was speaking' })
    expect(events).toEqual([
      expect.objectContaining({
        type: 'turn-end',
        turn: 1,
        text: 'I have found',
        finishReason: 'cancelled',
        calls: [],
      }),
    ])
    expect(result.history.at(-1)).toMatchObject({ role: 'assistant', content: 'I have found' })
  })

  it('keeps nothing of an answer that was restarted [A.08]', async () => {
    const { events } = await perform(
      (_asked, index) =>
        index === 0
          ? { body: delta({ content: 'first words' }), after: 'reset' }
          : { body: delta({ content: 'other words' }), after: 'hang' },
      (test) => {
        const watch = setInterval(() => {
          if (!test.deltas.some((one) => one.type === 'text-delta' && one.text.startsWith('other'))) return
          clearInterval(watch)
          test.cancel()
        }, 2)
      },
    )
    expect(events.at(-1)).toMatchObject({ type: 'turn-end', text: 'other words' })
  })

  it('leaves no call without a result, at whatever moment it comes [A.04] [A.08]', async () => {
    const script: Script = (_asked, index) =>
      index % 3 === 2
        ? { body: delta({ content: 'hm' }), after: 'hang' }
        : reply({
            text: 'so',
            calls: [
              { name: 'read_note', arguments: { path: 'slow' } },
              { name: 'write_note', arguments: { path: `n${index}`, content: '' } },
              { name: 'read_note', arguments: { path: 'b' } },
            ],
          })
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 0, max: 90 }), async (delayMs) => {
        const { result, events } = await perform(script, ({ cancel }) => void setTimeout(cancel, delayMs))
        expect(result.state).toBe('cancelled')
        const open = new Set<string>()
        for (const event of events) {
          if (event.type === 'tool-start') open.add(event.callId)
          if (event.type === 'tool-end') open.delete(event.callId)
        }
        expect([...open]).toEqual([])
      }),
      { seed: 5, numRuns: 25 },
    )
  })
})
