// Sub-agents in a real VM, end to end: views that are overlays, programs in them, what is merged, and how they end.
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import { findVms, finish, readFiles, testBench } from '../support/runs.ts'
import {
  bash,
  benchWith,
  byInstructions,
  call,
  lastSaid,
  plan,
  say,
  spawn,
} from '../support/scripted-agents.ts'

const files = { 'shared.txt': 'shared\n', 'gone.txt': 'gone\n', 'docs/a.md': 'A\n', 'docs/b.md': 'B\n' }

describe('sub-agents in a VM', () => {
  it('work at once on views of their own and are merged; a conflict keeps both versions, a limit keeps the parent going [S1.13 A.07]', async () => {
    const told: string[] = []
    /** Of the two that wrote to one file, whoever was merged last. */
    const loser = (): string => /changed here and by (\w+)/.exec(told.join('\n'))?.[1] ?? 'nobody'
    const versions: Record<string, string> = { two: 'shared\nchanged\ntwo\n', three: 'three\n' }
    const look = 'pwd; cat shared.txt; ls gone.txt docs manual 2>&1'
    await using bench = await benchWith(
      byInstructions(plan({ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }), {
        LEAD: [
          // What children begin with has whiteouts and a moved directory in it.
          bash('echo changed >> shared.txt; rm gone.txt; mv docs manual'),
          reply({
            calls: [spawn('ONE'), spawn('TWO'), spawn('THREE'), spawn('SLEEPY', { limits: { maxTurns: 1 } })],
          }),
          (asked) => {
            told.push(
              ...asked.messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? ''),
            )
            return reply({ calls: [call('read_agent_file', { agent: loser(), path: 'shared.txt' })] })
          },
          (asked) => {
            told.push(lastSaid(asked))
            return reply({ calls: [call('take_agent_file', { agent: loser(), path: 'shared.txt' })] })
          },
          bash('cat shared.txt; ls /mnt/workspace'),
          (asked) => say(lastSaid(asked)),
        ],
        ONE: [
          bash(look),
          (asked) =>
            reply({
              calls: [call('write_file', { path: '/mnt/workspace/one.txt', content: lastSaid(asked) })],
            }),
          say('one is done'),
        ],
        TWO: [
          bash('echo two >> shared.txt; mv manual/a.md manual/renamed.md; chmod 700 manual/b.md'),
          say('two is done'),
        ],
        THREE: [bash('echo three > shared.txt'), say('three is done')],
        SLEEPY: [
          reply({
            text: 'I begin',
            calls: [call('run_bash', { command: 'echo awake > sleepy.txt' })],
          }),
          say('I was cut'),
        ],
      }),
      files,
    )
    const { run, state, items } = await bench.run('Share the work')
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const said = told.join('\n')
    expect(said).toContain('[sub-agent one: completed]\none is done\n[brought over: one.txt]')
    expect(said).toContain('[sub-agent two: completed]\ntwo is done\n[brought over: manual/a.md, manual/b.md')
    expect(said).toContain('[sub-agent three: completed]\nthree is done')
    const winner = loser() === 'two' ? 'three' : 'two'
    expect(said).toContain(`--- shared.txt, yours\n${versions[winner]}`)
    expect(said).toContain(`--- shared.txt, of ${loser()}\n${versions[loser()]}`)
    expect(said).toContain('[sub-agent sleepy: failed (limit_turns)]\nI was cut')
    expect(state.end?.summary).toContain(versions[loser()])

    await (await bench.host.changes(run.id)).apply('all')
    const after = await readFiles(bench.workspace)
    expect(after['one.txt']).toContain('/mnt/workspace\nshared\nchanged\n')
    expect(after['one.txt']).toContain("cannot access 'gone.txt'")
    expect({ ...after, 'one.txt': '' }).toEqual({
      'shared.txt': versions[loser()],
      'one.txt': '',
      'manual/renamed.md': 'A\n',
      'manual/b.md': 'B\n',
      'sleepy.txt': 'awake\n',
    })

    const byPath = new Map<string, string[]>()
    for (const item of items) {
      if (item.source !== 'agent') continue
      byPath.set(item.agentPath, [...(byPath.get(item.agentPath) ?? []), item.event.type])
    }
    expect([...byPath.keys()].sort()).toEqual(['root', 'root/one', 'root/sleepy', 'root/three', 'root/two'])
    for (const [path, types] of byPath) {
      if (path !== 'root') expect([types[0], types.at(-1)]).toEqual(['agent-start', 'agent-end'])
    }
    expect(state.agents['root/sleepy']).toMatchObject({ state: 'failed' })
  }, 300_000)

  it('start their own, three deep: each begins with the files of the one above, asks the person, and is merged into it [A.07 S1.11]', async () => {
    const told: string[] = []
    const keep = (asked: Asked): string => {
      told.push(lastSaid(asked))
      return lastSaid(asked)
    }
    await using bench = await benchWith(
      byInstructions(plan({ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }), {
        LEAD: [
          bash('mv docs manual; echo lead > lead.txt'),
          reply({ calls: [spawn('ONE')] }),
          (asked) => say(keep(asked)),
        ],
        ONE: [
          bash('rm manual/a.md; echo one > one.txt'),
          reply({ calls: [spawn('TWO')] }),
          bash('ls -R | tr "\\n" " "'),
          (asked) => say(keep(asked)),
        ],
        TWO: [
          bash(
            'ls manual; cat lead.txt one.txt; mkdir manual/a.md; echo two > manual/a.md/two.txt; rm one.txt',
          ),
          (asked) => {
            keep(asked)
            return reply({ calls: [spawn('THREE')] })
          },
          say('two is done'),
        ],
        THREE: [
          bash('cat manual/a.md/two.txt; ls one.txt; echo three >> shared.txt'),
          (asked) => {
            keep(asked)
            return reply({ calls: [call('delete_file', { path: 'gone.txt' })] })
          },
          say('three is done'),
        ],
      }),
      files,
    )
    const run = await bench.start('Share the work', { approvals: { interactive: true } })
    const finished = finish(run)
    for await (const item of run.watch()) {
      if (item.source !== 'host' || item.event.type !== 'approval-request') continue
      const { approvalId, agentPath, tool } = item.event.request
      expect([agentPath, tool]).toEqual(['root/one/two/three', 'delete_file'])
      await run.answer(approvalId, { decision: 'allow', scope: 'once' })
      break
    }
    const { state, items } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    const said = told.join('\n')
    expect(said).toContain('b.md\nlead\none\n')
    expect(said).toMatch(/^two$/m)
    expect(said).toContain("ls: cannot access 'one.txt'")
    expect(said).toContain('[sub-agent one: completed]')
    await (await bench.host.changes(run.id)).apply('all')
    expect(await readFiles(bench.workspace)).toEqual({
      'lead.txt': 'lead\n',
      'shared.txt': 'shared\nthree\n',
      'manual/a.md/two.txt': 'two\n',
      'manual/b.md': 'B\n',
    })
    const ends = items.flatMap((item) =>
      item.source === 'agent' && item.event.type === 'agent-end' ? [item.agentPath] : [],
    )
    expect(ends).toEqual(['root/one/two/three', 'root/one/two', 'root/one'])
  }, 300_000)

  it('carry out steps of a plan side by side, and answer for them [A.01 A.07]', async () => {
    const agent = (id: string) => ({
      id,
      kind: 'agent',
      title: id,
      instructions: id.toUpperCase(),
      needs: [],
      writes: [id],
    })
    await using bench = await benchWith(
      byInstructions(
        plan(agent('left'), agent('right'), {
          id: 'join',
          title: 'Join',
          instructions: 'JOIN',
          needs: ['left', 'right'],
          writes: [],
        }),
        {
          LEFT: [bash('echo left > left'), say('left is done')],
          RIGHT: [bash('echo right > right'), say('right is done')],
          JOIN: [bash('cat left right'), (asked) => say(lastSaid(asked))],
        },
      ),
      files,
    )
    const { state } = await bench.run('Share the work')
    expect(state.end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('left\nright') })
    expect(Object.keys(state.agents).sort()).toEqual(['root/left', 'root/right'])
  }, 300_000)

  it('can be seen at work without a key: the offline model plans them where the task asks for it, as many as can begin [S4.06 A.07]', async () => {
    const bench = await testBench(files)
    const { state, events } = await bench.run(
      'Use sub-agents: create docs/one.md with "1". Create docs/two.md with "2". Create docs/three.md with "3".',
      { limits: { maxAgents: 2 } },
    )
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(Object.keys(state.agents).sort()).toEqual(['root/create-1', 'root/create-2'])
    expect(state.plan?.steps.map(({ kind }) => kind)).toEqual(['agent', 'agent', undefined])
    const written = events.flatMap((event) => (event.type === 'agent-end' ? [event.merged] : []))
    expect(written).toEqual([1, 1])
  }, 300_000)

  it('end with their run when it is cancelled, programs and all [A.07 S1.03]', async () => {
    await using bench = await benchWith(
      byInstructions(plan({ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }), {
        LEAD: [reply({ calls: [spawn('ONE'), spawn('TWO')] })],
        ONE: [bash('echo one > one.txt; echo ready; sleep 600')],
        TWO: [bash('echo two > two.txt; echo ready; sleep 600')],
      }),
      files,
    )
    const run = await bench.start('Share the work')
    const finished = finish(run)
    const ready = new Set<string>()
    for await (const item of run.watch()) {
      if (item.source === 'delta' && item.delta.type === 'tool-output-delta') ready.add(item.agentPath)
      if (ready.size === 2) break
    }
    void run.cancel()
    const { state, items } = await finished
    expect(state.end).toMatchObject({ outcome: 'cancelled' })
    const ends = items.flatMap((item) =>
      item.source === 'agent' && item.event.type === 'agent-end' ? [item.event.state] : [],
    )
    expect(ends).toEqual(['cancelled', 'cancelled'])
    expect(await (await bench.host.changes(run.id)).review()).toEqual([])
    expect(await findVms(bench.home)).toEqual([])
  }, 300_000)

  it('are reached one by one: a message to one, and the cancel of another that the run survives [A.07 A.08]', async () => {
    const told: string[] = []
    await using bench = await benchWith(
      byInstructions(plan({ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }), {
        LEAD: [
          reply({ calls: [spawn('ONE'), spawn('TWO')] }),
          (asked) => {
            told.push(
              ...asked.messages.filter(({ role }) => role === 'tool').map(({ content }) => content ?? ''),
            )
            return say('LEAD is done')
          },
        ],
        ONE: [bash('echo one > one.txt; echo ready; sleep 600')],
        TWO: [
          bash(
            'echo two > two.txt; echo ready; while [ ! -e go.txt ] && [ $((n += 1)) -lt 8 ]; do sleep 1; done',
          ),
          (asked) =>
            say(JSON.stringify(asked.messages).includes('Use the formal form') ? 'heard' : 'not heard'),
        ],
      }),
      files,
    )
    const run = await bench.start('Share the work')
    const finished = finish(run)
    const ready = new Set<string>()
    for await (const item of run.watch()) {
      if (item.source === 'delta' && item.delta.type === 'tool-output-delta') ready.add(item.agentPath)
      if (ready.size === 2) break
    }
    await run.steer('Use the formal form.', { to: 'two' })
    await run.cancelAgent('one', { reason: 'not needed' })
    await expect(run.steer('x', { to: 'gone' })).rejects.toThrow('no sub-agent root/gone is at work')
    const { state, items } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(state.agents).toMatchObject({
      'root/one': { state: 'cancelled' },
      'root/two': { state: 'completed', text: 'heard' },
    })
    expect(told[0]).toContain('[Caisson] Cancelled by the person: not needed')
    const asked = items.flatMap((item) =>
      item.source === 'host' && /^(steer|agent-cancel)-request$/.test(item.event.type) ? [item.event] : [],
    )
    expect(asked).toMatchObject([
      { type: 'steer-request', agentPath: 'root/two' },
      { type: 'agent-cancel-request', agentPath: 'root/one', reason: 'not needed' },
    ])
    expect((await (await bench.host.changes(run.id)).review()).map(({ path }) => path)).toEqual(['two.txt'])
    await expect(run.cancelAgent('two')).rejects.toThrow('ended')
    expect(await findVms(bench.home)).toEqual([])
  }, 300_000)
})
