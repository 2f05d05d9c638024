// `caisson runs fork`, `rewind` and `show` of runs whose folders have checkpoints; no VM is started.
import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../../host.ts'
import { commandsIn } from '../../support/run-command.ts'
import { checkpoint, runWithMoments } from '../../support/run-with-moments.ts'

const order: HostEvent = {
  type: 'host-tool-start',
  ...{
    agentPath: 'root',
    stepId: 'second',
    callId: 'c1',
    tool: 'order_part',
    arguments: '{"id":"\u001b[2J"}',
  },
}

async function place(
  { isOver = false }: { readonly isOver?: boolean } = {},
  later: readonly HostEvent[] = [],
) {
  const home = await temporaryFolder('forks')
  const env = {
    HOME: home,
    CAISSON_HOME: `${home}/state`,
    CAISSON_CACHE: `${home}/cache`,
    PATH: process.env.PATH,
  }
  const host = new Host({ env })
  const { runId } = await runWithMoments(host, home, { later, isOver })
  return { host, runId, caisson: commandsIn(env, home) }
}

const others = async (host: Host, runId: string) => (await host.runs.ids()).filter((id) => id !== runId)

describe('caisson runs fork', () => {
  it('makes a run for each message, or as many as are asked for, and says how to start one [V.05 H.01]', async () => {
    const { host, runId, caisson } = await place({ isOver: true })
    const told = await caisson('runs', 'fork', 'last', '--at', 'second', '-n', '3', '--no-start', 'use tabs')
    const forks = told.stdout.match(/^run-\w+(?= is a fork of )/gm) ?? []
    expect(told).toEqual({
      code: 0,
      stdout: `${forks.map((id) => `${id} is a fork of ${runId} at second\n`).join('')}start one: caisson runs resume ${forks[0]}\n`,
      stderr: expect.any(String),
    })
    expect(forks.toSorted()).toEqual((await others(host, runId)).toSorted())
    expect(forks).toHaveLength(3)
    const last = async (id = '') => (await host.runs.read(id)).at(-1)?.event
    expect(await last(forks[0])).toMatchObject({
      ...{ type: 'steer-request', text: 'use tabs', by: 'caisson runs fork' },
    })
    expect(await last(forks[1])).toMatchObject({ type: 'checkpoint' })
    const each = await caisson('runs', 'fork', runId, '--at', 'start', '--no-start', 'one', 'two')
    expect(each.stdout.match(/ is a fork of /g)).toHaveLength(2)
  })

  it('says the same as JSON [V.05 H.05]', async () => {
    const { host, runId, caisson } = await place()
    const { code, stdout } = await caisson('runs', 'fork', runId, '--at', 'end', '--no-start', '--json')
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      { source: 'forks', runId, step: 'end', checkpointId: 'cp-4', runIds: await others(host, runId) },
    ])
  })

  it('says where a new checkpoint was wanted and which was taken instead [V.05 H.01]', async () => {
    const { host, runId, caisson } = await place({ isOver: true })
    const { code, stdout } = await caisson('runs', 'fork', runId, '--at', 'now', '--no-start')
    const [fork = ''] = await others(host, runId)
    expect([code, stdout.split('\n').slice(0, 2)]).toEqual([
      0,
      [
        `${fork} is a fork of ${runId} at end`,
        '  this is the last checkpoint, as no new one was possible: the run has ended',
      ],
    ])
  })

  it('refuses a moment that the run does not have, and names those that it has; nothing is made [V.05]', async () => {
    const { host, runId, caisson } = await place()
    const { code, stderr } = await caisson('runs', 'fork', runId, '--at', 'third', '--no-start')
    expect(code).not.toBe(0)
    for (const name of ['third', 'first', 'second']) expect(stderr).toContain(name)
    expect((await caisson('runs', 'fork', runId, '--no-start')).stderr).toContain('--at')
    expect((await caisson('runs', 'fork', runId, '--at', 'end', '-n', '17', '--no-start')).code).toBe(2)
    expect(await others(host, runId)).toEqual([])
  })
})

describe('caisson runs rewind', () => {
  it('makes a run in the place of the other, which it ends [V.05 H.01]', async () => {
    const { host, runId, caisson } = await place()
    const { code, stdout } = await caisson('runs', 'rewind', runId, '--to', 'first', '--no-start', 'use tabs')
    const [next = ''] = await others(host, runId)
    expect([code, stdout]).toEqual([
      0,
      `${next} continues ${runId} from first\nstart it: caisson runs resume ${next}\n`,
    ])
    expect((await host.runs.summary(runId)).status).toBe('cancelled')
    expect((await host.runs.read(next)).at(-1)?.event).toMatchObject({ text: 'use tabs' })
  })

  it('names effects outside the VM and refuses, unless a person accepts them [V.05]', async () => {
    const { host, runId, caisson } = await place({}, [order, checkpoint('cp-5', 5)])
    const refused = await caisson('runs', 'rewind', runId, '--to', 'second', '--no-start')
    expect(refused.code).not.toBe(0)
    expect(refused.stderr).toContain('order_part ran on this host')
    expect(refused.stderr).toContain('--despite-effects')
    expect(refused.stderr).not.toContain('\u001b')
    expect(await others(host, runId)).toEqual([])
    const forced = ['--to', 'second', '--no-start', '--despite-effects']
    const { code, stdout } = await caisson('runs', 'rewind', runId, ...forced)
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining('\n  stays: order_part ran on this host: {"id":"'),
    ])
    expect(stdout).not.toContain('\u001b')
    const [next] = await others(host, runId)
    const json = await caisson('runs', 'rewind', next ?? '', '--to', 'start', '--no-start', '--json')
    expect(JSON.parse(json.stdout)).toMatchObject({
      source: 'rewind',
      from: next,
      step: 'start',
      effects: [],
    })
  })
})

describe('caisson runs show', () => {
  it.each([
    [false, 'continued or forked'],
    [true, 'forked'],
  ])('says what the kept disk takes (ended: %s) [V.05 H.01]', async (isOver, use) => {
    const { host, runId, caisson } = await place({ isOver })
    const line = new RegExp(`\\nits disk is kept, \\d[\\d.]* \\w+: the run can be ${use} from it\\n$`)
    expect((await caisson('runs', 'show', runId)).stdout).toMatch(line)
    if (!isOver) return
    await host.runs.removeMoments(runId)
    expect((await caisson('runs', 'show', runId)).stdout).not.toContain('disk is kept')
  })
})
