// Workflows as the agent runs them: real planner's place, executor, tools and client, over a scripted model's server.
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import { createRegistry } from '../../tool-calls/registry.ts'
import { createAskTool } from '../../tools/ask-user.ts'
import { noteTools, silentLogger, type ToolDiary } from '../support/run.ts'
import { runWhole, type WholeRun } from '../support/whole-run.ts'
import { chat, ways, workflowTask } from '../support/workflow.ts'

const diaryOf = (): ToolDiary => ({ calls: [], running: 0, mostRunning: 0 })

async function run(
  task: ReturnType<typeof workflowTask>,
  answer: (asked: Asked, index: number) => ServerReply = ({ messages }) =>
    reply({ text: `re: ${messages.at(-1)?.content}` }),
  diary = diaryOf(),
): Promise<WholeRun & { states: Record<string, string>; diary: ToolDiary }> {
  const whole = await runWhole((_, asked, index) => answer(asked, index), {
    task,
    parts: { registry: createRegistry(noteTools(diary), { logger: silentLogger }) },
  })
  const states = whole.events.flatMap((event) =>
    event.type === 'step-end' ? [[event.stepId, event.state] as const] : [],
  )
  return { ...whole, states: Object.fromEntries(states), diary }
}

const calls = (...made: [name: string, args: object][]): ServerReply =>
  reply({
    calls: made.map(([name, args], index) => ({ id: `c${index}`, name, arguments: JSON.stringify(args) })),
  })

describe('a chat', () => {
  it('asks the model once, with its own messages alone and no tools [S3.04]', async () => {
    const { asked, completion } = await run(
      workflowTask(
        {
          a: {
            chat: [
              { role: 'system', text: 'You are brief.' },
              { role: 'user', text: 'Say {{input.word}}.' },
            ],
          },
        },
        { input: { word: 'hello' } },
      ),
    )
    expect(completion).toMatchObject({ outcome: 'completed', summary: 're: Say hello.' })
    expect(asked).toHaveLength(1)
    expect(asked[0]?.tools ?? []).toEqual([])
    expect(asked[0]?.messages.map(({ role }) => role)).toEqual(['system', 'user'])
    expect(asked[0]?.messages[0]?.content).toMatch(
      /^You carry out one step of a workflow\.[\s\S]*You are brief\.$/,
    )
  })

  it('gets outputs of earlier steps as data [S3.04]', async () => {
    const { asked } = await run(
      workflowTask({
        a: { chat: chat('one') },
        b: { chat: chat('Sum up: {{steps.a.output}}'), after: ways('a') },
      }),
    )
    expect(asked[1]?.messages.at(-1)?.content).toBe('Sum up: \n<result step="a">\nre: one\n</result>\n')
  })

  it('begins with the conversation that it continues [S3.02]', async () => {
    const { asked } = await run(
      workflowTask({
        a: { chat: chat('one') },
        b: { chat: chat('two'), after: ways('a'), continues: ['a'] },
      }),
    )
    expect(asked[1]?.messages.slice(1).map(({ content }) => content)).toEqual(['one', 're: one', 'two'])
  })

  it('calls its functions one after the other, or at once [S3.04]', async () => {
    const functions = ['write_note', 'read_note']
    const write = (path: string): [string, object] => ['write_note', { path, content: 'x' }]
    const answer = ({ messages }: Asked) =>
      messages.at(-1)?.role === 'tool' ? reply({ text: 'done' }) : calls(write('1'), write('2'), write('3'))
    const inOrder = await run(workflowTask({ a: { chat: chat('go'), functions } }), answer)
    expect(inOrder.diary).toMatchObject({ calls: ['write 1', 'write 2', 'write 3'], mostRunning: 1 })
    expect(inOrder.asked[0]?.tools?.map((tool) => tool.function.name)).toEqual(['read_note', 'write_note'])
    const atOnce = await run(workflowTask({ a: { chat: chat('go'), functions, callsAtOnce: true } }), answer)
    expect(atOnce.diary.mostRunning).toBe(3)
  })

  it('gives its output as JSON that fits its schema [S3.04]', async () => {
    const output = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
    const { completion } = await run(
      workflowTask(
        {
          a: { chat: chat('Count.'), output },
          b: { chat: chat('{{steps.a.output.n + 1}}'), after: ways('a') },
        },
        { result: '{"n": steps.a.output.n, "said": steps.b.output}' },
      ),
      (_, index) => reply({ text: index === 0 ? '{"n": 4}' : 'five' }),
    )
    expect(JSON.parse(completion.summary)).toEqual({ n: 4, said: 'five' })
  })
})

describe('a failure', () => {
  it('of a function ends the step and the run, named, with what completed [S3.05]', async () => {
    const { completion, states, asked } = await run(
      workflowTask({
        a: { chat: chat('one') },
        b: { chat: chat('read'), functions: ['read_note'], after: ways('a') },
        c: { chat: chat('three'), after: ways('b') },
      }),
      ({ messages }) =>
        messages.at(-1)?.content === 'read'
          ? calls(['read_note', { path: 'missing' }])
          : reply({ text: 'yes' }),
    )
    expect(completion).toMatchObject({
      outcome: 'failed',
      reason: 'step_failed',
      message:
        '1 of 3 steps completed, 1 not taken; step "b" failed: the function read_note failed (not_found): no note missing',
      summary: 'yes',
    })
    expect(states).toEqual({ a: 'completed', b: 'failed', c: 'skipped' })
    expect(asked).toHaveLength(2)
  })

  it('of a tool, or of the arguments of a function, goes back to the model [S3.05]', async () => {
    const { completion } = await run(
      workflowTask({ a: { chat: chat('go'), tools: ['read_*'], functions: ['write_note'] } }),
      (_, index) =>
        [
          calls(['read_note', { path: 'missing' }]),
          calls(['write_note', { path: 'a' }]),
          reply({ text: 'both seen' }),
        ][index] ?? reply({ text: '' }),
    )
    expect(completion).toMatchObject({ outcome: 'completed', summary: 'both seen' })
  })

  it('is tried again as often as the step says [S3.05]', async () => {
    const { completion, events } = await run(
      workflowTask({ a: { chat: chat('go'), retries: 1 } }),
      (_, index) => reply({ text: index === 0 ? 'STEP FAILED: no' : 'yes' }),
    )
    expect(completion).toMatchObject({ outcome: 'completed', summary: 'yes' })
    expect(events.filter(({ type }) => type === 'step-retry')).toHaveLength(1)
  })

  it('leads to the step for it, and the run completes [S3.05 S3.09]', async () => {
    const task = workflowTask({
      a: { chat: chat('STEP'), onFailure: 'continue' },
      b: { chat: chat('good'), after: ways('a') },
      c: { chat: chat('bad: {{steps.a.state}}'), after: ways('a failed') },
    })
    const { completion, states } = await run(task, ({ messages }) => {
      const said = `${messages.at(-1)?.content}`
      return reply({ text: said === 'STEP' ? 'STEP FAILED: no' : said })
    })
    expect(states).toEqual({ a: 'failed', b: 'skipped', c: 'completed' })
    expect(completion).toMatchObject({ outcome: 'completed', summary: 'bad: failed' })
  })

  it('of a workflow that calls what is not there comes before its first step [S3.04]', async () => {
    const { completion, asked } = await run(
      workflowTask({ a: { chat: chat('x'), functions: ['send_mail'] } }),
    )
    expect(completion).toMatchObject({ outcome: 'failed', reason: 'plan_invalid' })
    expect(completion.message).toMatch(/step "a": function: .*send_mail/)
    expect(asked).toHaveLength(0)
  })
})

describe('branches', () => {
  const branching = (kind: string) =>
    workflowTask(
      {
        a: { chat: chat('{{input.kind}}'), cases: ['steps.a.output == "x"', 'steps.a.output == "y"', null] },
        x: { chat: chat('took x'), after: ways('a 0') },
        y: { chat: chat('took y'), after: ways('a 1') },
        other: { chat: chat('took other'), after: ways('a 2') },
        end: { chat: chat('joined'), after: ways('x', 'y', 'other') },
      },
      {
        input: { kind },
        result: 'steps.x.state + " " + steps.y.state + " " + steps.other.state + " " + steps.end.state',
      },
    )
  const echo = ({ messages }: Asked) => reply({ text: `${messages.at(-1)?.content}` })

  it.each([
    ['x', 'completed skipped skipped completed'],
    ['y', 'skipped completed skipped completed'],
    ['z', 'skipped skipped completed completed'],
  ])('take the first case that holds, and join again [S3.09] (%s)', async (kind, summary) => {
    const { completion } = await run(branching(kind), echo)
    expect(completion).toMatchObject({ outcome: 'completed', summary })
  })

  it('skip a step whose condition does not hold, and continue behind it [S3.09]', async () => {
    const { completion, states } = await run(
      workflowTask({
        a: { chat: chat('one') },
        b: { chat: chat('two'), after: ways('a'), when: 'steps.a.output == "no"' },
        c: { chat: chat('{{steps.b.state}}'), after: ways('b') },
      }),
      echo,
    )
    expect(states).toEqual({ a: 'completed', b: 'skipped', c: 'completed' })
    expect(completion.summary).toBe('skipped')
  })

  it('fail a step whose condition cannot be decided, with its place in the file [S3.09]', async () => {
    const { completion } = await run(
      workflowTask({
        a: { chat: chat('one'), cases: ['steps.a.output.kind == 1', null] },
        b: { chat: chat('two'), after: ways('a 1') },
      }),
      echo,
    )
    expect(completion).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(completion.message).toMatch(/step "a" failed: nextStep\.0\.when: /)
  })
})

describe('a call', () => {
  it('is made without the model, with values of the workflow, and its value is the output [S3.04]', async () => {
    const { completion, asked, events, diary } = await run(
      workflowTask(
        {
          a: { call: { function: 'read_note', arguments: { path: '{{input.path}}' } } },
          b: {
            call: { function: 'write_note', arguments: { path: 'b', content: '{{steps.a.output.text}}!' } },
            after: ways('a'),
          },
        },
        { input: { path: 'p' }, result: 'steps.b.output.text' },
      ),
    )
    expect(asked).toHaveLength(0)
    expect(diary.calls).toEqual(['read p', 'write b'])
    expect(completion).toMatchObject({ outcome: 'completed', summary: '10 characters written' })
    expect(events.flatMap((event) => (event.type === 'tool-end' ? [event.tool] : []))).toEqual([
      'read_note',
      'write_note',
    ])
  })

  it('that fails ends the run with the function and its reason [S3.05]', async () => {
    const { completion } = await run(
      workflowTask({ a: { call: { function: 'read_note', arguments: { path: 'missing' } } } }),
    )
    expect(completion).toMatchObject({
      outcome: 'failed',
      reason: 'step_failed',
      message:
        '0 of 1 steps completed; step "a" failed: the function read_note failed (not_found): no note missing',
    })
  })
})

describe('a question', () => {
  it('waits for a person, whose answer is the output [S3.09]', async () => {
    const task = workflowTask(
      {
        a: { ask: { question: 'Which {{input}}?', options: ['red', 'blue'] } },
        b: { chat: chat('{{steps.a.output}}'), after: ways('a') },
      },
      { input: 'color' },
    )
    const questions: unknown[] = []
    const whole = await runWhole((_, { messages }) => reply({ text: `${messages.at(-1)?.content}` }), {
      task,
      parts: { registry: createRegistry([createAskTool()], { logger: silentLogger }) },
      host: {
        requestApproval: async ({ question }) => {
          questions.push(question)
          return { ok: true, value: { decision: 'allow', answer: 'blue' } }
        },
      },
    })
    expect(questions).toEqual([
      { kind: 'choice', question: 'Which color?', options: [{ value: 'red' }, { value: 'blue' }] },
    ])
    expect(whole.completion).toMatchObject({ outcome: 'completed', summary: 'blue' })
  })

  it('that nobody answers ends the run as denied [S3.05]', async () => {
    const { completion } = await runWhole(() => reply({ text: '' }), {
      task: workflowTask({ a: { ask: { question: 'Which?' } } }),
      parts: { registry: createRegistry([createAskTool()], { logger: silentLogger }) },
      host: { requestApproval: async () => ({ ok: true, value: { decision: 'deny' } }) },
    })
    expect(completion).toMatchObject({ outcome: 'failed', reason: 'denied' })
  })
})

describe('a step that repeats', () => {
  const until = 'steps.a.output.contains("3")'

  it('continues its conversation until its condition holds [S3.09]', async () => {
    const { completion, asked } = await run(
      workflowTask({ a: { chat: chat('round {{index}}'), repeat: { until, max: 5 } } }),
      (_, index) => reply({ text: `answer ${index + 1}` }),
    )
    expect(completion).toMatchObject({ outcome: 'completed', summary: 'answer 3' })
    expect(asked[2]?.messages.slice(1).map(({ content }) => content)).toEqual([
      'round 0',
      'answer 1',
      'round 1',
      'answer 2',
      'round 2',
    ])
  })

  it('fails when it does not hold after its rounds [S3.09]', async () => {
    const { completion } = await run(
      workflowTask({ a: { chat: chat('go'), repeat: { until, max: 2 } } }),
      () => reply({ text: 'no' }),
    )
    expect(completion.message).toMatch(/step "a" failed: repeat\.until: does not hold after 2 rounds/)
  })
})

describe('a step for each entry of a list', () => {
  const task = (parallel: number, more: object = {}) =>
    workflowTask(
      {
        a: {
          each: { in: 'input', parallel, max: 3 },
          call: { function: 'read_note', arguments: { path: '{{item}}' } },
          ...more,
        },
      },
      { result: 'steps.a.output.map(one, one.text)', input: ['met 1', 'met 2', 'met 3'] },
    )

  it('runs as many at once as it says, and gives their outputs in order [S3.09]', async () => {
    // Each of these notes is there once three calls are under way.
    const { completion, events, diary } = await run(task(3))
    expect(JSON.parse(completion.summary)).toEqual(['text of met 1', 'text of met 2', 'text of met 3'])
    expect(diary.mostRunning).toBe(3)
    const steps = events.flatMap((event) => (event.type === 'tool-end' ? [event.stepId] : []))
    expect(steps.toSorted()).toEqual(['a--0', 'a--1', 'a--2'])
  })

  it('fails with the entry that failed, and with a list that is too long [S3.09]', async () => {
    const entries = { ...task(1), workflow: { ...task(1).workflow, input: ['x', 'missing', 'y'] } }
    const { completion, diary } = await run(entries)
    expect(completion.message).toMatch(
      /step "a" failed: entry 1: the function read_note failed \(not_found\)/,
    )
    expect(diary.calls).toEqual(['read x', 'read missing'])
    const long = { ...task(1), workflow: { ...task(1).workflow, input: ['x', 'x', 'x', 'x'] } }
    expect((await run(long)).completion.message).toMatch(/each\.in: gives 4 entries; at most 3 are allowed/)
  })
})

describe('a workflow in a step', () => {
  const part = (steps: Parameters<typeof workflowTask>[0], more: object = {}) => {
    const { plan, workflow } = workflowTask(steps)
    return { name: 'Part', version: '2', sha256: '1'.repeat(64), plan, steps: workflow.steps, ...more }
  }
  const echo = ({ messages }: Asked) => reply({ text: `${messages.at(-1)?.content}` })

  it('has steps, input and result of its own, again for each entry and until a condition holds [S3.09]', async () => {
    const inner = part(
      {
        a: { chat: chat('one {{input.x}}') },
        b: { chat: chat('two {{steps.a.state}}'), after: ways('a'), when: 'input.x == "q"' },
        c: { chat: chat('three'), after: ways('b') },
      },
      { result: 'steps.a.output + "/" + steps.b.state + "/" + steps.c.output' },
    )
    const { completion, events } = await run(
      workflowTask(
        {
          outer: {
            each: { in: 'input', parallel: 2, max: 5 },
            workflow: { part: 'p', input: { x: '{{item}}' } },
          },
          again: {
            workflow: { part: 'p', input: { x: '{{index}}' } },
            repeat: { until: 'steps.again.output.startsWith("one 2")', max: 5 },
            after: ways('outer'),
          },
        },
        { input: ['p', 'q'], parts: { p: inner }, result: '[steps.outer.output, steps.again.output]' },
      ),
      echo,
    )
    expect(completion.outcome).toBe('completed')
    expect(JSON.parse(completion.summary)).toEqual([
      ['one p/skipped/three', 'one q/completed/three'],
      'one 2/skipped/three',
    ])
    const turns = events.flatMap((event) => (event.type === 'turn-end' ? [event.stepId] : []))
    expect(new Set(turns)).toEqual(
      new Set([
        'outer--0--a',
        'outer--0--c',
        'outer--1--a',
        'outer--1--b',
        'outer--1--c',
        'again--a',
        'again--c',
      ]),
    )
  })

  it('fails with its step, and has its own retries and ways for failures [S3.05 S3.09]', async () => {
    const broken = part({
      a: { call: { function: 'read_note', arguments: { path: 'missing' } }, retries: 1 },
      b: { chat: chat('never'), after: ways('a') },
    })
    const failing = await run(
      workflowTask({ outer: { workflow: { part: 'p', input: null } } }, { parts: { p: broken } }),
    )
    expect(failing.completion).toMatchObject({ outcome: 'failed', reason: 'step_failed' })
    expect(failing.completion.message).toContain(
      'step "outer" failed: step "a" failed: the function read_note failed (not_found): no note missing',
    )
    expect(failing.diary.calls).toEqual(['read missing', 'read missing'])
    const handled = part({
      a: { call: { function: 'read_note', arguments: { path: 'missing' } }, onFailure: 'continue' },
      b: { chat: chat('recovered'), after: ways('a failed') },
    })
    const { completion } = await run(
      workflowTask({ outer: { workflow: { part: 'p', input: null } } }, { parts: { p: handled } }),
      echo,
    )
    expect(completion).toMatchObject({ outcome: 'completed', summary: 'recovered' })
  })

  it('is not run with an input that does not fit, nor with functions that are not there [S3.09]', async () => {
    const typed = part({ a: { chat: chat('x') } }, { inputSchema: { type: 'object', required: ['n'] } })
    const { completion } = await run(
      workflowTask({ outer: { workflow: { part: 'p', input: {} } } }, { parts: { p: typed } }),
    )
    expect(completion.message).toMatch(/workflow\.input: does not fit Part@2: /)
    const lost = part({ a: { chat: chat('x'), functions: ['send_mail'] } })
    const refused = await run(
      workflowTask({ outer: { workflow: { part: 'p', input: null } } }, { parts: { p: lost } }),
    )
    expect(refused.completion).toMatchObject({ reason: 'plan_invalid' })
    expect(refused.completion.message).toMatch(/Part@2: step "a": function: /)
  })
})
