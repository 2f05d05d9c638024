// Questions of an agent in a real VM to the person: over a VM that sleeps meanwhile, from another process, and to nobody.
import { describe, expect, it } from 'vitest'
import type { Run } from '../../runs/run.ts'
import { findVms, finish, testBench } from '../support/runs.ts'

const task = 'Ask me "Which format?" with the options "csv" and "json"'

/** The id of the question, once the journal has it. */
async function questionOf(run: Run): Promise<string> {
  for await (const { event } of run.watch() as AsyncIterable<{ event?: { type: string } }>)
    if (event?.type === 'approval-request') return Object.keys(run.state.pendingApprovals)[0] ?? ''
  throw new Error('the run asked nothing')
}

async function sees(run: Run, type: string): Promise<void> {
  for await (const item of run.watch()) if (item.source === 'host' && item.event.type === type) return
  throw new Error(`the run ended without ${type}`)
}

describe('a question to the person', () => {
  it('waits in a VM that is saved, takes an answer of its form from another process, and the run continues with it [S2.16 V.04 V.08]', async () => {
    const bench = await testBench({ 'a.txt': 'a' })
    const vm = { memoryBytes: 512 * 1024 ** 2, hibernateAfterMs: 300 }
    const run = await bench.start(task, { approvals: { interactive: true, mode: 'all' }, vm })
    const finished = finish(run)
    const approvalId = await questionOf(run)
    await sees(run, 'vm-sleep')
    expect(await findVms(bench.home)).toEqual([])
    const client = await bench.host.attach(run.id)
    expect(
      await client?.answer(approvalId, { decision: 'allow', scope: 'once', answer: 'xml' }),
    ).toMatchObject({ taken: false })
    expect(
      await client?.answer(approvalId, { decision: 'allow', scope: 'once', answer: 'json' }),
    ).toMatchObject({ taken: true })
    expect(await run.answer(approvalId, { decision: 'allow', scope: 'once', answer: 'csv' })).toMatchObject({
      taken: false,
    })
    await client?.detach()
    const { events, state } = await finished
    expect(state.end).toMatchObject({ outcome: 'completed' })
    expect(state.end?.summary).toContain('The answer: json')
    const types = events.map(({ type }) => type)
    expect(types.filter((type) => type.startsWith('vm-') && type !== 'vm-ready')).toEqual([
      'vm-sleep',
      'vm-wake',
    ])
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'approval-decision', approvalId, by: 'person', answer: 'json' }),
    )
  })

  it('is denied where nobody is there, and the run says so [S2.16]', async () => {
    const { run } = await testBench({ 'a.txt': 'a' })
    const { state, events } = await run(task)
    expect(state.end).toMatchObject({ outcome: 'failed', reason: 'denied' })
    expect(state.end?.message).toContain('no user is available to answer')
    expect(events).toContainEqual(
      expect.objectContaining({ type: 'approval-decision', by: 'mode', decision: 'deny' }),
    )
  })
})
