import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { ApprovalQueue, type ApprovalQueueOptions } from '../../approvals/queue.ts'

const request = (until: unknown, approvalId = 'ap-1') => ({
  runId: 'run-00000000000000000001',
  approvalId,
  agentPath: 'root',
  stepId: 'a',
  callId: 'c1',
  tool: waitTool,
  arguments: JSON.stringify({ until }),
  preview: '',
})

function open(options: Partial<ApprovalQueueOptions> = {}): { queue: ApprovalQueue; events: HostEvent[] } {
  const events: HostEvent[] = []
  const record = async (event: HostEvent) => events.push(event)
  return {
    queue: new ApprovalQueue({
      mode: 'none',
      rules: [],
      interactive: false,
      record,
      mayWait: 'kept',
      ...options,
    }),
    events,
  }
}

it('a wait ends when its time has come, whoever is there and whatever the mode [S3.09]', async () => {
  const { queue, events } = open()
  const waiting = queue.ask(request(Date.now() + 1_000))
  await sleep(1)
  queue.detach()
  expect(queue.pending).toEqual(['ap-1'])
  expect(await waiting).toEqual({ decision: 'allow' })
  expect(events.at(-1)).toMatchObject({ type: 'approval-decision', by: 'rule', rule: 'the time has come' })
  expect(await queue.ask(request(Date.now() - 1, 'ap-2'))).toEqual({ decision: 'allow' })
})

it('a person ends a wait earlier, or its step [S3.09]', async () => {
  for (const decision of ['allow', 'deny'] as const) {
    const { queue } = open()
    const waiting = queue.ask(request(Date.now() + 3_600_000))
    await sleep(1)
    expect(queue.answer('ap-1', { decision, scope: 'once' })).toEqual({ taken: true })
    expect(await waiting).toMatchObject({ decision })
  }
})

it('only a workflow waits, in a replay not at all; what is no time is refused [S3.09]', async () => {
  const later = Date.now() + 3_600_000
  expect(await open({ mayWait: undefined, mode: 'all' }).queue.ask(request(later))).toMatchObject({
    decision: 'deny',
  })
  expect(await open({ mayWait: 'passed' }).queue.ask(request(later))).toMatchObject({ decision: 'allow' })
  for (const until of ['soon', -1, 1.5, null])
    expect(await open({ mode: 'all' }).queue.ask(request(until))).toMatchObject({ decision: 'deny' })
})

it('a wait that an earlier process left open ends at its time [S3.09 R.01]', async () => {
  const { queue } = open()
  const wait = request(Date.now() + 40)
  const { runId, ...asked } = wait
  queue.restore(runId, {
    decided: [],
    open: [{ type: 'approval-request', request: { ...asked, digest: '0'.repeat(64) } } as never],
  })
  const parked = queue.park()
  await parked
  await queue.unpark()
  expect(await queue.ask(wait)).toEqual({ decision: 'allow' })
})
