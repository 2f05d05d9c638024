// Models that misuse their plans: change them forever, rewrite what has begun, act where they may only plan.
import { describe, expect, it } from 'vitest'
import type { ServerReply } from '#specs/testing/model-server.ts'
import { isPlanning, planReply } from '../support/scripted-model.ts'
import { answer, call, eventsOf, runTask } from './world.ts'

const step = (id: string, more: object = {}) => ({
  id,
  title: id,
  instructions: id,
  needs: [],
  writes: [],
  ...more,
})
const plan = (...steps: object[]) => ({ goal: 'g', steps })
const limits = { maxTurnsPerStep: 200, maxToolCalls: 5_000 }

describe('a model that changes its plan', () => {
  it('cannot do so forever [T.02]', async () => {
    let turn = 0
    const ending = await runTask(
      (asked) => {
        if (isPlanning(asked)) return planReply(plan(step('a'), step('b')))
        const reason = `it is turn ${++turn}`
        return call('revise_plan', { reason, plan: plan(step('a'), step(`b${turn}`, { title: reason })) })
      },
      { task: { limits }, deadlineMs: 120_000 },
    )
    expect(ending.completion.outcome).toBe('failed')
    expect(eventsOf(ending, 'plan-update').length).toBeLessThan(40)
    const revisions = eventsOf(ending, 'plan-update').map(({ revision }) => revision)
    expect(revisions).toEqual(revisions.map((_, at) => at + 1))
  }, 150_000)

  const wrongs: Record<string, unknown> = {
    'other instructions for the step that runs': plan(
      step('a', { instructions: 'delete everything' }),
      step('b'),
    ),
    'a circle through the step that runs': plan(step('a', { needs: ['b'] }), step('b', { needs: ['a'] })),
    'no steps': plan(),
    'a step of the same name twice': plan(step('a'), step('b'), step('b')),
    '500 steps': plan(step('a'), ...Array.from({ length: 500 }, (_, at) => step(`s${at}`))),
    'names out of Object': JSON.parse('{"__proto__":{"goal":"g"},"goal":"g","steps":[{"id":"__proto__"}]}'),
    null: null,
    text: 'a better plan',
  }

  it.each(Object.keys(wrongs))(
    'cannot make it one with %s: what runs stays as it was [T.02]',
    async (kind) => {
      let turn = 0
      const ending = await runTask((asked) => {
        if (isPlanning(asked)) return planReply(plan(step('a')))
        return turn++ === 0 ? call('revise_plan', { reason: 'r', plan: wrongs[kind] }) : answer('done')
      })
      const last = eventsOf(ending, 'plan-update').at(-1)
      expect(last?.plan.steps.find(({ id }) => id === 'a') ?? { instructions: 'a' }).toMatchObject({
        instructions: 'a',
      })
      expect(ending.completion).toMatchObject({ outcome: 'completed' })
    },
  )
})

describe('a model that may only plan', () => {
  const files = { 'a.txt': 'alpha' }
  const planOnly = { mode: 'plan' as const, limits }

  it('changes nothing, whatever tools it calls [T.02]', async () => {
    const acts: ServerReply[] = [
      call('write_file', { path: 'b.txt', content: 'x' }),
      call('edit_file', { path: 'a.txt', oldText: 'alpha', newText: 'x' }),
      call('delete_file', { path: 'a.txt' }),
      call('move_file', { from: 'a.txt', to: 'b.txt' }),
      call('revise_plan', { reason: 'r', plan: plan(step('a')) }),
      call('spawn_agent', { brief: 'write b.txt' }),
      call('WRITE_FILE', { path: 'b.txt', content: 'x' }),
      call('read_file', { path: 'a.txt' }),
      call('submit_plan', { goal: 'g', steps: [] }),
      call('submit_plan', plan(step('a'))),
    ]
    let turn = 0
    const ending = await runTask(() => acts[turn++] ?? answer('none'), {
      agents: true,
      files,
      task: planOnly,
    })
    expect(ending.completion).toMatchObject({ outcome: 'completed' })
    expect(ending.isChanged).toBe(false)
    expect(eventsOf(ending, 'step-start')).toEqual([])
    const good = eventsOf(ending, 'tool-end').filter(({ error }) => error === undefined)
    expect(good.map(({ tool }) => tool)).toEqual(['read_file', 'submit_plan'])
  })

  it('ends where it looks around forever, says nothing, or hands in nothing of use [T.02]', async () => {
    const scripts: ((turn: number) => ServerReply)[] = [
      () => call('list_files', {}),
      (turn) => call('read_file', { path: `no-${turn}` }),
      () => call('submit_plan', { goal: 'g', steps: [] }),
      () => answer(''),
      () => answer('I would begin by reading.'),
    ]
    for (const script of scripts) {
      let turn = 0
      const ending = await runTask(() => script(turn++), {
        files,
        task: { mode: 'plan', limits: { maxTurnsPerStep: 30 } },
      })
      expect(ending.completion.outcome).toBe('failed')
      expect(ending.isChanged).toBe(false)
    }
  }, 40_000)
})
