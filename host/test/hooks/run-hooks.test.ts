import { describe, expect, it } from 'vitest'
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import { HostEvent } from '#specs/protocol/event.ts'
import { type CodeHook, codeHook } from '../../hooks/code-hook.ts'
import type { HookedCall } from '../../hooks/hook.ts'
import { RunHooks } from '../../hooks/run-hooks.ts'

const runId = `run-${'0'.repeat(20)}`
const call: HookedCall = {
  agentPath: 'root/pen',
  stepId: 's',
  callId: 'c',
  tool: 'run_bash',
  arguments: { command: 'ls' },
}
const about = { prompt: 'p', directory: '/d', mode: 'work', model: 'm', provider: 'p' } as const

function open(hooks: readonly CodeHook[], person: 'allow' | 'deny' = 'allow') {
  const journal: HostEvent[] = []
  const asked: ApprovalRequest[] = []
  const run = new RunHooks({
    runId,
    hooks: hooks.map(codeHook),
    note: async (event) => void journal.push(HostEvent.parse(event)),
    ask: async (request) => {
      asked.push(request)
      return { decision: person, hint: 'not that' }
    },
  })
  return { run, journal, asked }
}

describe('the hooks of a run', () => {
  it('say no where nobody waits for the answer any more, also one whose failure would allow [A.10]', async () => {
    const { run, journal } = open([
      { point: 'before-tool', name: 'slow', onFailure: 'allow', run: () => new Promise(() => undefined) },
    ])
    const leaving = new AbortController()
    const asked = run.ask('before-tool', call, leaving.signal)
    leaving.abort()
    expect(await asked).toMatchObject({ decision: 'deny' })
    expect(journal).toMatchObject([{ type: 'hook-end', hook: 'slow', decision: 'deny' }])
  })

  it('are asked in their order, each about what the one before it changed; the first no ends it [A.10]', async () => {
    const seen: unknown[] = []
    const { run, journal } = open([
      {
        point: 'before-tool',
        name: 'one',
        run: () => ({ arguments: { command: 'ls -a' }, note: 'hidden too' }),
      },
      {
        point: 'before-tool',
        name: 'two',
        run: ({ arguments: given }) => {
          seen.push(given)
          return undefined
        },
      },
      { point: 'before-tool', name: 'three', tools: ['write_*'], run: () => ({ decision: 'deny' }) },
      { point: 'after-tool', run: () => ({ decision: 'deny' }) },
    ])
    expect(await run.ask('before-tool', call)).toEqual({
      decision: 'allow',
      arguments: { command: 'ls -a' },
      note: 'hidden too',
    })
    expect(seen).toEqual([{ command: 'ls -a' }])
    expect(journal).toMatchObject([
      {
        type: 'hook-end',
        hook: 'one',
        decision: 'allow',
        arguments: '{"command":"ls -a"}',
        agentPath: 'root/pen',
        callId: 'c',
      },
      { type: 'hook-end', hook: 'two', decision: 'allow' },
    ])
    const denied = await run.ask('before-tool', { ...call, tool: 'write_file' })
    expect(denied).toEqual({ decision: 'deny', reason: 'the hook three said no' })
  })

  it('that fail stand for no before and for yes after, unless they say otherwise [A.10]', async () => {
    const fail = (): never => {
      throw new Error('broken')
    }
    const slow = () => new Promise<undefined>(() => undefined)
    for (const [hook, decision] of [
      [{ point: 'before-run', run: fail }, 'deny'],
      [{ point: 'before-run', run: slow, timeoutMs: 10 }, 'deny'],
      [{ point: 'before-run', run: () => ({ decision: 'ask' }) }, 'deny'],
      [{ point: 'before-run', run: () => ({ note: 'x' }) }, 'deny'],
      [{ point: 'before-run', run: fail, onFailure: 'allow' }, 'allow'],
    ] as [CodeHook, string][]) {
      const { run, journal } = open([hook])
      expect((await run.ask('before-run', about)).decision).toBe(decision)
      expect(journal).toMatchObject([{ type: 'hook-end', failed: true, decision }])
    }
    const after = {
      ...about,
      outcome: 'completed',
      reason: 'completed',
      message: '',
      summary: '',
      changes: null,
    } as const
    expect((await open([{ point: 'after-run', run: fail }]).run.ask('after-run', after)).decision).toBe(
      'allow',
    )
    const strict = open([{ point: 'after-run', run: fail, onFailure: 'deny' }])
    expect((await strict.run.ask('after-run', after)).decision).toBe('deny')
  })

  it('put a call before a person, in words of the host and under an id that nobody can guess [A.10, S1.11]', async () => {
    const hook: CodeHook = {
      point: 'before-tool',
      name: 'guard',
      run: () => ({ decision: 'ask', reason: 'a shell' }),
    }
    const yes = open([hook])
    expect(await yes.run.ask('before-tool', call)).toEqual({ decision: 'allow', byPerson: true })
    expect(yes.asked).toMatchObject([
      { tool: 'run_bash', callId: 'c', preview: expect.stringContaining('guard') },
    ])
    expect(yes.asked[0]?.approvalId).toMatch(/^hook-[0-9a-f]{24}$/)
    expect(await open([hook], 'deny').run.ask('before-tool', call)).toEqual({
      decision: 'deny',
      reason: 'a person said no: not that',
    })
    // What a later hook changes is not what the person saw.
    const changed = open([hook, { point: 'before-tool', run: () => ({ arguments: { command: 'rm' } }) }])
    expect(await changed.run.ask('before-tool', call)).not.toHaveProperty('byPerson')
  })

  it('say no once the run is over, and no more than so many are asked at once [A.10]', async () => {
    let [running, most] = [0, 0]
    const { run } = open([
      {
        point: 'before-tool',
        run: async () => {
          most = Math.max(most, ++running)
          await new Promise((resolve) => setTimeout(resolve, 5))
          running--
          return undefined
        },
      },
    ])
    await Promise.all(Array.from({ length: 40 }, () => run.ask('before-tool', call)))
    expect(most).toBe(8)
    run.close()
    expect((await run.ask('before-tool', call)).decision).toBe('deny')
  })

  it('are refused where they name a tool as no call does [A.10]', () => {
    const run = () => undefined
    for (const name of ['shell_cmd', 'Run-Bash', 'grep'])
      expect(() => codeHook({ point: 'before-tool', tools: [name], run })).toThrow(
        expect.objectContaining({ code: 'invalid_options' }),
      )
    expect(
      codeHook({ point: 'before-tool', tools: ['run_bash', 'notes_add', 'run_*'], run }).tools,
    ).toHaveLength(3)
  })

  it('tell the agent where it is to ask, and only of its own points [A.10]', () => {
    const run = () => undefined
    const { run: hooks } = open([
      { point: 'before-run', run },
      { point: 'after-model', run },
      { point: 'before-tool', tools: ['run_*'], run },
      { point: 'after-step', run },
    ])
    expect(hooks.ofAgent).toEqual([{ point: 'before-tool', tools: ['run_*'] }, { point: 'after-step' }])
    expect([
      hooks.has('after-model'),
      hooks.has('before-model'),
      hooks.has('before-tool', 'read_file'),
    ]).toEqual([true, false, false])
  })
})
