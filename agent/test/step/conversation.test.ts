// A step whose conversation outgrows the model's window: what stays, what is summed up, and what can be read again.
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { failure, reply } from '#specs/testing/model-replies.ts'
import type { Asked, Script } from '#specs/testing/model-server.ts'
import { type Opening, stepOpening } from '../../context/opening.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, type Tool, toolSuccess } from '../../tool-calls/tool.ts'
import { createOutputTool } from '../../tools/read-output.ts'
import { performStep, someStep } from '../support/one-step.ts'
import { silentLogger, type TestRun } from '../support/run.ts'

const opening: readonly ChatMessage[] = [
  { role: 'system', content: 'the rules' },
  { role: 'user', content: '# Task\nthe task\n\n# Plan\nthe plan\n\n# This step\nid: s' },
]

/** `say_much` gives `chars` characters that say where they are. */
const sayMuch: Tool = defineTool({
  name: 'say_much',
  description: 'Says much.',
  inputSchema: z.strictObject({ chars: z.int(), mark: z.string() }),
  outputSchema: z.strictObject({ text: z.string() }),
  requiresApproval: false,
  readOnly: true,
  execute: ({ chars, mark }) =>
    Promise.resolve(toolSuccess({ text: `${mark} begins ${'word '.repeat(chars / 5)}${mark} ends` })),
  render: ({ text }) => text,
})

const isSummary = (asked: Asked): boolean =>
  asked.messages[0]?.content?.startsWith("You are Caisson's summarizer.") ?? false
const callMuch = (mark: string, chars: number) =>
  reply({ calls: [{ id: `call-${mark}`, name: 'say_much', arguments: { chars, mark } }] })
const wholeText = (asked: Asked | undefined): string =>
  asked?.messages.map(({ content }) => content ?? '').join('\n') ?? ''

async function perform(
  script: Script,
  contextTokens: number,
  during: (test: TestRun) => void = () => undefined,
  begin: Opening = opening,
) {
  const registry = createRegistry([sayMuch, createOutputTool()], { logger: silentLogger })
  const test = await performStep(script, { registry, task: { contextTokens }, opening: begin, during })
  const compactions = test.events.flatMap((event) => (event.type === 'context-compact' ? [event] : []))
  const asked = test.asked.filter((one) => !isSummary(one))
  return { ...test, asked, summaries: test.asked.filter(isSummary), compactions }
}

/** Makes `count` calls of `chars` characters, then answers. */
const chatter = (count: number, chars: number, summary = 'SUMMARY'): Script => {
  let made = 0
  return (asked) => {
    if (isSummary(asked)) return reply({ text: summary })
    return made++ < count ? callMuch(`m${made}`, chars) : reply({ text: 'done' })
  }
}

describe('a conversation that outgrows the window', () => {
  it('cuts outputs that the model has seen before it leaves anything out [A.04]', async () => {
    const { result, asked, summaries, compactions } = await perform(chatter(6, 4_000), 10_000)
    expect(result).toMatchObject({ state: 'completed', text: 'done' })
    expect(summaries).toHaveLength(0)
    expect(compactions).toHaveLength(1)
    expect(compactions[0]?.summary).toBe('')
    expect(compactions[0]?.afterTokens).toBeLessThan(compactions[0]?.beforeTokens ?? 0)
    const last = asked.at(-1)
    expect(last?.messages.filter(({ role }) => role === 'tool')).toHaveLength(6)
    expect(wholeText(last)).toContain('read_output with callId "call-m1" gives all of it')
    expect(wholeText(last)).toContain('m1 begins')
    expect(wholeText(last)).toContain('m1 ends')
  })

  it('sums up what came earlier, with rules, task, plan and what is left said anew [A.04]', async () => {
    const { result, asked, summaries, compactions } = await perform(chatter(30, 4_000), 8_000)
    expect(result).toMatchObject({ state: 'completed', text: 'done' })
    expect(summaries.length).toBeGreaterThan(0)
    expect(summaries[0]?.body.tools).toBeUndefined()
    expect(wholeText(summaries[0])).toContain('call: say_much')
    expect(compactions.some(({ summary }) => summary === 'SUMMARY')).toBe(true)
    const last = asked.at(-1)
    expect(last?.messages[0]?.content).toBe('the rules')
    const user = last?.messages[1]?.content ?? ''
    expect(user.startsWith(opening[1]?.content ?? '?')).toBe(true)
    expect(user).toContain('# Earlier in this step\n<summary>\nSUMMARY\n</summary>')
    expect(user).toMatch(/# What is left\nTool calls: \d+\. Tokens: \d+\. Time: \d+ s\./)
    expect(wholeText(last)).toContain('m30 ends')
    for (const { body } of asked) expect(JSON.stringify(body.messages).length).toBeLessThan(6_000 * 4)
  })

  it('continues from the words of an earlier summary when it is summed up again [A.04]', async () => {
    let made = 0
    const { summaries } = await perform((asked) => {
      if (isSummary(asked)) return reply({ text: `SUMMARY ${made}` })
      return made++ < 60 ? callMuch(`m${made}`, 4_000) : reply({ text: 'done' })
    }, 8_000)
    expect(summaries.length).toBeGreaterThan(1)
    expect(wholeText(summaries[1])).toContain('summary of what was before:\nSUMMARY ')
  })

  it('says the plan anew as it is by then [A.04]', async () => {
    let plan = 'the first plan'
    const { asked } = await perform(chatter(30, 4_000), 8_000, undefined, () => {
      const said = plan
      plan = 'the plan, revised'
      return [
        { role: 'system', content: 'the rules' },
        { role: 'user', content: `# Plan\n${said}` },
      ]
    })
    expect(asked[0]?.messages[1]?.content).toContain('the first plan')
    expect(asked.at(-1)?.messages[1]?.content).toContain('the plan, revised')
  })

  it.each<[string, ReturnType<typeof reply>]>([
    ['fails', failure(400, 'no')],
    ['says nothing', reply({ text: ' ' })],
  ])('names the calls that were made where the model that sums up %s [A.04]', async (_name, summary) => {
    const script = chatter(30, 4_000)
    const { result, compactions } = await perform(
      (asked, index) => (isSummary(asked) ? summary : script(asked, index)),
      8_000,
    )
    expect(result.text).toBe('done')
    expect(compactions.some(({ summary: text }) => text.includes('called say_much {"chars":4000'))).toBe(true)
  })

  it('keeps what the person wrote, word for word [A.04] [A.08]', async () => {
    const { asked } = await perform(chatter(30, 4_000), 8_000, ({ run }) => {
      run.steering.push({ messageId: 'm1', text: 'write it in German' })
    })
    expect(asked.at(-1)?.messages[1]?.content).toContain('<message>\nwrite it in German\n</message>')
  })

  it('tells what the person wrote once, also where the opening knows it by now [A.04] [A.08]', async () => {
    let test: TestRun | undefined
    const plan = { goal: 'g', steps: [someStep] }
    const { asked } = await perform(
      chatter(30, 4_000),
      12_000,
      (made) => {
        test = made
        made.run.steering.push({ messageId: 'm1', text: 'write it in German' })
      },
      () => (test === undefined ? opening : stepOpening(test.run, { plan, step: someStep, results: [] })),
    )
    expect(wholeText(asked.at(-1))).toContain('# Earlier in this step')
    expect(wholeText(asked.at(-1)).split('write it in German')).toHaveLength(2)
  })

  it('learns the window from a refusal, and asks again once, shorter [A.04]', async () => {
    let refused = 0
    const script = chatter(8, 4_000)
    const { result, compactions, asked } = await perform((request, index) => {
      if (isSummary(request) || request.text.length < 12_000) return script(request, index)
      refused++
      const message =
        "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens."
      return failure(400, message)
    }, 128_000)
    expect(result).toMatchObject({ state: 'completed', text: 'done' })
    expect(refused).toBe(1)
    expect(compactions.length).toBeGreaterThan(0)
    expect(asked[0]?.body.max_tokens).toBe(16_384)
    expect(asked.at(-1)?.body.max_tokens).toBe(1_024)
  })

  it('fails with the words of the server when it is too long however short it is made [A.04]', async () => {
    const { result, asked } = await perform(
      () => failure(400, 'maximum context length is 600 tokens'),
      128_000,
    )
    expect(result).toMatchObject({ state: 'failed', reason: 'model_refused' })
    expect(asked.length).toBeLessThanOrEqual(2)
  })

  it('is made shorter also within one turn of many large outputs [A.04]', async () => {
    let asked = 0
    const { result } = await perform(() => {
      const calls = Array.from({ length: 40 }, (_, n) => ({
        name: 'say_much',
        arguments: { chars: 20_000, mark: `c${n}` },
      }))
      return asked++ === 0 ? reply({ calls }) : reply({ text: 'done' })
    }, 16_000)
    expect(result.text).toBe('done')
    expect(JSON.stringify(result.history).length).toBeLessThan(16_000 * 4)
  })

  it('lets the model read again what was cut [A.04]', async () => {
    let turn = 0
    const { result, asked } = await perform(() => {
      turn++
      if (turn === 1) return callMuch('big', 60_000)
      if (turn === 2)
        return reply({
          calls: [{ name: 'read_output', arguments: { callId: 'call-big', offset: 30_000, limit: 1_000 } }],
        })
      return reply({ text: 'done' })
    }, 16_000)
    expect(result.text).toBe('done')
    expect(asked[1]?.messages.at(-1)?.content).toContain('read_output with callId "call-big"')
    expect(asked[1]?.messages.at(-1)?.content?.length).toBeLessThan(16_000)
    expect(asked[2]?.messages.at(-1)?.content).toContain('characters 30000 to 31000 of 60')
  })
})

describe('a server that is strict about roles', () => {
  it('gets a word of the assistant between a result and a message of the user, once it said so [A.04] [A.08]', async () => {
    let test: TestRun | undefined
    let refused = 0
    const { result, asked } = await perform(
      (request, index) => {
        const roles = request.messages.map(({ role }) => role)
        if (roles.some((role, at) => role === 'user' && roles[at - 1] === 'tool')) {
          refused++
          return failure(400, "Unexpected role 'user' after role 'tool'")
        }
        if (index === 0) test?.run.steering.push({ messageId: 'm1', text: 'hurry' })
        if (refused < 2 && index < 4) return callMuch(`m${index}`, 100)
        return reply({ text: 'done' })
      },
      128_000,
      (made) => {
        test = made
      },
    )
    expect(result.text).toBe('done')
    expect(refused).toBe(1)
    expect(
      asked
        .at(-1)
        ?.messages.map(({ role }) => role)
        .slice(0, 6),
    ).toEqual(['system', 'user', 'assistant', 'tool', 'assistant', 'user'])
  })

  it('that still refuses fails the step with its words [A.04]', async () => {
    const { result, asked } = await perform(() => failure(400, 'roles must alternate'), 128_000)
    expect(result).toMatchObject({ state: 'failed', reason: 'model_refused' })
    expect(asked).toHaveLength(2)
  })
})

describe('a conversation that fits', () => {
  it('is never touched [A.05]', async () => {
    const { compactions, asked } = await perform(chatter(20, 4_000), 128_000)
    expect(compactions).toEqual([])
    const bodies = asked.map(({ body }) => JSON.stringify(body.messages).slice(0, -1))
    for (let n = 1; n < bodies.length; n++) expect(bodies[n]?.startsWith(bodies[n - 1] ?? '?')).toBe(true)
  })
})
