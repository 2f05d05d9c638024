// What hooks give before the requests of a model: whole runs against a host that has such hooks.
import { describe, expect, it } from 'vitest'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import { answer, call, eventsOf, runTask, type WorldOptions, working } from '../hostile/world.ts'

const prices = (text: string): HookDecision => ({
  decision: 'allow',
  context: [{ name: 'prices', from: 'the shop', text }],
})

async function runWith(
  decide: (request: HookRequest, index: number) => HookDecision,
  options: WorldOptions = {},
) {
  let index = 0
  const script = working(call('list_files', {}), call('list_files', { depth: 1 }), answer('done'))
  return await runTask(script, {
    ...options,
    task: { hooks: [{ point: 'before-turn' }], ...options.task },
    host: {
      runHook: async (request) => ({ ok: true, value: decide(request as HookRequest, index++) }),
    },
  })
}

const blocks = ({ messages }: Asked): string[] =>
  messages.flatMap(
    ({ content }) => String(content ?? '').match(/(?<=<context name="prices"[^>]*>\n).*/g) ?? [],
  )

describe('sections that hooks give before a request', () => {
  it('are in the request, and again only when their text is another one [S0.05 A.10]', async () => {
    const texts = ['tea 3', 'tea 3', 'tea 3', 'tea 4']
    const ending = await runWith((_, index) => prices(texts[index] ?? 'tea 4'))
    expect(ending.completion.outcome).toBe('completed')
    expect(ending.asked.map(blocks)).toEqual([['tea 3'], ['tea 3'], ['tea 3'], ['tea 3', 'tea 4']])
    expect(eventsOf(ending, 'context-shown').map(({ stepId, sections }) => [stepId, ...sections])).toEqual([
      ['plan', { name: 'prices', from: 'the shop', chars: 5, shownChars: 5 }],
      ['work', { name: 'prices', from: 'the shop', chars: 5, shownChars: 5 }],
      ['work', { name: 'prices', from: 'the shop', chars: 5, shownChars: 5 }],
    ])
  })

  it('leave the earlier bytes of a conversation as they are [A.05]', async () => {
    const { asked } = await runWith((_, index) => prices(`tea ${index}`))
    const [, first, second, third] = asked.map(({ messages }) => messages)
    expect(second?.slice(0, first?.length)).toEqual(first)
    expect(third?.slice(0, second?.length)).toEqual(second)
  })

  it('end the step, or the planning, where a hook says no [A.10]', async () => {
    const inStep = await runWith((_, index) =>
      index < 2 ? { decision: 'allow' } : { decision: 'deny', reason: 'too late' },
    )
    expect(inStep.completion).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(JSON.stringify(inStep.completion)).toContain('too late')
    const atOnce = await runWith(() => ({ decision: 'deny', reason: 'not today' }))
    expect(atOnce.completion).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(atOnce.asked).toHaveLength(0)
  })

  it('are recorded with those of the task, once for each agent [S0.05]', async () => {
    const sections = [
      {
        name: 'team',
        from: 'the application',
        text: 'x'.repeat(9_000),
        maxTokens: 100,
        place: 'before' as const,
      },
    ]
    const ending = await runWith(() => ({ decision: 'allow' }), { task: { sections } })
    const [shown, ...more] = eventsOf(ending, 'context-shown')
    expect(more).toEqual([])
    expect(shown?.sections).toMatchObject([{ name: 'team', from: 'the application', chars: 9_000 }])
    expect(shown?.sections[0]?.shownChars).toBeLessThan(400)
    for (const { messages } of ending.asked)
      expect(messages.map(({ content }) => content).join('\n')).toContain('<context name="team"')
  })
})
