import { expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { Past } from '../../runs/past.ts'
import { keyOf } from '../../tools/calls.ts'

const checkpoint = (checkpointId: string): HostEvent => ({
  type: 'checkpoint',
  ...{ checkpointId, durationMs: 1, elapsedMs: 50, exchanges: 2 },
})
const asks = (approvalId: string): HostEvent => ({
  type: 'approval-request',
  kind: 'cooperative',
  digest: '0'.repeat(64),
  request: {
    ...{ approvalId, agentPath: 'root', stepId: 's', callId: approvalId },
    ...{ tool: 'delete_file', arguments: '{}', preview: '' },
  },
})
const decides = (approvalId: string, by: 'person' | 'cancel' | 'agent'): HostEvent => ({
  type: 'approval-decision',
  ...{ approvalId, decision: 'allow', scope: 'once', by },
})
const calls = (callId: string): HostEvent => ({
  type: 'host-tool-start',
  ...{ agentPath: 'root', stepId: 's', callId, tool: 'order_part', arguments: '{}' },
})

it('an interrupted run has its decisions since the checkpoint, without those that were withdrawn [R.01]', () => {
  const past = new Past('cp-2')
  const lines = [
    ...[asks('a1'), decides('a1', 'person'), checkpoint('cp-1'), checkpoint('cp-2')],
    ...[
      asks('a2'),
      asks('a3'),
      decides('a3', 'cancel'),
      asks('a5'),
      decides('a5', 'agent'),
      decides('a2', 'person'),
      asks('a4'),
    ],
  ]
  for (const event of lines) past.next({ event })
  expect(past.decided.map(({ request }) => request.approvalId)).toEqual(['a2'])
})

it('it names what programs reached since the checkpoint, and nothing that only read [R.01]', () => {
  const past = new Past('cp-1')
  const ends = (kind: 'tunnel' | 'http' | 'fetch', target: string): HostEvent => ({
    type: 'egress-end',
    ...{ kind, target, rule: 'r', bytesOut: 1, bytesIn: 1, durationMs: 1 },
  })
  const starts = (target: string): HostEvent => ({ type: 'egress-start', kind: 'http', target, rule: 'r' })
  const before = [ends('tunnel', 'a.example:443'), checkpoint('cp-1')]
  const since = [
    starts('GET http://open.example/'),
    ends('http', 'POST http://b.example/'),
    ends('fetch', 'GET https://c.example/'),
  ]
  for (const event of [...before, ...since, ...since]) past.next({ event })
  expect(past.reached).toEqual(['GET http://open.example/', 'POST http://b.example/'])
})

it('a call of a host tool without a recorded result is unknown, and is not carried out again [R.01 S2.11]', async () => {
  const past = new Past(null)
  for (const event of [calls('c1'), calls('c2')]) past.next({ event })
  const done = Promise.resolve({ ok: true as const, output: 'ordered' })
  const results = new Map([[keyOf('c1', 'order_part', '{}'), done]])
  past.addUnknownCalls(results)
  expect(await results.get(keyOf('c1', 'order_part', '{}'))).toMatchObject({ output: 'ordered' })
  expect(await results.get(keyOf('c2', 'order_part', '{}'))).toMatchObject({
    ok: false,
    error: { code: 'cancelled', message: expect.stringContaining('result is not known') },
  })
})

it('the state of a run that continues is that of its checkpoint, with what was spent since [R.01]', () => {
  const plan = {
    goal: 'g',
    steps: [{ id: 's', title: 'S', instructions: 'do', needs: [], writes: [], onFailure: 'abort' as const }],
  }
  const spent = { requests: 1, inputTokens: 10, outputTokens: 5, reasoningTokens: 0 }
  const fold = (...events: Parameters<typeof reduceRun>[1]['event'][]) =>
    events.reduce((state, event) => reduceRun(state, { event }), initialRunState)
  const before: Parameters<typeof reduceRun>[1]['event'][] = [
    { type: 'session-start', session: 1, resumed: false },
    { type: 'plan-update', revision: 1, plan },
    { type: 'step-start', stepId: 's' },
    checkpoint('cp-1'),
    { type: 'step-end', stepId: 's', state: 'completed', text: 'done' },
    {
      type: 'model-end',
      requestId: 'm1',
      status: 200,
      usage: spent,
      durationMs: 1,
      queuedMs: 0,
    },
    asks('a1'),
  ]
  const resume = (checkpointId: string | null) =>
    ({ type: 'run-resume', epoch: 2, checkpointId, message: 'the VM ended' }) as const
  expect(fold(...before, resume('cp-1'))).toMatchObject({
    phase: 'working',
    steps: { s: { state: 'running' } },
    pendingApprovals: {},
    usage: spent,
    epoch: 2,
    checkpoint: { checkpointId: 'cp-1', exchanges: 2 },
  })
  expect(fold(...before, resume(null))).toMatchObject({
    phase: 'preparing',
    plan: null,
    usage: spent,
    checkpoint: null,
  })
})

it('it has the last answer for the run about the same calls, and none once that is revoked [R.12 S1.11]', () => {
  const forRun = (approvalId: string): HostEvent[] => [
    asks(approvalId),
    { type: 'approval-decision', approvalId, decision: 'allow', scope: 'run', by: 'person' },
  ]
  const derived: HostEvent[] = [
    asks('a3'),
    {
      type: 'approval-decision',
      ...{ approvalId: 'a3', decision: 'allow', scope: 'run', by: 'person', earlierId: 'a2' },
    },
  ]
  const past = new Past(null)
  let state = initialRunState
  const next = (events: readonly HostEvent[]) => {
    for (const event of events) {
      past.next({ event })
      state = reduceRun(state, { event })
    }
    return [past.runAnswers.map(({ request }) => request.approvalId), Object.keys(state.runAnswers)]
  }
  expect(next([...forRun('a1'), ...forRun('a2'), ...derived])).toEqual([['a2'], ['a2']])
  expect(next([{ type: 'approval-revoke', approvalId: 'a2', by: 'ann' }])).toEqual([[], []])
  // A call that was under way.
  expect(next(derived)).toEqual([[], []])
})

it('messages keep their path; a sub-agent cancelled behind the checkpoint is known, one before it is not [R.01 A.08]', () => {
  const says = (messageId: string): HostEvent => ({
    type: 'steer-request',
    ...{ messageId, text: 'use tabs', agentPath: 'root/one', by: 'me' },
  })
  const cancels = (agentPath: string): HostEvent => ({
    type: 'agent-cancel-request',
    ...{ agentPath, reason: 'enough', by: 'me' },
  })
  const past = new Past('cp-1')
  const lines = [says('m1'), cancels('root/old'), checkpoint('cp-1'), says('m2'), cancels('root/one')]
  for (const event of lines) past.next({ event })
  expect(past.newMessages).toEqual([{ messageId: 'm2', text: 'use tabs', agentPath: 'root/one' }])
  expect(past.messages).toHaveLength(2)
  expect([...past.cancelledAgents]).toEqual([['root/one', 'enough']])
})
