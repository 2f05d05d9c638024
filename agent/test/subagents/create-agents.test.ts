import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { AgentEvent } from '#specs/protocol/event.ts'
import type { Step } from '#specs/protocol/plan.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { runStep } from '../../step/step.ts'
import type { AgentResult } from '../../tool-calls/sub-agent-types.ts'
import { type AgentsBench, byBrief, makeAgents, write } from '../support/agents.ts'
import { modelAt } from '../support/run.ts'
import { callAsModel } from '../support/tools.ts'

const never = new AbortController().signal
const files = (root: string): void => {
  writeFileSync(join(root, 'a.txt'), 'a\n')
  mkdirSync(join(root, 'src'))
  writeFileSync(join(root, 'src/b.txt'), 'b\n')
}
const read = (bench: AgentsBench, path: string): string => readFileSync(join(bench.root, path), 'utf8')
const step: Step = {
  id: 'fan-out',
  title: 'Fan out',
  instructions: 'ROOT',
  needs: [],
  writes: ['*'],
  onFailure: 'abort',
}
/** What a call said, as the model learns of it. */
async function callTool(bench: AgentsBench, name: string, input: unknown): Promise<string> {
  const { output } = await callAsModel(bench.run.registry, name, input, {
    signal: never,
    agents: bench.agents,
    stepId: 'fan-out',
    callId: `c${Math.floor(performance.now() * 1_000)}`,
    requestApproval: () => Promise.resolve({ decision: 'deny' }),
  })
  return output
}

describe('sub-agents', () => {
  it('reason as their request says, else as their parent does, and the journal says it [G.05]', async () => {
    await using server = await startModelServer(
      byBrief({ ONE: [reply({ text: 'one is done' })], TWO: [reply({ text: 'two is done' })] }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files, task: { effort: 'low' } })
    await bench.agents.spawn({ brief: 'ONE', effort: 'high' }, 'fan-out', never)
    await bench.agents.spawn({ brief: 'TWO' }, 'fan-out', never)
    expect(server.asked.map(({ body }) => body.reasoning_effort)).toEqual(['high', undefined])
    const starts = [...bench.heard.values()]
      .flat()
      .flatMap((event) => (event.type === 'agent-start' ? [event.effort] : []))
    expect(starts).toEqual(['high', undefined])
  })

  it('run at once when one reply asks for several, and what they change comes together [S1.13 A.07]', async () => {
    const slow = (text: string) => ({ ...reply({ text }), headAfterMs: 150 })
    const spawn = (name: string) => ({ name: 'spawn_agent', arguments: { name, brief: name.toUpperCase() } })
    await using server = await startModelServer(
      byBrief({
        ROOT: [reply({ calls: [spawn('one'), spawn('two'), spawn('three')] }), reply({ text: 'all done' })],
        ONE: [write('one.txt', '1'), slow('one is done')],
        TWO: [write('src/two.txt', '2'), slow('two is done')],
        THREE: [write('src/b.txt', 'B'), slow('three is done')],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const opening = [
      { role: 'system', content: "You are Caisson's agent." },
      { role: 'user', content: 'ROOT' },
    ] as const
    const result = await runStep(step, opening, bench.run, never)
    expect(result).toMatchObject({ state: 'completed', text: 'all done' })
    expect(server.mostOpen()).toBe(3)
    expect([read(bench, 'one.txt'), read(bench, 'src/two.txt'), read(bench, 'src/b.txt')]).toEqual([
      '1',
      '2',
      'B',
    ])
    const told = server.asked.at(-1)?.messages.filter(({ role }) => role === 'tool')
    expect(told?.map(({ content }) => content?.split('\n'))).toEqual([
      ['[sub-agent one: completed]', 'one is done', '[brought over: one.txt]'],
      ['[sub-agent two: completed]', 'two is done', '[brought over: src/two.txt]'],
      ['[sub-agent three: completed]', 'three is done', '[brought over: src/b.txt]'],
    ])
    expect(bench.open.size).toBe(0)
  })

  it('tell their story under their own path: a beginning, turns and calls, an end, and nothing behind it [A.07]', async () => {
    await using server = await startModelServer(
      byBrief({ ONE: [write('one.txt', '1'), reply({ text: 'done' })] }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    await bench.agents.spawn({ brief: 'ONE: do it', name: 'one' }, 'fan-out', never)
    await bench.agents.spawn({ brief: 'ONE again', name: 'one' }, 'fan-out', never)
    expect([...bench.heard.keys()]).toEqual(['root/one', 'root/one-2'])
    const events = bench.heard.get('root/one')?.map((event) => AgentEvent.parse(event))
    expect(events?.map(({ type }) => type)).toEqual([
      'agent-start',
      'turn-end',
      'tool-start',
      'tool-end',
      'turn-end',
      'agent-end',
    ])
    expect(events?.[0]).toMatchObject({
      stepId: 'fan-out',
      brief: 'ONE: do it',
      tools: expect.arrayContaining(['read_file', 'write_file']),
      limits: {
        maxToolCalls: expect.any(Number),
        maxTokens: expect.any(Number),
        maxWallMs: expect.any(Number),
      },
    })
    expect(events?.[1]).toMatchObject({ stepId: 'agent' })
    expect(events?.at(-1)).toMatchObject({
      stepId: 'fan-out',
      state: 'completed',
      reason: 'completed',
      text: 'done',
      merged: 1,
      conflicts: [],
      usage: { requests: 2 },
    })
    // What is spent is the whole run's.
    expect(bench.run.budget.usage.requests).toBe(3)
    const ids = [...bench.heard.values()]
      .flat()
      .flatMap((event) => (event.type === 'tool-start' ? [event.callId] : []))
    expect(new Set(ids).size).toBe(ids.length)
  })

  it('know their brief, the files and their tools, and nothing of what their parent knows [A.07]', async () => {
    await using server = await startModelServer(byBrief({ ONE: [reply({ text: 'done' })] }))
    const task = { prompt: 'the secret task', limits: { maxDepth: 1 } }
    using bench = makeAgents({ model: modelAt(server.baseUrl), files, task })
    await bench.agents.spawn({ brief: 'ONE', tools: ['read_file', 'list_files'] }, 'fan-out', never)
    const [asked] = server.asked
    expect(asked?.tools.map(({ function: { name } }) => name)).toEqual(['list_files', 'read_file'])
    expect(asked?.text).toContain('You are a sub-agent')
    expect(asked?.text).toContain('src/b.txt')
    expect(asked?.text).not.toContain('the secret task')
    const all = await bench.agents.spawn({ brief: 'ONE' }, 'fan-out', never)
    expect(all.state).toBe('completed')
    expect(server.asked[1]?.tools.map(({ function: { name } }) => name)).not.toContain('spawn_agent')
    const refused = await bench.agents.spawn({ brief: 'ONE', tools: ['launch_rocket'] }, 'fan-out', never)
    expect(refused.refused?.code).toBe('invalid_input')
    expect(server.asked).toHaveLength(2)
  })

  it('have no tool that their parent was not given, whatever they are started with [A.07]', async () => {
    await using server = await startModelServer(byBrief({ ONE: [reply({ text: 'done' })] }))
    using whole = makeAgents({ model: modelAt(server.baseUrl), files })
    const chosen = whole.run.registry.select(['read_file', 'spawn_agent'])
    if (!chosen.ok) throw new Error(chosen.error.message)
    const task = { limits: { maxDepth: 1 } }
    using bench = makeAgents({ model: modelAt(server.baseUrl), files, task, registry: chosen.value })
    const refused = await bench.agents.spawn({ brief: 'ONE', tools: ['write_file'] }, 'fan-out', never)
    expect(refused.refused?.code).toBe('invalid_input')
    await bench.agents.spawn({ brief: 'ONE' }, 'fan-out', never)
    expect(server.asked.map(({ tools }) => tools.map((tool) => tool.function.name))).toEqual([['read_file']])
  })

  it('keep a place in the queue: no more run at once, or in all, than the run may have [A.07]', async () => {
    const slow = { ...reply({ text: 'done' }), headAfterMs: 60 }
    await using server = await startModelServer(byBrief({ ONE: [slow] }))
    const task = { limits: { maxParallelAgents: 2, maxAgents: 5, maxTokens: 3_000 } }
    using bench = makeAgents({ model: modelAt(server.baseUrl), files, task })
    const results = await Promise.all(
      Array.from({ length: 6 }, () => bench.agents.spawn({ brief: 'ONE' }, 'fan-out', never)),
    )
    expect(server.mostOpen()).toBe(2)
    // Those that begin together have equal shares, a third with two at once, and the parent one of its own.
    const [first, second] = [...bench.heard.values()].map(([start]) => start)
    const share = { maxToolCalls: 133, maxTokens: 1_000 }
    expect([first, second]).toMatchObject([{ limits: share }, { limits: share }])
    expect(results.map(({ state }) => state).sort()).toEqual([...Array(5).fill('completed'), 'failed'])
    expect(results.find(({ refused }) => refused !== undefined)?.refused?.code).toBe('limit_reached')
  })

  it('that meet their parent’s changes leave them, and both versions can be had [A.07]', async () => {
    await using server = await startModelServer(
      byBrief({
        ONE: [
          () => {
            // Its view is open, and it has done nothing yet.
            writeFileSync(join(bench.root, 'a.txt'), 'of the parent\n')
            return write('a.txt', 'of the child\n')
          },
          write('new.txt', 'new\n'),
          reply({ text: 'done' }),
        ],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const result = await bench.agents.spawn({ brief: 'ONE', name: 'one' }, 'fan-out', never)
    expect(result).toMatchObject({
      state: 'completed',
      merged: ['new.txt'],
      conflicts: [{ path: 'a.txt', parentText: 'of the parent\n', childText: 'of the child\n' }],
    })
    expect(read(bench, 'a.txt')).toBe('of the parent\n')
    expect(bench.heard.get('root/one')?.at(-1)).toMatchObject({ type: 'agent-end', conflicts: ['a.txt'] })
    expect(await callTool(bench, 'read_agent_file', { agent: 'one', path: 'a.txt' })).toContain(
      'of the child',
    )
    expect(
      await callTool(bench, 'read_agent_file', { agent: 'root/one', path: '../workspace/a.txt' }),
    ).toContain('outside')
    expect(await callTool(bench, 'take_agent_file', { agent: 'one', path: '../a.txt' })).toContain('outside')
    expect(await callTool(bench, 'take_agent_file', { agent: 'one', path: 'a.txt' })).toBe(
      'a.txt is now as one had it.',
    )
    expect(read(bench, 'a.txt')).toBe('of the child\n')
    expect(await callTool(bench, 'take_agent_file', { agent: 'two', path: 'a.txt' })).toContain(
      'has no files left',
    )
    expect(bench.open.size).toBe(1)
    await bench.agents.close()
    expect(bench.open.size).toBe(0)
  })

  it('end by a limit of their own with what they have, and their parent continues [A.07 S0.07]', async () => {
    const again = (path: string) => write(path, 'x', `so far: ${path}`)
    await using server = await startModelServer(
      byBrief({
        CALLS: [again('calls.txt'), again('more.txt'), again('yet-more.txt')],
        TURNS: [again('turns.txt'), again('turns-2.txt'), reply({ text: 'two files are written' })],
        TOKENS: [again('tokens.txt'), again('tokens-2.txt'), again('tokens-3.txt')],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const spawn = (brief: string, limits: object): Promise<AgentResult> =>
      bench.agents.spawn({ brief, limits }, 'fan-out', never)
    expect(await spawn('CALLS', { maxToolCalls: 1 })).toMatchObject({
      state: 'failed',
      reason: 'limit_calls',
      text: expect.stringContaining('so far: yet-more.txt'),
      merged: ['calls.txt'],
    })
    expect(await spawn('TURNS', { maxTurns: 2 })).toMatchObject({
      reason: 'limit_turns',
      text: 'two files are written\n\n[Caisson] Ended before it was done: the step was not done after 2 turns of the model',
      merged: ['turns-2.txt', 'turns.txt'],
    })
    expect(await spawn('TOKENS', { maxTokens: 20 })).toMatchObject({
      reason: 'limit_tokens',
      text: expect.stringContaining('the sub-agent used 30 of 20 tokens'),
    })
    expect(bench.run.budget.tripped).toBeNull()
    expect(bench.run.signal.aborted).toBe(false)
    expect(bench.open.size).toBe(0)
  })

  it('end by time though the model is silent, and their parent has time left [A.07]', async () => {
    await using server = await startModelServer(byBrief({ ONE: [{ body: '', before: 'hang' }] }))
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const result = await bench.agents.spawn({ brief: 'ONE', limits: { maxWallMs: 1_000 } }, 'fan-out', never)
    expect(result).toMatchObject({ state: 'failed', reason: 'limit_time' })
    expect(bench.run.budget.tripped).toBeNull()
  })

  it('end with their run, those that wait too, and bring nothing over then [A.07]', async () => {
    const wait = reply({ text: 'I wait', calls: [{ name: 'wait_long', arguments: {} }] })
    const script = [write('a.txt', 'child'), wait]
    await using server = await startModelServer(byBrief({ ONE: script, TWO: script, THREE: script }))
    const task = { limits: { maxParallelAgents: 2 } }
    using bench = makeAgents({ model: modelAt(server.baseUrl), files, task })
    const all = ['ONE', 'TWO', 'THREE'].map((brief) => bench.agents.spawn({ brief }, 'fan-out', never))
    await expect
      .poll(() => [...bench.heard.values()].flat().filter((event) => event.type === 'tool-start').length)
      .toBe(4)
    bench.test.cancel()
    const results = await Promise.all(all)
    expect(results.map(({ state, reason }) => [state, reason])).toEqual(
      Array(3).fill(['cancelled', 'cancelled']),
    )
    expect(results[0]?.text).toBe('I wait')
    expect(read(bench, 'a.txt')).toBe('a\n')
    expect([...bench.heard.values()].map((events) => events.at(-1)?.type)).toEqual(['agent-end', 'agent-end'])
    expect(bench.open.size).toBe(0)
  })

  it('end when the run is over, though nobody cancelled it [A.07]', async () => {
    const wait = reply({ calls: [{ name: 'wait_long', arguments: {} }] })
    await using server = await startModelServer(byBrief({ ONE: [wait] }))
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const spawning = bench.agents.spawn({ brief: 'ONE' }, 'fan-out', never)
    await expect.poll(() => bench.heard.get('root/fan-out-agent')?.length).toBe(3)
    await bench.agents.close()
    expect((await spawning).state).toBe('cancelled')
    expect(bench.open.size).toBe(0)
  })

  it('without a name have that of their step, in whatever order steps begin [A.07 R.01]', async () => {
    await using server = await startModelServer(byBrief({ ONE: [reply({ text: 'done' })] }))
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const paths = await Promise.all(
      ['late', 'early', 'early'].map((step) => bench.agents.spawn({ brief: 'ONE' }, step, never)),
    )
    expect(paths.map(({ agentPath }) => agentPath)).toEqual([
      'root/late-agent',
      'root/early-agent',
      'root/early-agent-2',
    ])
  })

  it('ask under their own path, each question with an id of its own [A.07 S1.11]', async () => {
    const drop = reply({ calls: [{ id: 'call_1', name: 'delete_file', arguments: { path: 'a.txt' } }] })
    const script = [drop, reply({ text: 'done' })]
    await using server = await startModelServer(byBrief({ ONE: script, TWO: script }))
    using bench = makeAgents({
      model: modelAt(server.baseUrl),
      files,
      decide: ({ agentPath }) => Promise.resolve({ decision: agentPath === 'root/one' ? 'allow' : 'deny' }),
    })
    const spawn = (name: string): Promise<AgentResult> =>
      bench.agents.spawn({ brief: name.toUpperCase(), name }, 'fan-out', never)
    const [one, two] = await Promise.all([spawn('one'), spawn('two')])
    expect(bench.test.approvals.map(({ agentPath, stepId }) => [agentPath, stepId]).sort()).toEqual([
      ['root/one', 'agent'],
      ['root/two', 'agent'],
    ])
    expect(new Set(bench.test.approvals.map(({ approvalId }) => approvalId)).size).toBe(2)
    expect([one?.merged, two?.merged]).toEqual([['a.txt'], []])
    expect(readdirSync(bench.root)).toEqual(['src'])
  })

  it('ask the person under their own path, and learn that they may [A.07 S2.16]', async () => {
    const question = { question: 'Which one?', kind: 'confirm' }
    const ask = reply({ calls: [{ name: 'ask_user', arguments: question }] })
    await using server = await startModelServer(byBrief({ ONE: [ask, reply({ text: 'done' })] }))
    using bench = makeAgents({
      model: modelAt(server.baseUrl),
      files,
      decide: () => Promise.resolve({ decision: 'allow', answer: true }),
    })
    await bench.agents.spawn({ brief: 'ONE', name: 'one' }, 'fan-out', never)
    expect(bench.test.approvals).toMatchObject([{ agentPath: 'root/one', tool: 'ask_user', question }])
    const [first, second] = server.asked
    expect(first?.messages[0]?.content).toContain('may be asked with ask_user')
    expect(second?.messages.at(-1)?.content).toContain('<answer>\nyes\n</answer>')
  })

  it('give an answer of the form that was asked for, or are asked again [A.07 G.07]', async () => {
    await using server = await startModelServer(
      byBrief({ ONE: [reply({ text: 'it is seven' }), reply({ text: '{"count": 7}' })] }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const output = { type: 'object', properties: { count: { type: 'integer' } }, required: ['count'] }
    const result = await bench.agents.spawn({ brief: 'ONE', output }, 'fan-out', never)
    expect(result).toMatchObject({ state: 'completed', text: '{"count":7}' })
  })

  it('that can have no view are refused with the reason, after kept views have given way [A.07]', async () => {
    await using server = await startModelServer(
      byBrief({
        ONE: [
          () => {
            writeFileSync(join(bench.root, 'a.txt'), 'parent')
            return write('a.txt', 'child')
          },
          reply({ text: 'done' }),
        ],
        TWO: [reply({ text: 'done' })],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    bench.refuse('no_space')
    const refused = await bench.agents.spawn({ brief: 'TWO' }, 'fan-out', never)
    expect(refused).toMatchObject({ state: 'failed', refused: { code: 'no_space' } })
    const met = await bench.agents.spawn({ brief: 'ONE', name: 'one' }, 'fan-out', never)
    expect(met.conflicts).toHaveLength(1)
    expect(bench.agents.findView('one').ok).toBe(true)
    bench.refuse('busy')
    expect(await bench.agents.spawn({ brief: 'TWO' }, 'fan-out', never)).toMatchObject({ state: 'completed' })
    expect(bench.agents.findView('one').ok).toBe(false)
    expect(bench.open.size).toBe(0)
  })
})
