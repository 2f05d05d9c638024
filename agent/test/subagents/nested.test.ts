// Sub-agents that start their own: their views, what comes together at each level, and that all of them end.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { type AgentsBench, byBrief, makeAgents, write } from '../support/agents.ts'
import { modelAt } from '../support/run.ts'

const never = new AbortController().signal
const files = (root: string): void => writeFileSync(join(root, 'a.txt'), 'a\n')
const read = (bench: AgentsBench, path: string): string => readFileSync(join(bench.root, path), 'utf8')
const spawn = (...briefs: string[]): ServerReply =>
  reply({
    calls: briefs.map((brief) => ({
      name: 'spawn_agent',
      arguments: { brief, name: brief.split(' ')[0]?.toLowerCase() ?? '' },
    })),
  })
const done = reply({ text: 'done' })
/** Each agent has its own turns, by the word with which its brief begins. */
const perAgent =
  (scripts: Readonly<Record<string, readonly ServerReply[]>>) =>
  ({ messages }: Asked): ServerReply => {
    const user = messages.find(({ role }) => role === 'user')?.content ?? ''
    const word = /<instructions>\n([A-Z]+)/.exec(user)?.[1] ?? ''
    return scripts[word]?.[messages.filter(({ role }) => role === 'assistant').length] ?? done
  }
const lastSaid = (asked: Asked): string => asked.messages.at(-1)?.content ?? ''

describe('a sub-agent of a sub-agent', () => {
  it('sees what its parent had changed, and brings its own to that one, which brings all to the run [S1.13 A.07]', async () => {
    const seen: string[] = []
    const look: ServerReply = reply({ calls: [{ name: 'read_file', arguments: { path: 'one.txt' } }] })
    await using server = await startModelServer(
      byBrief({
        ONE: [write('one.txt', 'of one'), spawn('TWO', 'OTHER'), done],
        OTHER: [write('other.txt', 'of other'), done],
        TWO: [
          look,
          (asked) => {
            seen.push(lastSaid(asked))
            return write('two.txt', 'of two')
          },
          spawn('THREE'),
          (asked) => reply({ text: lastSaid(asked) }),
        ],
        THREE: [write('a.txt', 'of three'), done],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const result = await bench.agents.spawn({ brief: 'ONE', name: 'one' }, 'fan-out', never)
    expect(seen.join()).toContain('of one')
    expect(result).toMatchObject({ state: 'completed', conflicts: [] })
    expect(result.merged.toSorted()).toEqual(['a.txt', 'one.txt', 'other.txt', 'two.txt'])
    expect(['a.txt', 'two.txt', 'other.txt'].map((path) => read(bench, path))).toEqual([
      'of three',
      'of two',
      'of other',
    ])
    expect([...bench.heard.keys()].toSorted()).toEqual([
      'root/one',
      'root/one/other',
      'root/one/two',
      'root/one/two/three',
    ])
    const end = bench.heard.get('root/one/two')?.at(-1)
    expect(end).toMatchObject({
      type: 'agent-end',
      merged: 2,
      text: expect.stringContaining('brought over: a.txt'),
    })
    // What it may use: at the last depth nothing that starts others.
    const toolsOf = (path: string) =>
      bench.heard.get(path)?.flatMap((event) => (event.type === 'agent-start' ? event.tools : []))
    expect(toolsOf('root/one/two')).toContain('spawn_agent')
    expect(toolsOf('root/one/two/three')).not.toContain('spawn_agent')
    expect(bench.open.size).toBe(0)
  })

  it('in conflict with its parent keeps its files for that one alone, until that one ends [A.07]', async () => {
    const told: string[] = []
    await using server = await startModelServer(
      byBrief({
        ONE: [
          spawn('LEFT', 'RIGHT'),
          (asked) => {
            const said = asked.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
            const loser = /changed here and by (\w+)/.exec(said.join('\n'))?.[1] ?? ''
            told.push(loser)
            return reply({ calls: [{ name: 'take_agent_file', arguments: { agent: loser, path: 'a.txt' } }] })
          },
          done,
        ],
        LEFT: [write('a.txt', 'left'), done],
        RIGHT: [write('a.txt', 'right'), done],
      }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const result = await bench.agents.spawn({ brief: 'ONE', name: 'one' }, 'fan-out', never)
    expect(result).toMatchObject({ state: 'completed', merged: ['a.txt'], conflicts: [] })
    expect(read(bench, 'a.txt')).toBe(told[0])
    expect(bench.agents.findView(`root/one/${told[0]}`).ok).toBe(false)
    expect(bench.open.size).toBe(0)
  })

  it('ends once with any agent above it [A.07 S1.03]', async () => {
    const wait = reply({ calls: [{ name: 'wait_long', arguments: {} }] })
    await using server = await startModelServer(
      byBrief({ ONE: [spawn('TWO')], TWO: [spawn('THREE')], THREE: [wait] }),
    )
    using bench = makeAgents({ model: modelAt(server.baseUrl), files })
    const cancel = new AbortController()
    const spawning = bench.agents.spawn({ brief: 'ONE', name: 'one' }, 'fan-out', cancel.signal)
    await expect
      .poll(() => bench.heard.get('root/one/two/three')?.some(({ type }) => type === 'tool-start'))
      .toBe(true)
    cancel.abort()
    expect((await spawning).state).toBe('cancelled')
    const ends = [...bench.heard].map(([path, events]) => [
      path,
      events.filter(({ type }) => type === 'agent-end').length,
    ])
    expect(ends).toEqual([
      ['root/one', 1],
      ['root/one/two', 1],
      ['root/one/two/three', 1],
    ])
    expect(bench.open.size).toBe(0)
  })

  it('begins though all places are taken by those that wait: fan-out of 16, three deep, two at once [A.07]', async () => {
    const sixteen = Array.from({ length: 16 }, (_, at) => `LEAF ${at}`)
    await using server = await startModelServer(
      perAgent({
        WIDE: [spawn('MIDDLE')],
        MIDDLE: [spawn('LEAF')],
        DEEP: [spawn('BROAD')],
        BROAD: [spawn(...sixteen)],
      }),
    )
    const task = { limits: { maxParallelAgents: 2, maxAgents: 256, maxToolCalls: 100_000 } }
    using bench = makeAgents({ model: modelAt(server.baseUrl), files, task })
    const wide = Array.from({ length: 16 }, () => 'WIDE')
    const results = await Promise.all(
      [...wide, 'DEEP'].map((brief) => bench.agents.spawn({ brief }, 'fan-out', never)),
    )
    expect(results.map(({ state }) => state)).toEqual(Array(17).fill('completed'))
    expect(bench.heard.size).toBe(16 * 3 + 2 + 16)
    expect(server.mostOpen()).toBeLessThanOrEqual(2)
    expect(bench.open.size).toBe(0)
  }, 60_000)
})
