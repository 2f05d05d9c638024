// Whole runs with real sub-agents against a host that has hooks: what is asked, and what the agent does with the answer.
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { type AgentHookPoint, type HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Script } from '#specs/testing/model-server.ts'
import { aroundStep, openHooks } from '../../run/hooks.ts'
import type { TaskServer } from '../../tasks.ts'
import { defineTool, toolSuccess } from '../../tool-calls/tool.ts'
import {
  answer,
  call,
  type Ending,
  eventsOf,
  onePlan,
  runTask,
  type WorldOptions,
  working,
} from '../hostile/world.ts'
import { makeRun, modelAt, someRunId } from '../support/run.ts'
import { isOfSubAgent, isPlanning } from '../support/scripted-model.ts'

type Task = NonNullable<WorldOptions['task']>
type Decide = (subject: HookRequest['subject'], request: HookRequest) => HookDecision | Promise<HookDecision>

async function withHooks(
  script: Script,
  hooks: Task['hooks'],
  decide: Decide,
  options: Omit<WorldOptions, 'host'> = {},
): Promise<Ending & { questions: HookRequest[] }> {
  const questions: HookRequest[] = []
  const ending = await runTask(script, {
    ...options,
    task: { ...options.task, ...(hooks === undefined ? {} : { hooks }) },
    host: {
      runHook: async (request) => {
        questions.push(HookRequest.parse(request))
        return { ok: true, value: await decide(request.subject, request) }
      },
    },
  })
  return { ...ending, questions }
}
const allow: HookDecision = { decision: 'allow' }
const files = { 'a.txt': 'alpha\n', 'b.txt': 'beta\n' }
const outputs = (ending: Ending): string[] => eventsOf(ending, 'tool-end').map(({ output }) => output)

describe('hooks around a call', () => {
  it('are asked about the tools that their patterns name, with what is called and what it gave [A.10]', async () => {
    const hooks = [
      { point: 'before-tool', tools: ['read_*'] },
      { point: 'after-tool', tools: ['read_*'] },
    ] as const
    const script = working(call('read_file', { path: 'a.txt' }), call('list_files', {}), answer('done'))
    const ending = await withHooks(
      script,
      [...hooks.map((hook) => ({ ...hook, tools: [...hook.tools] }))],
      () => allow,
      { files },
    )
    expect(ending.questions.map(({ subject }) => subject)).toMatchObject([
      {
        point: 'before-tool',
        tool: 'read_file',
        arguments: expect.stringContaining('"path":"a.txt"'),
        defaults: ['offset', 'limit'],
      },
      { point: 'after-tool', tool: 'read_file', output: expect.stringContaining('alpha') },
    ])
    expect(new Set(ending.questions.map(({ hookId }) => hookId)).size).toBe(2)
  })

  it('keep a call from being made, and the model learns why [A.10]', async () => {
    const script = working(call('write_file', { path: 'c.txt', content: 'c' }), answer('done'))
    const ending = await withHooks(script, [{ point: 'before-tool' }], () => ({
      decision: 'deny',
      reason: 'no files today',
    }))
    expect(ending.isChanged).toBe(false)
    expect(eventsOf(ending, 'tool-end')[0]).toMatchObject({ error: { code: 'denied' } })
    expect(outputs(ending)[0]).toContain('no files today')
  })

  it('change arguments, which the tool’s schema sees again; the events have both [A.10]', async () => {
    const script = working(call('read_file', { path: 'a.txt' }), answer('done'))
    const give = (changed: unknown) => () =>
      ({ decision: 'allow', arguments: JSON.stringify(changed), note: 'look at b' }) as const
    const good = await withHooks(script, [{ point: 'before-tool' }], give({ path: 'b.txt' }), { files })
    expect(outputs(good)[0]).toContain('beta')
    expect(outputs(good)[0]).toContain('a hook says: look at b')
    expect(eventsOf(good, 'tool-start')[0]?.arguments).toContain('a.txt')
    expect(eventsOf(good, 'tool-end')[0]?.corrections?.[0]).toMatch(/a hook changed the arguments.*b\.txt/)
    for (const wrong of [{ file: 'b.txt' }, { path: 7 }, []]) {
      const bad = await withHooks(script, [{ point: 'before-tool' }], give(wrong), { files })
      expect(eventsOf(bad, 'tool-end')[0]?.error?.code).toBe('denied')
      expect(outputs(bad)[0]).not.toContain('beta')
    }
  })

  it('withhold what a call gave, also from read_output [A.10]', async () => {
    const long = { 'a.txt': `${'secret line\n'.repeat(8_000)}` }
    let turn = 0
    const script: Script = (asked) => {
      if (isPlanning(asked)) return onePlan
      turn++
      if (turn === 1)
        return reply({ calls: [{ id: 'first0001', name: 'read_file', arguments: { path: 'a.txt' } }] })
      return turn === 2 ? call('read_output', { callId: 'first0001' }) : answer('done')
    }
    const withheld = [{ point: 'after-tool' as const, tools: ['read_file'] }]
    const ending = await withHooks(script, withheld, () => ({ decision: 'deny', reason: 'private' }), {
      files: long,
    })
    expect(outputs(ending)[0]).toContain('withholds its result: private')
    expect(ending.questions).toHaveLength(1)
    expect(outputs(ending).join('')).not.toContain('secret line')
    expect(eventsOf(ending, 'tool-end')[1]?.error?.code).toBe('not_found')
  })

  it('count as a no when they cannot be asked [A.10]', async () => {
    const script = working(call('write_file', { path: 'c.txt', content: 'c' }), answer('done'))
    const ending = await withHooks(script, [{ point: 'before-tool' }], () =>
      Promise.reject(new Error('no answer')),
    )
    expect(ending.isChanged).toBe(false)
    expect(eventsOf(ending, 'tool-end')[0]?.error?.code).toBe('denied')
  })
})

describe('hooks around a step', () => {
  it('keep it from beginning, and the run fails with their reason [A.10]', async () => {
    const ending = await withHooks(working(answer('done')), [{ point: 'before-step' }], () => ({
      decision: 'deny',
      reason: 'not on a Friday',
    }))
    expect(ending.completion).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(ending.completion.message).toContain('not on a Friday')
    expect(eventsOf(ending, 'turn-end').every(({ stepId }) => stepId === 'plan')).toBe(true)
  })

  it('make it fail after it was done [A.10]', async () => {
    const ending = await withHooks(working(answer('done')), [{ point: 'after-step' }], (subject) => {
      expect(subject).toMatchObject({ point: 'after-step', state: 'completed', text: 'done' })
      return { decision: 'deny', reason: 'tests are missing' }
    })
    expect(eventsOf(ending, 'step-end')[0]).toMatchObject({
      state: 'failed',
      text: expect.stringContaining('tests are missing'),
    })
    expect(ending.completion.outcome).toBe('failed')
  })
})

describe('hooks at depth', () => {
  it('are asked for a sub-agent’s calls and for its work as a whole, under its path [A.10]', async () => {
    let turn = 0
    const script: Script = (asked) => {
      if (isPlanning(asked)) return onePlan
      if (isOfSubAgent(asked))
        return asked.messages.at(-1)?.role === 'tool'
          ? answer('seen')
          : call('write_file', { path: 'c.txt', content: 'c' })
      return turn++ > 0 ? answer('done') : call('spawn_agent', { brief: 'write', name: 'pen' })
    }
    const hooks = [
      { point: 'before-tool' as const, tools: ['write_file'] },
      { point: 'before-step' as const },
    ]
    const ending = await withHooks(
      script,
      hooks,
      (subject) => (subject.point === 'before-tool' ? { decision: 'deny', reason: 'read only' } : allow),
      { agents: true },
    )
    expect(ending.isChanged).toBe(false)
    expect(ending.questions.map(({ agentPath, subject }) => [agentPath, subject.point])).toEqual([
      ['root', 'before-step'],
      ['root/pen', 'before-step'],
      ['root/pen', 'before-tool'],
    ])
  })
})

describe('hooks that cannot be asked any more', () => {
  it('let nothing count as done that they were to look at, so that the host finds no call and no step without them [A.10]', async () => {
    const script = working(call('wait_long', {}), answer('done'))
    let tasks: TaskServer | undefined
    const tool = defineTool({
      name: 'wait_long',
      description: 'Ends well although it was cancelled.',
      inputSchema: z.strictObject({}),
      outputSchema: z.string(),
      requiresApproval: false,
      readOnly: true,
      execute: () => {
        tasks?.cancel(someRunId, 'enough')
        return Promise.resolve(toolSuccess('the secret'))
      },
    })
    const options = {
      tools: [tool],
      onEvent: (_: unknown, given: TaskServer): void => {
        tasks = given
      },
    }
    const cancelled = await withHooks(script, [{ point: 'after-tool' }], () => allow, options)
    expect(cancelled.completion.outcome).toBe('cancelled')
    expect(eventsOf(cancelled, 'tool-end')).toMatchObject([{ error: { code: 'cancelled' } }])
    expect(outputs(cancelled)[0]).not.toContain('the secret')
    const other = await withHooks(script, [{ point: 'after-tool', tools: ['read_*'] }], () => allow, options)
    expect(outputs(other)[0]).toContain('the secret')
  })

  it('leave a step undone that ended well as the run was cancelled [A.10]', async () => {
    const step = { id: 's', title: 'S', instructions: 'do' }
    const done = { state: 'completed', reason: 'completed', text: 'done', history: [] } as const
    const end = async (point: AgentHookPoint) => {
      const ending = new AbortController()
      const hooks = openHooks([{ point }], () => Promise.resolve(allow))
      const { run } = makeRun({ model: modelAt('http://127.0.0.1:9') })
      return await aroundStep(
        step,
        hooks === undefined ? run : { ...run, hooks },
        ending.signal,
        async () => {
          ending.abort()
          return done
        },
      )
    }
    expect(await end('after-step')).toMatchObject({ state: 'cancelled', text: 'done' })
    expect(await end('before-step')).toMatchObject({ state: 'completed' })
  })
})
