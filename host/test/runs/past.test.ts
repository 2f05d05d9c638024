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

it('an interrupted run has its decisions, those before the checkpoint under their ids alone, without the withdrawn [R.01]', () => {
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
  expect(past.decided.map(({ request, onlyUnderItsId }) => [request.approvalId, onlyUnderItsId])).toEqual([
    ['a1', true],
    ['a2', undefined],
  ])
})

it('what a process said of its end is why its run is continued, else that another host took the run over', () => {
  const take = { type: 'run-take', epoch: 2, host: 'b', message: 'the run waited for a host' } as const
  const interrupt = { type: 'run-interrupt', reason: 'cancelled', message: 'SIGTERM\nmore' } as const
  const resume = { type: 'run-resume', epoch: 2, checkpointId: null, message: 'of before' } as const
  const whyAfter = (...events: HostEvent[]) => {
    const past = new Past(null)
    for (const event of events) past.next({ event })
    return past.interruption
  }
  expect(whyAfter(interrupt, take)).toBe('SIGTERM')
  expect(whyAfter(take)).toBe('b took the run over')
  expect(whyAfter(interrupt, resume)).toBeUndefined()
})

it('messages and cancellations before the checkpoint that had no effect by then reach the next agent [R.01 A.08]', () => {
  const past = new Past('cp-1')
  const says = (messageId: string, agentPath?: string): HostEvent => ({
    type: 'steer-request',
    ...{ messageId, text: messageId, by: 'Ann', ...(agentPath === undefined ? {} : { agentPath }) },
  })
  const cancels = (agentPath: string): HostEvent => ({
    type: 'agent-cancel-request',
    ...{ agentPath, reason: 'no more', by: 'Ann' },
  })
  const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
  const ended = {
    type: 'agent-end',
    stepId: 's',
    state: 'cancelled',
    reason: 'cancelled',
    ...{ text: '', usage, merged: 0, conflicts: [] },
  } as const
  const before = [
    ...[says('seen'), says('unseen'), says('late', 'root/ended'), says('waits', 'root/busy')],
    ...[cancels('root/ended'), cancels('root/busy')],
  ]
  for (const event of before) past.next({ event })
  past.next({ event: { type: 'steer-seen', stepId: 's', messageIds: ['seen'] } })
  past.next({ agentPath: 'root/ended', event: ended })
  for (const event of [checkpoint('cp-1'), says('new'), cancels('root/new')]) past.next({ event })
  expect(past.newMessages).toEqual([
    { messageId: 'unseen', text: 'unseen' },
    { messageId: 'waits', text: 'waits', agentPath: 'root/busy' },
    { messageId: 'new', text: 'new' },
  ])
  expect(past.messages).toHaveLength(5)
  expect([...past.cancelledAgents.keys()]).toEqual(['root/busy', 'root/new'])
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
  const done = { agentPath: 'root', result: Promise.resolve({ ok: true as const, output: 'ordered' }) }
  const results = new Map([[keyOf('c1', 'order_part', '{}'), done]])
  past.addUnknownCalls(results)
  expect(await results.get(keyOf('c1', 'order_part', '{}'))?.result).toMatchObject({ output: 'ordered' })
  expect(await results.get(keyOf('c2', 'order_part', '{}'))?.result).toMatchObject({
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
