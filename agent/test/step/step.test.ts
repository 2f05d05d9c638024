// One step: the turn loop with the real registry and a scripted model behind the real client.
import { describe, expect, it } from 'vitest'
import { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
import { delta, event, reply } from '#specs/testing/model-replies.ts'
import type { Script, ServerReply } from '#specs/testing/model-server.ts'
import { performStep, type StepTestOptions } from '../support/one-step.ts'
import type { TestRun } from '../support/run.ts'

const calls = (...list: [name: string, args: unknown, id?: string][]) =>
  reply({
    calls: list.map(([name, args, id]) => ({ name, arguments: args, ...(id === undefined ? {} : { id }) })),
  })

const perform = (
  script: Script | readonly ServerReply[],
  options: Omit<StepTestOptions, 'during'> = {},
  during: (test: TestRun) => void = () => undefined,
) => performStep(script, { ...options, during })

describe('turns', () => {
  it('calls tools until the model answers in text [S4.07]', async () => {
    const { result, events, diary, asked } = await perform([
      calls(['read_note', { path: 'a' }]),
      reply({ text: ' It says so. ' }),
    ])
    expect(result).toMatchObject({ state: 'completed', reason: 'completed', text: 'It says so.' })
    expect(diary.calls).toEqual(['read a'])
    expect(events.map(({ type }) => type)).toEqual(['turn-end', 'tool-start', 'tool-end', 'turn-end'])
    expect(asked[1]?.messages.at(-1)).toMatchObject({ role: 'tool', content: 'text of a' })
  })

  it('keeps every request a continuation of the one before, byte for byte [A.05]', async () => {
    const { asked } = await perform([
      calls(['read_note', { path: 'a' }]),
      calls(['write_note', { path: 'b', content: 'x' }]),
      calls(['read_note', { path: 'missing' }]),
      reply({ text: 'done' }),
    ])
    const prefixes = asked.map(({ body }) => JSON.stringify(body.messages).slice(0, -1))
    const tools = asked.map(({ body }) => JSON.stringify(body.tools))
    expect(new Set(tools).size).toBe(1)
    for (let n = 1; n < prefixes.length; n++)
      expect(prefixes[n]?.startsWith(prefixes[n - 1] ?? '?')).toBe(true)
  })

  it('runs reading calls at once and gives their results in the order asked', async () => {
    const { result, diary } = await perform([
      calls(['read_note', { path: 'slow' }], ['read_note', { path: 'a' }], ['read_note', { path: 'b' }]),
      reply({ text: 'done' }),
    ])
    expect(diary.mostRunning).toBe(3)
    expect(result.history.filter(({ role }) => role === 'tool').map(({ content }) => content)).toEqual([
      'text of slow',
      'text of a',
      'text of b',
    ])
  })

  it('runs calls one after the other when one of them writes', async () => {
    const { diary } = await perform([
      calls(
        ['read_note', { path: 'slow' }],
        ['write_note', { path: 'a', content: '' }],
        ['read_note', { path: 'b' }],
      ),
      reply({ text: 'done' }),
    ])
    expect(diary.mostRunning).toBe(1)
    expect(diary.calls).toEqual(['read slow', 'write a', 'read b'])
  })

  it('continues after failed, unknown and badly called tools [S4.07] [S1.09]', async () => {
    const { result, events } = await perform([
      calls(
        ['read_note', { path: 'missing' }],
        ['fly', {}],
        ['read_note', { nope: 1 }],
        ['READ_NOTE', '{"path":"a"}'],
      ),
      reply({ text: 'done' }),
    ])
    expect(result.state).toBe('completed')
    const codes = events.flatMap((event) => (event.type === 'tool-end' ? [event.error?.code] : []))
    expect(codes.toSorted()).toEqual(['invalid_input', 'not_found', 'unknown_tool', undefined].toSorted())
  })

  it('gives calls ids of their own where the model gives none, or the same twice [T.02]', async () => {
    const { result } = await perform([
      calls(['read_note', { path: 'a' }, 'same'], ['read_note', { path: 'b' }, 'same']),
      calls(['read_note', { path: 'c' }, 'same'], ['read_note', { path: 'd' }]),
      reply({ text: 'done' }),
    ])
    const ids = result.history.flatMap((message) => (message.role === 'tool' ? [message.callId] : []))
    expect(ids[0]).toBe('same')
    expect(new Set(ids).size).toBe(4)
    for (const id of ids.slice(1)) expect(id).toMatch(/^[A-Za-z0-9]{9}$/)
  })

  it('streams text, reasoning and tool output as deltas [S1.10]', async () => {
    const { deltas } = await perform(
      [
        {
          ...reply({
            text: 'x'.repeat(40_000),
            reasoning: 'hm',
            calls: [{ name: 'wait_long', arguments: {} }],
          }),
        },
      ],
      {},
      ({ cancel, deltas: seen }) => {
        const timer = setInterval(() => {
          if (!seen.some(({ type }) => type === 'tool-output-delta')) return
          clearInterval(timer)
          cancel()
        }, 5)
      },
    )
    expect(new Set(deltas.map(({ type }) => type))).toEqual(
      new Set(['text-delta', 'reasoning-delta', 'arguments-delta', 'tool-output-delta']),
    )
    const ends = new Map<string, number>()
    for (const delta of deltas) {
      if (!('text' in delta)) continue
      expect(delta.offset).toBe(ends.get(delta.type) ?? 0)
      ends.set(delta.type, delta.offset + delta.text.length)
      if ('turn' in delta) expect(delta.turn).toBe(1)
    }
    expect(deltas.find(({ type }) => type === 'arguments-delta')).toMatchObject({
      index: 0,
      tool: 'wait_long',
    })
    expect(
      deltas.flatMap((delta) => (delta.type === 'text-delta' ? [delta.text] : [])).join(''),
    ).toHaveLength(40_000)
  })
})

describe('answers that are none', () => {
  it('ends as failed when the model says that the step cannot be done', async () => {
    const { result } = await perform([reply({ text: 'STEP FAILED: there is no file' })])
    expect(result).toMatchObject({ state: 'failed', reason: 'step_failed', text: 'there is no file' })
  })

  it('asks again after an empty answer, and gives up after three [T.02]', async () => {
    const once = await perform([reply({ text: '' }), reply({ text: 'here' })])
    expect(once.result.text).toBe('here')
    expect(once.asked[1]?.messages.at(-1)?.content).toContain('Your last reply was empty')
    const always = await perform([reply({ text: ' ', reasoning: 'hmm' })])
    expect(always.result).toMatchObject({ state: 'failed', reason: 'model_broken' })
    expect(always.asked).toHaveLength(3)
  })

  it('lets a cut text continue, and never runs a call that was cut off [G.07]', async () => {
    const { result, diary } = await perform([
      reply({ text: 'I beg', finishReason: 'length' }),
      reply({
        calls: [
          { name: 'write_note', arguments: { path: 'a', content: 'x' } },
          { name: 'write_note', arguments: '{"path":"b","content":"y' },
        ],
        finishReason: 'length',
      }),
      reply({ text: 'done' }),
    ])
    expect(result.state).toBe('completed')
    expect(diary.calls).toEqual(['write a'])
    expect(result.history.at(-1)).toMatchObject({ role: 'assistant', content: 'done' })
    const artifact = parseToolValidationFailureArtifact(result.history.at(-2)?.content)
    expect(artifact).toMatchObject({ toolName: 'write_note', issues: [{ code: 'cut_off' }] })
  })

  it('never runs a call that was cut off, whatever its place in the reply or its form [G.07]', async () => {
    const cut = '{"path":"a","content":"x'
    const whole = { path: 'b', content: 'y' }
    const { diary } = await perform([
      reply({
        calls: [
          { name: 'write_note', arguments: cut },
          // In an answer that was not cut, the brace would be added to this.
          { name: 'read_note', arguments: '{"path":"a"' },
          { name: 'write_note', arguments: whole },
        ],
        finishReason: 'length',
      }),
      reply({
        text: `<tool_call>{"name":"write_note","arguments":${cut}`,
        finishReason: 'length',
      }),
      reply({ text: '<function=drop_note><parameter=path>b', finishReason: 'length' }),
      reply({ text: '<function=drop_note><parameter=path>b' }),
      reply({ text: 'done' }),
    ])
    expect(diary.calls).toEqual(['write b'])
  })

  it('forgets empty answers once the model has acted [T.02]', async () => {
    const { result } = await perform((_asked, index) => {
      if (index === 8) return reply({ text: 'done' })
      return index % 2 === 0 ? reply({ text: '' }) : calls(['read_note', { path: `n${index}` }])
    })
    expect(result.text).toBe('done')
  })

  it('does not take a call whose arguments were all cut off for one without arguments [G.07]', async () => {
    const cut = reply({ calls: [{ name: 'wait_long', arguments: '' }], finishReason: 'length' })
    const { diary, result } = await perform([cut, reply({ text: 'done' })])
    expect(diary.calls).toEqual([])
    expect(result.text).toBe('done')
  })

  it('fails when the provider holds the answer back [T.02]', async () => {
    const { result } = await perform([reply({ text: 'no', finishReason: 'content_filter' })])
    expect(result).toMatchObject({ state: 'failed', reason: 'model_refused' })
  })

  it('asks again when a stream breaks, and runs nothing twice [G.05]', async () => {
    const broken = { body: `${delta({ content: 'I wi' })}`, after: 'reset' } as const
    const { result, diary } = await perform([
      broken,
      calls(['write_note', { path: 'a', content: '' }]),
      broken,
      reply({ text: 'ok' }),
    ])
    expect(result.text).toBe('ok')
    expect(diary.calls).toEqual(['write a'])
  })

  it('fails with a reason when the model stays broken [T.02]', async () => {
    const { result } = await perform([{ body: `${event({ choices: [] })}${event('[DONE]')}` }])
    expect(result).toMatchObject({ state: 'failed', reason: 'model_broken' })
  })
})

describe('limits', () => {
  it('nudges once and then fails when the same call gives the same again and again [A.02]', async () => {
    const { result, asked, diary } = await perform([calls(['read_note', { path: 'a' }])])
    expect(result).toMatchObject({ state: 'failed', reason: 'step_failed' })
    expect(diary.calls).toHaveLength(3)
    expect(asked).toHaveLength(4)
    expect(asked[3]?.messages.at(-1)?.content).toContain('Do something else')
  })

  it('notices two calls that take turns [A.02]', async () => {
    const { diary } = await perform((_asked, index) =>
      calls(['read_note', { path: index % 2 === 0 ? 'a' : 'b' }]),
    )
    expect(diary.calls.length).toBeLessThanOrEqual(8)
  })

  it('lets edit and test alternate while the edits differ [A.02]', async () => {
    const { result } = await perform((_asked, index) => {
      if (index === 16) return reply({ text: 'done' })
      return index % 2 === 0
        ? calls(['write_note', { path: `a${index}`, content: '' }])
        : calls(['read_note', { path: 'missing' }])
    })
    expect(result.state).toBe('completed')
  })

  it('fails after its turns [S4.07]', async () => {
    const script: Script = (_asked, index) => calls(['read_note', { path: `n${index}` }])
    const { result, asked } = await perform(script, { task: { limits: { maxTurnsPerStep: 5 } } })
    expect(result).toMatchObject({ state: 'failed', reason: 'limit_turns' })
    expect(asked).toHaveLength(6)
  })

  it('gives one turn without calls to conclude, whose words are the result; more calls are not made [A.03]', async () => {
    const script: Script = (_asked, index) =>
      index < 3
        ? calls(['read_note', { path: `n${index}` }])
        : reply({ text: 'two notes are read, one is left', calls: [{ name: 'read_note', arguments: {} }] })
    for (const limits of [
      { maxTurnsPerStep: 3 },
      { maxToolCalls: 2 },
      { maxTokens: 60 },
      { maxRequests: 4 },
    ]) {
      const { result, asked, diary, events } = await perform(script, { task: { limits } })
      expect(result).toMatchObject({ text: 'two notes are read, one is left', ended: expect.any(String) })
      expect(asked).toHaveLength(4)
      expect(asked.at(-1)?.messages.at(-1)?.content).toContain('[Caisson] A limit is reached: ')
      expect(asked.map(({ body }) => body.tool_choice)).toEqual([undefined, undefined, undefined, 'none'])
      expect(diary.calls.length).toBeLessThanOrEqual(3)
      expect(events.filter(({ type }) => type === 'turn-end')).toHaveLength(4)
    }
  })

  it('ends without a conclusion when the model gives none in time, and when it is cancelled [A.03]', async () => {
    const silent: Script = (_asked, index) =>
      index === 0 ? calls(['wait_long', {}]) : { body: '', before: 'hang' }
    const began = performance.now()
    const { result } = await perform(silent, { task: { limits: { maxWallMs: 1_000 } } })
    expect(result).toMatchObject({ state: 'cancelled', reason: 'cancelled' })
    expect(result.ended).toBeUndefined()
    expect(performance.now() - began).toBeLessThan(4_000)
  })

  it('runs no call beyond the limit of calls [S0.07]', async () => {
    const { diary, run, result } = await perform(
      [
        calls(
          ...Array.from({ length: 9 }, (_, n): [string, unknown] => [
            'write_note',
            { path: `${n}`, content: '' },
          ]),
        ),
      ],
      { task: { limits: { maxToolCalls: 4 } } },
    )
    expect(diary.calls).toHaveLength(4)
    expect(run.budget.tripped?.reason).toBe('limit_calls')
    expect(result.state).toBe('cancelled')
  })

  it('answers calls beyond those that one reply may hold [S0.07]', async () => {
    const many = Array.from({ length: 100 }, (_, n): [string, unknown] => ['read_note', { path: `${n}` }])
    const { diary, events } = await perform([calls(...many), reply({ text: 'done' })])
    expect(diary.calls).toHaveLength(64)
    expect(events.filter(({ type }) => type === 'tool-end')).toHaveLength(100)
  })

  it('counts tokens over all turns [S0.07]', async () => {
    const script: Script = (_asked, index) => calls(['read_note', { path: `n${index}` }])
    const { run, result, asked } = await perform(script, {
      task: { limits: { maxTokens: 40 } },
    })
    expect(result).toMatchObject({ state: 'failed', reason: 'limit_tokens' })
    expect(run.budget.tripped).toBeNull()
    // The second would leave nothing for the turn that concludes.
    expect(asked).toHaveLength(2)
  })

  it('counts time in tools, and not the time that a person takes [S0.07]', async () => {
    const limits = { maxWallMs: 1_000 }
    const inTool = await perform([calls(['wait_long', {}])], { task: { limits } })
    expect(inTool.run.budget.tripped?.reason).toBe('limit_time')
    const asked = await perform([calls(['drop_note', { path: 'a' }]), reply({ text: 'done' })], {
      task: { limits },
      decide: () => new Promise((resolve) => setTimeout(() => resolve({ decision: 'allow' }), 1_300)),
    })
    expect(asked.result.state).toBe('completed')
  })
})

describe('approvals and cancel', () => {
  it('asks the host under a stable id, and continues with a denial [S1.11]', async () => {
    const { approvals, result, diary } = await perform(
      [calls(['drop_note', { path: 'a' }, 'call-1']), reply({ text: 'STEP FAILED: not allowed' })],
      { decide: () => Promise.resolve({ decision: 'deny', hint: 'keep it' }) },
    )
    expect(approvals).toEqual([
      {
        approvalId: 'ap-call-1',
        agentPath: 'root',
        stepId: 's',
        callId: 'call-1',
        tool: 'drop_note',
        arguments: '{"path":"a"}',
        preview: 'deletes a',
      },
    ])
    expect(diary.calls).toEqual([])
    expect(result).toMatchObject({ state: 'failed', reason: 'denied' })
  })

  it('ends tools and answers open calls when it is cancelled [A.08]', async () => {
    const { result, diary, events } = await perform(
      [calls(['wait_long', {}], ['write_note', { path: 'a', content: '' }])],
      {},
      ({ cancel, diary: { calls: begun } }) => {
        const waiting = setInterval(() => {
          if (!begun.includes('wait')) return
          clearInterval(waiting)
          cancel()
        }, 5)
      },
    )
    expect(result.state).toBe('cancelled')
    expect(diary).toMatchObject({ calls: ['wait'], running: 0 })
    expect(result.history.slice(-2).every(({ content }) => content.includes('interrupted'))).toBe(true)
    expect(events.at(-1)).toMatchObject({ type: 'tool-end', error: { code: 'cancelled' } })
  })

  it('ends a stream, a stubborn tool and an open approval when it is cancelled [A.08]', async () => {
    const soon = ({ cancel }: TestRun): void => void setTimeout(cancel, 100)
    const silent = { body: delta({ content: 'x' }), after: 'hang' } as const
    expect((await perform([silent], {}, soon)).result.state).toBe('cancelled')
    expect((await perform([calls(['wait_long', { stubborn: true }])], {}, soon)).result.state).toBe(
      'cancelled',
    )
    const unanswered = { decide: () => new Promise<never>(() => undefined) }
    const asked = await perform([calls(['drop_note', { path: 'a' }])], unanswered, soon)
    expect(asked.result.state).toBe('cancelled')
    expect(asked.diary.calls).toEqual([])
  })
})
