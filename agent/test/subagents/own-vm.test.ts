// A sub-agent in a VM of its own, from its parent's side: what the host is asked, and what becomes of its answer.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { AgentRunRequest, AgentRunResult } from '#specs/protocol/agent-vm.ts'
import { later, type VmsOfHost } from '../../subagents/own-vm.ts'
import type { AgentRequest } from '../../tool-calls/sub-agent-types.ts'
import { makeAgents } from '../support/agents.ts'
import { modelAt } from '../support/run.ts'

const never = new AbortController().signal
const usage = { requests: 2, inputTokens: 700, outputTokens: 50, reasoningTokens: 0 }
const done: AgentRunResult = {
  ...{
    state: 'completed',
    reason: 'completed',
    text: 'done',
    usage,
    toolCalls: 3,
    agents: 1,
    hasChanges: true,
  },
}

/** A host whose VM answers so, and whose changes are one file. */
function hostWith(answer: Partial<AgentRunResult> | Error, changes: string | Error = 'from the VM') {
  const asked: Omit<AgentRunRequest, 'runId'>[] = []
  const vms: VmsOfHost = {
    run: async (request) => {
      asked.push(request)
      return answer instanceof Error
        ? { ok: false, error: { code: 'rejected', message: answer.message } }
        : { ok: true, value: { ...done, ...answer } }
    },
    takeChanges: async (_, { path }) => {
      if (changes instanceof Error) throw changes
      writeFileSync(join(path, 'made.txt'), changes)
      return [{ path: 'socket', reason: 'it is a socket' }]
    },
  }
  return { asked, vms }
}

const open = (vms?: VmsOfHost) =>
  makeAgents({ model: modelAt('http://127.0.0.1:9'), ...(vms === undefined ? {} : { vms }) })

describe('a sub-agent in a VM of its own', () => {
  it('is asked of the host with its part of the budget; its changes are merged, and what it spent is spent [A.07]', async () => {
    const { asked, vms } = hostWith({})
    using bench = open(vms)
    const before = bench.run.budget.spent
    const request = {
      brief: 'Work',
      name: 'one',
      isolation: 'vm',
      hosts: ['a.test'],
      approvals: 'deny',
    } satisfies AgentRequest
    const result = await bench.agents.spawn({ ...request, limits: { maxTokens: 5_000 } }, 'step', never)
    expect(result).toMatchObject({
      ...{ state: 'completed', text: 'done', merged: ['made.txt'], conflicts: [] },
      leftOut: [{ path: 'socket', reason: 'it is a socket' }],
    })
    expect(asked).toMatchObject([
      {
        ...{ agentPath: 'root/one', stepId: 'step', brief: 'Work', hosts: ['a.test'], approvals: 'deny' },
        limits: { maxTokens: 5_000 },
      },
    ])
    expect(asked[0]?.tools).not.toContain('revise_plan')
    const { calls, tokens, requests, agents } = bench.run.budget.spent
    expect([calls - before.calls, tokens - before.tokens, requests - before.requests]).toEqual([3, 750, 2])
    expect(agents - before.agents).toBe(2)
    expect(bench.heard.get('root/one')?.map(({ type }) => type)).toEqual(['agent-start', 'agent-end'])
    expect(bench.heard.get('root/one')?.[0]).toMatchObject({
      isolation: 'vm',
      hosts: ['a.test'],
      approvals: 'deny',
    })
    expect([...bench.open]).toEqual([])
  })

  it('fails with the reason of the host where there is no VM, and with its own where its changes are lost [A.07]', async () => {
    using none = open(hostWith(new Error('no memory is free')).vms)
    const refused = await none.agents.spawn({ brief: 'Work', isolation: 'vm' }, 'step', never)
    expect(refused).toMatchObject({ state: 'failed', reason: 'environment', merged: [] })
    expect(refused.text).toContain('no VM of its own for a sub-agent: no memory is free')
    using lost = open(hostWith({}, new Error('the stream was cut')).vms)
    const failed = await lost.agents.spawn({ brief: 'Work', isolation: 'vm' }, 'step', never)
    expect(failed).toMatchObject({ state: 'failed', reason: 'step_failed', merged: [] })
    expect(failed.text).toBe('done\n\n[Caisson] Its changes are lost: the stream was cut')
  })

  it('is refused in a VM that is a sub-agent’s, and where bounds have no VM [A.07]', async () => {
    using here = open()
    const nowhere = await here.agents.spawn({ brief: 'Work', isolation: 'vm' }, 'step', never)
    expect(nowhere.refused).toMatchObject({
      code: 'unavailable',
      message: expect.stringContaining('leave isolation out'),
    })
    using bench = open(hostWith({}).vms)
    const unbound = await bench.agents.spawn({ brief: 'Work', hosts: [] }, 'step', never)
    expect(unbound.refused).toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('need the isolation'),
    })
  })

  it('has the messages that came before it began [A.08]', async () => {
    const { asked, vms } = hostWith({})
    using bench = open(vms)
    const spawned = bench.agents.spawn({ brief: 'Work', name: 'one', isolation: 'vm' }, 'step', never)
    expect(bench.run.subAgents.steer('root/one', { messageId: 'm1', text: 'use tabs' })).toMatchObject({
      ok: true,
    })
    await spawned
    expect(asked[0]?.messages).toEqual([{ messageId: 'm1', text: 'use tabs' }])
  })

  it('has time to end by itself after a limit [A.03]', async () => {
    const limit = new AbortController()
    const signal = later(limit.signal, 5)
    limit.abort('the time limit')
    expect(signal.aborted).toBe(false)
    await expect.poll(() => signal.aborted).toBe(true)
    expect(signal.reason).toBe('the time limit')
  })
})
