// The option `context`: what becomes of facts, sections and functions.
import { describe, expect, it } from 'vitest'
import { HostEvent } from '#specs/protocol/event.ts'
import { resolveContext } from '../context-options.ts'
import { RunHooks } from '../hooks/run-hooks.ts'

const runId = `run-${'0'.repeat(20)}`

describe('the context of a run', () => {
  it('is facts, sections with defaults, and functions that are called once [S0.05]', async () => {
    const asked: unknown[] = []
    const { context, sections, hooks } = await resolveContext(
      {
        branch: 'main',
        team: { text: 'Ada, Max', place: 'after', maxTokens: 50, from: 'the wiki' },
        prices: {
          text: async ({ signal, ...about }) => {
            asked.push(about, signal.aborted)
            return 'tea 3'
          },
        },
        none: { text: () => undefined },
      },
      runId,
    )
    expect(context).toEqual({ branch: 'main' })
    expect(sections).toEqual([
      { name: 'team', from: 'the wiki', text: 'Ada, Max', maxTokens: 50, place: 'after' },
      { name: 'prices', from: 'the application', text: 'tea 3', maxTokens: 4_000, place: 'before' },
    ])
    expect(hooks).toEqual([])
    expect(asked).toEqual([{ runId }, false])
  })

  it.each([
    ['cannot be made: no such list', () => Promise.reject(new Error('no such list'))],
    ['gave no text', () => 7 as never],
    ['expected at most 262144', () => 'x'.repeat(262_145)],
  ])('is refused where a function of the run fails: %s [S0.05]', async (message, text) => {
    await expect(resolveContext({ prices: { text } }, runId)).rejects.toMatchObject({
      code: 'invalid_options',
      message: expect.stringContaining(message),
    })
  })

  it('ends with the start that is cancelled [S0.05]', async () => {
    const cancel = new AbortController()
    const made = resolveContext({ a: { text: () => new Promise(() => undefined) } }, runId, cancel.signal)
    cancel.abort(new Error('stop'))
    await expect(made).rejects.toThrow('stop')
  })

  it('asks functions of the turn as hooks, journals what each gave, and leaves out what fails [S0.05 A.10]', async () => {
    const { hooks } = await resolveContext(
      {
        time: { text: ({ agentPath }) => `noon of ${agentPath}`, per: 'turn', from: 'a clock <x>' },
        bad: { text: () => Promise.reject(new Error('no clock')), per: 'turn' },
        long: { text: () => 'x'.repeat(20_000), per: 'turn' },
        none: { text: () => '', per: 'turn' },
      },
      runId,
    )
    const journal: HostEvent[] = []
    const run = new RunHooks({
      runId,
      hooks,
      note: async (event) => void journal.push(HostEvent.parse(event)),
      ask: () => Promise.reject(new Error('nobody is asked')),
    })
    expect(run.ofAgent.map(({ point }) => point)).toEqual(Array(4).fill('before-turn'))
    const decision = await run.ask('before-turn', { agentPath: 'root/pen', stepId: 's' })
    expect(decision).toEqual({
      decision: 'allow',
      context: [{ name: 'time', from: 'a clock x', text: 'noon of root/pen' }],
    })
    expect(journal).toMatchObject([
      { agentPath: 'root/pen', context: [{ name: 'time', text: 'noon of root/pen' }] },
      { failed: true, decision: 'allow' },
      { failed: true, decision: 'allow' },
      { decision: 'allow' },
    ])
  })

  it('has a bounded number of sections [S0.05]', async () => {
    const many = (per: 'run' | 'turn', count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, at) => [`s${at}`, { text: 'x', per }]))
    await expect(resolveContext(many('run', 33), runId)).rejects.toThrow('expected at most 32')
    await expect(resolveContext(many('turn', 9), runId)).rejects.toThrow('expected at most 8')
  })
})
