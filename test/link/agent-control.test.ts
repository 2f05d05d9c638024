// What people say to a running agent, over the real link in memory; only the agent's own work is missing.
import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { taskCancelAgent, taskPause, taskSteer } from '#specs/protocol/methods.ts'
import type { AgentHandlers } from '../../agent/link/host-link.ts'
import { AgentControl, type AgentMessage } from '../../host/runs/guest/agent-control.ts'
import { runId, task, until, wait } from '../../host/test/support/run-values.ts'
import { createWorld } from './support.ts'

async function open(own: Partial<AgentHandlers> = {}) {
  const heard: string[] = []
  const steered = new Map<string, string>()
  const world = createWorld()
  const handlers = {
    'task/cancelAgent': async ({ agentPath, reason }: { agentPath: string; reason: string }) => {
      heard.push(`cancel ${agentPath} ${reason}`)
      return { ok: true, value: {} } as const
    },
    'task/steer': async ({ messageId, text, agentPath }: AgentMessage) => {
      heard.push(agentPath === undefined ? text : `${agentPath} ${text}`)
      steered.set(messageId, text)
      return { ok: true, value: {} } as const
    },
    'task/pause': async ({ paused }: { paused: boolean }) => {
      heard.push(paused ? 'pause' : 'resume')
      return { ok: true, value: {} } as const
    },
    ...own,
  }
  world.startGuest({ handlers, processId: 'ab'.repeat(16) })
  expect((await world.link.submitTask(task, { timeoutMs: 5_000 })).ok).toBe(true)
  const facts: HostEvent[] = []
  const holds: number[] = []
  const agent = {
    isReachable: true,
    steer: (message: AgentMessage) => world.link.request(taskSteer, { runId, ...message }),
    cancelAgent: (agentPath: string, reason: string) =>
      world.link.request(taskCancelAgent, { runId, agentPath, reason }),
    setTaskPaused: (paused: boolean) => world.link.request(taskPause, { runId, paused }),
  }
  const control = new AgentControl({
    note: async (event) => void facts.push(event),
    agentsAtWork: () => ['root/one', 'root/one/deep'],
    onHold: (change) => void holds.push(change),
  })
  return { world, control, agent, heard, steered, facts, holds }
}

describe('a person at a running agent', () => {
  it('is journaled and then heard, in the order of what was said [A.08]', async () => {
    const { world, control, agent, heard, facts, holds } = await open()
    await using _world = world
    control.begin(agent)
    const answers = [control.steer('first', 'me'), control.setPaused(true, 'me')]
    await wait(1)
    answers.push(control.steer('second', 'me'), control.setPaused(false, 'you'))
    expect(await Promise.all(answers)).toEqual([undefined, undefined, undefined, undefined])
    expect(heard).toEqual(['first', 'pause', 'second', 'resume'])
    expect(facts).toMatchObject([
      { type: 'steer-request', text: 'first', by: 'me' },
      { type: 'pause-request', by: 'me' },
      { type: 'steer-request', text: 'second' },
      { type: 'resume-request', by: 'you' },
    ])
    expect(holds).toEqual([1, -1])
  })

  it('reaches one sub-agent, in the journal and at the agent; an unknown one is refused with those at work [A.08]', async () => {
    const { world, control, agent, heard, facts } = await open()
    await using _world = world
    control.begin(agent)
    expect(await control.steer('use tabs', 'me', 'root/one')).toBeUndefined()
    expect(await control.cancelAgent('root/one/deep', 'enough', 'me')).toBeUndefined()
    const refusal = 'no sub-agent root/gone is at work; these are: root/one, root/one/deep'
    expect(await control.steer('use tabs', 'me', 'root/gone')).toBe(refusal)
    expect(await control.cancelAgent('root/gone', '', 'me')).toBe(refusal)
    const ofAnotherRun = 'root/run-0123456789abcdef0123/root/one'
    expect(await control.steer('use tabs', 'me', ofAnotherRun)).toContain('is at work; these are')
    expect(await control.steer('x'.repeat(1 << 20), 'me', 'root/one')).toContain('longer than')
    expect(await control.cancelAgent('root/one', 'x'.repeat(1 << 20), 'me')).toContain('longer than')
    expect(heard).toEqual(['root/one use tabs', 'cancel root/one/deep enough'])
    expect(facts).toMatchObject([
      { type: 'steer-request', text: 'use tabs', agentPath: 'root/one', by: 'me' },
      { type: 'agent-cancel-request', agentPath: 'root/one/deep', reason: 'enough', by: 'me' },
    ])
    // After a loss the message is sent again, with its path.
    control.lose()
    control.begin(agent)
    await expect.poll(() => heard.slice(2)).toEqual(['root/one use tabs'])
  })

  it('is heard once when the session is lost in between, under the same id [A.08 C.03]', async () => {
    const { world, control, agent, steered, facts } = await open()
    await using _world = world
    control.begin(agent)
    world.link.restartSession('a test')
    expect(await control.steer('hello', 'me')).toBeUndefined()
    const said = facts.flatMap((fact) => (fact.type === 'steer-request' ? [fact.messageId] : []))
    expect([...steered]).toEqual(said.map((id) => [id, 'hello']))
    expect(world.seen.sessions.length).toBeGreaterThan(1)
  })

  it('does not wait for a VM that sleeps or stands still; what was said is heard when it continues [A.08 V.04]', async () => {
    const { world, control, agent, heard, holds } = await open()
    await using _world = world
    agent.isReachable = false
    world.link.setFrozen(true)
    control.begin(agent)
    expect(await control.steer('later', 'me')).toBeUndefined()
    expect(await control.setPaused(true, 'me')).toBeUndefined()
    expect(holds).toEqual([1])
    world.link.setFrozen(false)
    await until(() => heard.length === 2, 'both')
    expect(heard).toEqual(['later', 'pause'])
  })

  it('may speak before the agent has its task, and hold it from its beginning on [A.08]', async () => {
    const { world, control, agent, heard, holds } = await open()
    await using _world = world
    expect(await control.steer('early', 'me')).toBeUndefined()
    expect(await control.setPaused(true, 'me')).toBeUndefined()
    await wait(10)
    expect([heard, holds]).toEqual([[], []])
    control.begin(agent)
    await until(() => heard.length === 2, 'both')
    expect([heard, holds]).toEqual([['early', 'pause'], [1]])
    expect(control.isPaused).toBe(true)
    control.end()
    expect(holds).toEqual([1, -1])
  })

  it('learns what is not taken: nothing, too much, too many, and too late [A.08]', async () => {
    const { world, control, agent, facts } = await open()
    await using _world = world
    expect(await control.steer(' \n', 'me')).toContain('empty')
    expect(await control.steer('x'.repeat(16_385), 'me')).toContain('longer than 16384')
    for (let at = 0; at < 32; at += 1) await control.steer(`${at}`, 'me')
    expect(await control.steer('33', 'me')).toContain('too many')
    expect(await control.setPaused(false, 'me')).toBeUndefined()
    expect(facts).toHaveLength(32)
    control.end()
    expect(await control.steer('late', 'me')).toContain('ended')
    expect(await control.setPaused(true, 'me')).toContain('ended')
    control.begin(agent)
    expect(facts).toHaveLength(32)
  })

  it('learns what the agent itself says against it [A.08]', async () => {
    const { world, control, agent } = await open({
      'task/steer': async () => ({ ok: false, error: { code: 'busy', message: 'too many wait' } }),
    })
    await using _world = world
    control.begin(agent)
    expect(await control.steer('x', 'me')).toContain('too many wait')
  })
})
