import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import { HostEvent } from '#specs/protocol/event.ts'
import { HostToolResult } from '#specs/protocol/extension.ts'
import { HostCalls, type HostCallsOptions } from '../../tools/calls.ts'
import { type HostToolDefinition, HostToolError, prepareHostTools } from '../../tools/host-tools.ts'

const runId = `run-${'0'.repeat(20)}`
const never = new AbortController().signal

interface Bench {
  readonly calls: HostCalls
  readonly journal: HostEvent[]
  readonly asked: ApprovalRequest[]
  readonly logged: object[]
}

function bench(
  tool: Partial<HostToolDefinition>,
  { decision = 'allow', ...options }: Partial<HostCallsOptions> & { decision?: 'allow' | 'deny' } = {},
): Bench {
  const [journal, asked, logged]: [HostEvent[], ApprovalRequest[], object[]] = [[], [], []]
  const definition: HostToolDefinition = {
    description: 'Does it.',
    inputSchema: z.strictObject({ id: z.string() }),
    readOnly: true,
    execute: () => 'done',
    ...tool,
  }
  const calls = new HostCalls({
    tools: prepareHostTools({ do_it: definition }),
    onlyPlans: false,
    maxCalls: 10,
    isNamed: () => false,
    results: new Map(),
    keep: () => Promise.resolve(),
    note: async (event) => void journal.push(HostEvent.parse(event)),
    ask: async (request) => {
      asked.push(request)
      return { decision, hint: 'ask Ann' }
    },
    log: (fields) => void logged.push(fields),
    ...options,
  })
  return { calls, journal, asked, logged }
}

let count = 0
async function call({ calls }: Bench, args: unknown = { id: 'a' }, signal = never, tool = 'do_it') {
  const given = {
    runId,
    agentPath: 'root/pen',
    stepId: 's',
    callId: `c${count++}`,
    tool,
    arguments: JSON.stringify(args),
  }
  return HostToolResult.parse(await calls.call(given, signal))
}

describe('a call of a host tool', () => {
  it('is journaled before it begins and after it has ended, and knows whose it is [S0.12]', async () => {
    const seen: unknown[] = []
    const one = bench({
      execute: (input, { runId: run, agentPath, callId }) => {
        seen.push([input, run, agentPath, callId, one.journal.map(({ type }) => type)])
        return { answer: 42 }
      },
    })
    expect(await call(one)).toEqual({ ok: true, output: '{"answer":42}' })
    expect(seen).toEqual([[{ id: 'a' }, runId, 'root/pen', expect.any(String), ['host-tool-start']]])
    expect(one.journal).toMatchObject([
      { type: 'host-tool-start', tool: 'do_it', arguments: '{"id":"a"}', agentPath: 'root/pen' },
      { type: 'host-tool-end', tool: 'do_it' },
    ])
  })

  it('asks unless it only reads or says otherwise, in words of the host, and tells the model of a no [S1.11]', async () => {
    const denied = bench({ readOnly: false, preview: () => 'deploys a' }, { decision: 'deny' })
    expect(await call(denied)).toMatchObject({
      ok: false,
      error: { code: 'denied', message: expect.stringContaining('ask Ann') },
    })
    expect(denied.asked).toMatchObject([
      { tool: 'do_it', preview: expect.stringMatching(/on this host.*\ndeploys a/) },
    ])
    expect(denied.journal).toEqual([])
    expect((await call(bench({ readOnly: false }))).ok).toBe(true)
    for (const [tool, options] of [
      [{ readOnly: false, ask: false }, {}],
      [{ readOnly: true }, {}],
    ] as const) {
      const silent = bench(tool, { ...options, decision: 'deny' })
      expect((await call(silent)).ok).toBe(true)
    }
    const named = bench({ readOnly: true }, { decision: 'deny', isNamed: (tool) => tool === 'do_it' })
    expect((await call(named)).ok).toBe(false)
  })

  it('is not made with arguments that do not fit, in a run that only plans, or beyond the run’s number [S0.07]', async () => {
    let made = 0
    const execute = (): string => `${++made}`
    for (const wrong of [{ id: 1 }, {}, { id: 'a', more: 1 }, [], 'x', null])
      expect(await call(bench({ execute }), wrong)).toMatchObject({
        ok: false,
        error: { code: 'invalid_input' },
      })
    expect(await call(bench({ execute, readOnly: false }, { onlyPlans: true }))).toMatchObject({
      error: { code: 'denied' },
    })
    expect(await call(bench({ execute }), {}, never, 'other')).toMatchObject({
      error: { code: 'unknown_tool' },
    })
    const few = bench({ execute }, { maxCalls: 1 })
    expect((await call(few)).ok).toBe(true)
    expect(await call(few)).toMatchObject({ ok: false, error: { code: 'limit_reached' } })
    expect(made).toBe(1)
  })

  it('tells the guest nothing of what was thrown but what was meant for it; the log has the details [S1.09]', async () => {
    const secret = bench({ execute: () => Promise.reject(new Error('password hunter2')) })
    const told = await call(secret)
    expect(told).toMatchObject({ ok: false, error: { code: 'internal' } })
    expect(JSON.stringify([told, secret.journal])).not.toContain('hunter2')
    expect(JSON.stringify(secret.logged)).toContain('hunter2')
    const meant = bench({
      execute: () => {
        throw new HostToolError('no such order', { code: 'not_found' })
      },
    })
    expect(await call(meant)).toMatchObject({ error: { code: 'not_found', message: 'no such order' } })
    expect(await call(bench({ execute: () => ({ big: 1n }) }))).toMatchObject({ error: { code: 'internal' } })
  })

  it('ends with its time, with the step that called, and with the run; its effect is then unknown [S0.07]', async () => {
    const forever = { execute: () => new Promise<never>(() => undefined) }
    const late = bench({ ...forever, timeoutMs: 20 })
    expect(await call(late)).toMatchObject({
      error: { code: 'timed_out', message: expect.stringContaining('unknown') },
    })
    const step = new AbortController()
    const withdrawn = call(bench(forever), { id: 'a' }, step.signal)
    setTimeout(() => step.abort(), 10)
    expect(await withdrawn).toMatchObject({ error: { code: 'cancelled' } })
    const over = bench({
      execute: (_input, { signal }) =>
        new Promise((resolve) => signal.addEventListener('abort', () => resolve('late'), { once: true })),
    })
    const running = call(over)
    await sleep(5)
    await over.calls.close()
    expect(over.journal.map(({ type }) => type)).toEqual(['host-tool-start', 'host-tool-end'])
    expect((await running).ok).toBe(true)
    expect(await call(over)).toMatchObject({ error: { code: 'cancelled' } })
  })

  it('shows, journals and carries out one spelling of its arguments, and nothing that the journal cannot take', async () => {
    const seen: unknown[] = []
    const one = bench({
      inputSchema: { type: 'object' },
      readOnly: false,
      execute: (input) => void seen.push(input),
    })
    const send = (json: string) =>
      one.calls.call(
        { runId, agentPath: 'root', stepId: 's', callId: `c${count++}`, tool: 'do_it', arguments: json },
        never,
      )
    expect((await send('{"sum":1e999,"b":1,"b":2}')).ok).toBe(true)
    expect(seen).toEqual([{ b: 2, sum: null }])
    expect(one.asked[0]?.arguments).toBe('{"b":2,"sum":null}')
    // Five characters each as they come, and 22 in the one spelling.
    const numbers = `{"list":[${Array.from({ length: 50_000 }, () => '1e20').join(',')}]}`
    const deep = `{"list":${'['.repeat(100_000)}${']'.repeat(100_000)}}`
    for (const json of [numbers, deep, '[]', '{'])
      expect(await send(json)).toMatchObject({ ok: false, error: { code: 'invalid_input' } })
    expect(seen).toHaveLength(1)
    expect(one.asked).toHaveLength(1)
  })

  it('gives output that fits a frame, whatever is in it [C.02]', async () => {
    for (const output of ['x'.repeat(3_000_000), '\u0001'.repeat(400_000), '\ud800'.repeat(10)]) {
      const result = await call(bench({ execute: () => output }))
      expect(Buffer.byteLength(JSON.stringify(result))).toBeLessThan(600_000)
      expect(result.ok && result.output.isWellFormed()).toBe(true)
    }
    expect(await call(bench({ execute: () => undefined }))).toEqual({ ok: true, output: '' })
  })
})
