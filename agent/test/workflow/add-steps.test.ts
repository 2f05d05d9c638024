// A step of a workflow that adds steps and functions, in the real executor over a scripted model's server.
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { OpenExtension } from '../../extensions/extension.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { defineTool, toolSuccess } from '../../tool-calls/tool.ts'
import { createAskTool } from '../../tools/ask-user.ts'
import { noteTools, silentLogger, type ToolDiary } from '../support/run.ts'
import { runWhole, type WholeRun, type WholeRunOptions } from '../support/whole-run.ts'
import { chat, ways, workflowTask } from '../support/workflow.ts'

type Steps = Parameters<typeof workflowTask>[0]
type Added = { readonly steps?: unknown; readonly functions?: unknown }

const addCall = (id: string, given: Added): { id: string; name: string; arguments: string } => ({
  id,
  name: 'add_steps',
  arguments: JSON.stringify({ reason: 'There is more to do', ...given }),
})

/** Makes the functions that are added: each gives its name and its arguments. */
const openFunctions: OpenExtension = async () => ({
  toolsFor: async () => [],
  toolOf: ({ name, description }) =>
    defineTool({
      name,
      description,
      inputSchema: z.record(z.string(), z.unknown()),
      outputSchema: z.unknown(),
      requiresApproval: false,
      readOnly: false,
      isOwn: false,
      execute: async (input) => toolSuccess({ name, input }),
    }),
  close: () => Promise.resolve(),
})

interface Seen extends WholeRun {
  readonly states: Record<string, string>
  /** What the model read of its calls of `add_steps`, in order. */
  readonly said: readonly string[]
}

/** A run whose step `plan` makes these additions, one in each turn; other requests are repeated as their answer. */
async function run(
  additions: readonly Added[],
  {
    steps,
    more,
    ...options
  }: { steps?: Steps; more?: Parameters<typeof workflowTask>[1] } & WholeRunOptions = {},
): Promise<Seen> {
  const said: string[] = []
  const diary: ToolDiary = { calls: [], running: 0, mostRunning: 0 }
  const whole = await runWhole(
    (_, asked) => {
      const texts = asked.messages.map(({ content }) => content ?? '')
      if (!texts.some((text) => text.startsWith('Plan it.'))) return answer(asked)
      const results = asked.messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? '')
      said.splice(0, said.length, ...results)
      const next = additions[results.length]
      return next === undefined ? reply({ text: 'planned' }) : reply({ calls: [addCall('a', next)] })
    },
    {
      task: workflowTask(
        steps ?? {
          plan: { chat: chat('Plan it.'), mayAdd: { steps: 3, functions: 1 }, tools: ['*_note'] },
          end: { chat: chat('end: {{size(steps.plan.added)}}'), after: ways('plan') },
        },
        more,
      ),
      parts: {
        registry: createRegistry([...noteTools(diary), createAskTool()], { logger: silentLogger }),
        extensions: [openFunctions],
      },
      ...options,
    },
  )
  return { ...whole, said, states: statesOf(whole.events) }
}

function answer({ messages }: Asked): ServerReply {
  return reply({ text: `re: ${messages.at(-1)?.content}` })
}

function statesOf(events: readonly AgentEvent[]): Record<string, string> {
  return Object.fromEntries(
    events.flatMap((event) => (event.type === 'step-end' ? [[event.stepId, event.state] as const] : [])),
  )
}

const say = (text: string) => [{ role: 'user', content: text }]

describe('a step that may add steps', () => {
  it('adds them behind itself and before what followed, as a revision of the plan [S3.11]', async () => {
    const { completion, events, states, asked, said } = await run([
      {
        steps: [
          { id: 'One', chat: say('one after {{steps.plan.output}}') },
          { id: 'two', chat: say('{{steps.One.output}}') },
        ],
      },
    ])
    expect(said).toEqual([
      expect.stringMatching(/^added until now: One, two\..* 1 steps and 1 functions are left$/),
    ])
    expect(completion).toMatchObject({
      outcome: 'completed',
      message: 'all 4 steps completed',
      summary: 're: end: 2',
    })
    expect(Object.keys(states)).toEqual(['plan', 'one', 'two', 'end'])
    const [first, second, ...others] = events.filter((event) => event.type === 'plan-update')
    expect(others).toEqual([])
    expect(first).not.toHaveProperty('added')
    expect(second).toMatchObject({ revision: 2, reason: 'There is more to do', added: { by: 'plan' } })
    expect(
      second?.type === 'plan-update' ? second.plan.steps.map(({ id, needs }) => [id, needs]) : [],
    ).toEqual([
      ['plan', []],
      ['one', ['plan']],
      ['two', ['one']],
      ['end', ['plan', 'two']],
    ])
    const names = asked.map(({ tools }) => (tools ?? []).map((tool) => tool.function.name))
    expect(names[0]).toEqual(['add_steps', 'drop_note', 'read_note', 'write_note'])
    expect(names.slice(2)).toEqual([[], [], []])
  })

  it('adds a function with code, which added steps call, and which asks where the run asks about every tool [S3.11 S3.10]', async () => {
    const asked: string[] = []
    const double = {
      name: 'double',
      description: 'doubles',
      parameters: [{ type: 'integer', name: 'n' }],
      code: 'function double(n) { return 2 * n }',
    }
    const steps = [{ id: 'use', call: { function: 'double', arguments: { n: '{{1 + 1}}' } }, nextStep: '-' }]
    const options = (askTools: string[]): Parameters<typeof run>[1] => ({
      task: {
        ...workflowTask({ plan: { chat: chat('Plan it.'), mayAdd: { steps: 1, functions: 1 } } }),
        askTools,
      },
      host: {
        requestApproval: async ({ tool }) => {
          asked.push(tool)
          return { ok: true, value: { decision: 'allow' } }
        },
      },
    })
    const { completion } = await run([{ steps, functions: [double] }], options([]))
    expect(JSON.parse(completion.summary)).toEqual({ name: 'double', input: { n: 2 } })
    expect(asked).toEqual([])
    await run([{ steps, functions: [double] }], options(['*']))
    expect(asked).toContain('double')
  })

  it('adds no function that the tools of the run exclude [S3.11]', async () => {
    const limited = (tools: string[]): Parameters<typeof run>[1] => ({
      task: {
        ...workflowTask({ plan: { chat: chat('Plan it.'), mayAdd: { steps: 1, functions: 1 } } }),
        tools,
      },
    })
    const added = { functions: [{ ...code, name: 'f' }] }
    for (const tools of [['read_note'], ['*', '!f*']])
      expect((await run([added], limited(tools))).said[0]).toMatch(
        /"f": the tools of the run exclude this name/,
      )
    expect((await run([added], limited(['!write_note']))).said[0]).toMatch(/^added until now: f/)
  })

  it('shows people what an added step does, also where the model describes it in another way [S3.11 A.02]', async () => {
    const steps = [{ ...step, chat: say('delete all'), description: 'looks around' }]
    const { events } = await run([{ steps }])
    const plan = events.findLast((event) => event.type === 'plan-update')?.plan
    expect(plan?.steps.find(({ id }) => id === 'x')?.instructions).toBe('user: delete all\n\nlooks around')
  })

  it('runs added steps at once that none of them leads to, and takes their branches and failures [S3.11]', async () => {
    const { states, completion } = await run([
      {
        steps: [
          { id: 'a', chat: say('a'), nextStep: [{ when: 'false', step: 'b' }, { step: 'c' }] },
          { id: 'b', chat: say('b'), nextStep: '-' },
          { id: 'c', call: { function: 'missing' }, nextStep: '-' },
        ],
      },
      {
        steps: [
          { id: 'a', chat: say('a'), nextStep: [{ when: 'false', step: 'b' }, { step: 'c' }] },
          { id: 'b', chat: say('b'), nextStep: '-' },
          { id: 'c', chat: say('{{input.nothing}}'), nextStep: '-', onFailure: 'continue' },
        ],
      },
    ])
    expect(states).toEqual({ plan: 'completed', a: 'completed', b: 'skipped', c: 'failed', end: 'completed' })
    expect(completion).toMatchObject({ outcome: 'completed', summary: 're: end: 3' })
  })

  it('that fails leaves out what it added [S3.11]', async () => {
    const { states } = await run([{ steps: [{ id: 'x', chat: say('x') }] }], {
      steps: {
        plan: {
          chat: chat('Plan it.'),
          mayAdd: { steps: 1, functions: 0 },
          output: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
          onFailure: 'continue',
        },
        end: { chat: chat('end'), after: ways('plan failed') },
      },
    })
    expect(states).toEqual({ plan: 'failed', x: 'skipped', end: 'completed' })
  })

  it('asks about the changed plan where plans are asked about, and a denial changes nothing [S3.11 A.02]', async () => {
    const tools: string[] = []
    const { said, states } = await run([{ steps: [{ id: 'x', chat: say('x') }] }], {
      task: {
        ...workflowTask({ plan: { chat: chat('Plan it.'), mayAdd: { steps: 1, functions: 0 } } }),
        approvePlan: true,
      },
      host: {
        requestApproval: async ({ tool }) => {
          tools.push(tool)
          const decision = tools.length === 1 ? 'allow' : 'deny'
          return { ok: true, value: { decision } }
        },
      },
    })
    expect(tools).toEqual(['submit_plan', 'submit_plan'])
    expect(said[0]).toMatch(/the steps were denied; the workflow stays as it is/)
    expect(states).not.toHaveProperty('x')
  })

  it('asks a person before each call where a rule names the tool, with the steps and the code [S3.11 A.02]', async () => {
    const added = { steps: [step], functions: [{ ...code, name: 'f' }] }
    for (const [pattern, decision] of [
      ['add_steps', 'deny'],
      ['*', 'allow'],
    ] as const) {
      const asked: { readonly tool: string; readonly arguments: string }[] = []
      const { said, states } = await run([added], {
        task: {
          ...workflowTask({ plan: { chat: chat('Plan it.'), mayAdd: { steps: 1, functions: 1 } } }),
          askTools: [pattern],
        },
        host: {
          requestApproval: async (question) => {
            asked.push(question)
            return { ok: true, value: { decision } }
          },
        },
      })
      expect(asked).toMatchObject([
        { tool: 'add_steps', arguments: expect.stringContaining('function f() {}') },
      ])
      expect(said[0]).toMatch(decision === 'deny' ? /add_steps was denied/ : /^added until now: x, f/)
      expect('x' in states).toBe(decision === 'allow')
    }
  })

  it('is the only one that has the tool [S3.11]', async () => {
    const { asked } = await run([], {
      steps: { plan: { chat: chat('other'), tools: ['*'] } },
    })
    expect(asked[0]?.tools?.map((tool) => tool.function.name)).not.toContain('add_steps')
  })
})

const deep = (levels: number): unknown => (levels === 0 ? 'x' : { a: deep(levels - 1) })
const step = { id: 'x', chat: say('x') }
const code = { description: 'd', code: 'function f() {}' }

describe('an addition is refused, with everything that is wrong, and changes nothing', () => {
  it.each<[string, Added, readonly RegExp[]]>([
    ['of nothing', {}, [/adds neither steps nor functions/]],
    [
      'of too many steps',
      { steps: [1, 2, 3, 4].map((n) => ({ ...step, id: `x${n}` })) },
      [/steps: adds 4; 3 of 3 are left/],
    ],
    [
      'of too many functions',
      { functions: ['f', 'g'].map((name) => ({ ...code, name })) },
      [/functions: adds 2; 1 of 1 are left/],
    ],
    [
      'that leads back',
      { steps: [{ ...step, nextStep: 'plan' }] },
      [/step "x" nextStep: leads back to "plan"/],
    ],
    [
      'that leads to itself',
      {
        steps: [
          { ...step, nextStep: 'y' },
          { ...step, id: 'y', nextStep: 'x' },
        ],
      },
      [/leads back to "x"/],
    ],
    ['that leads to what follows', { steps: [{ ...step, nextStep: 'end' }] }, [/no step has the id "end"/]],
    [
      'with an id that is there',
      { steps: [{ ...step, id: 'end' }] },
      [/step "end": another step has this id/],
    ],
    ['with an id twice', { steps: [step, step] }, [/step "x": another step has this id/]],
    [
      'with a tool that the step lacks',
      { steps: [{ ...step, tools: ['run_bash'] }] },
      [/"run_bash" is not among \*_note/],
    ],
    ['with every tool', { steps: [{ ...step, tools: ['*'] }] }, [/tools: "\*" is not among/]],
    ['with all tools but one', { steps: [{ ...step, tools: ['!x'] }] }, [/tools: "!x" is not among/]],
    [
      'with a tool that nobody has',
      { steps: [{ ...step, tools: ['no_note'] }] },
      [/step "x": tools: .*no_note/],
    ],
    ['with a function that it lacks', { steps: [{ ...step, function: ['f'] }] }, [/function "f" is none of/]],
    [
      'that asks, where the step may not',
      { steps: [{ id: 'x', ask: { question: 'q' } }] },
      [/no tool ask_user/],
    ],
    ['that waits', { steps: [{ id: 'x', wait: { for: 1 } }] }, [/steps\.0: .*wait/]],
    ['that adds steps', { steps: [{ ...step, mayAdd: { steps: 1 } }] }, [/steps\.0: .*mayAdd/]],
    [
      'with another model',
      { steps: [{ ...step, model: 'm2' }] },
      [/step "x": model: the run has no model "m2"/],
    ],
    [
      'that reads what is not there',
      { steps: [{ ...step, when: 'steps.end.state == "x"' }] },
      [/when: reads step "end"/],
    ],
    ['with what is no expression', { steps: [{ ...step, when: '1 +' }] }, [/when: .*expression: CEL/]],
    [
      'with a reference that leads nowhere',
      { steps: [{ ...step, output: { $ref: '#/nowhere' } }] },
      [/steps\.0\.output\.\$ref: leads nowhere/],
    ],
    ['with a schema that is none', { steps: [{ ...step, output: { pattern: '(' } }] }, [/step "x" output: /]],
    [
      'with the name of a tool',
      { functions: [{ ...code, name: 'Read_Note' }] },
      [/function "Read_Note": a tool has this name/],
    ],
    [
      'with the name of a tool of Caisson',
      { functions: [{ ...code, name: 'run_bash' }] },
      [/has the name of a tool of Caisson/],
    ],
    ['without code', { functions: [{ name: 'f', description: 'd' }] }, [/functions\.0\.code/]],
    ['that is huge', { steps: [{ ...step, chat: say('x'.repeat(70_000)) }] }, [/at most 65536 are allowed/]],
    [
      'that is deep',
      { steps: [{ id: 'x', call: { function: 'f', arguments: deep(18) } }] },
      [/nests deeper than 16 levels/],
    ],
    ['of no list', { steps: 'x' }, [/steps: /]],
    [
      'with several mistakes',
      {
        steps: [
          { ...step, tools: ['a'], model: 'b' },
          { ...step, id: 'end' },
        ],
      },
      [/"a" is not among/, /model "b"/, /step "end": another/],
    ],
  ])('%s [S3.11]', async (_, added, problems) => {
    const { said, states, completion } = await run([added])
    expect(said).toHaveLength(1)
    for (const problem of problems) expect(said[0]).toMatch(problem)
    expect(states).toEqual({ plan: 'completed', end: 'completed' })
    expect(completion.summary).toBe('re: end: 0')
  })

  it('names of prototypes are names [S3.11]', async () => {
    const ids = ['__proto__', 'constructor', 'toString']
    const { completion, states } = await run([{ steps: ids.map((id) => ({ ...step, id })) }])
    expect(states).toEqual({
      plan: 'completed',
      proto: 'completed',
      constructor: 'completed',
      tostring: 'completed',
      end: 'completed',
    })
    expect(completion.summary).toBe('re: end: 3')
  })
})

it.each([
  ['a', 'b'],
  ['b', 'a'],
])(
  'steps that add at the same time, %s first, add in this order when another agent continues the run [S3.11 R.01]',
  async (...order) => {
    const place = await temporaryFolder('add-steps')
    const log = { file: path.join(place, 'run.jsonl'), minIntervalMs: 0 }
    const may = { mayAdd: { steps: 1, functions: 0 } }
    const task = workflowTask({
      a: { chat: chat('Plan a.'), ...may },
      b: { chat: chat('Plan b.'), ...may },
      c: { chat: chat('end'), after: ways('a', 'b') },
    })
    const later = Promise.withResolvers<void>()
    const live = (resume: boolean): Promise<WholeRun> =>
      runWhole(
        async (_, { messages }) => {
          const id = /Plan ([ab])/.exec(messages.at(-1)?.content ?? '')?.[1]
          if (id === order[1]) await later.promise
          if (id === undefined) {
            // The first has added its step by then.
            later.resolve()
            return reply({ text: 'done' })
          }
          return reply({ calls: [addCall(id, { steps: [{ id: `of-${id}`, chat: say('x') }] })] })
        },
        {
          task: { ...task, ...(resume ? { resume } : {}) },
          parts: { log },
          host: { makeCheckpoint: async () => ({ ok: true, value: { made: true } }) },
        },
      )
    const first = await live(false)
    const ids = first.events.flatMap((event) =>
      event.type === 'plan-update' && event.added !== undefined ? event.added.steps.map(({ id }) => id) : [],
    )
    expect(ids).toEqual(order.map((id) => `of-${id}`))
    const second = await live(true)
    expect(second.asked).toEqual([])
    expect(second.events).toEqual([])
    expect(second.completion).toMatchObject({ outcome: 'completed', message: 'all 5 steps completed' })
  },
)
