// An application's answers: a real queue, journal and control socket; only the run's work is scripted.
import { describe, expect, it } from 'vitest'
import { RunClient } from '../../control/run-client.ts'
import { answerApprovals, type OnApproval, warnOfUnanswered } from '../../runs/approval-handler.ts'
import { runAtWork, someCall } from '../support/run-at-work.ts'
import { runId } from '../support/run-values.ts'

async function open(onApproval: OnApproval) {
  const { queue, record, end, ...rest } = await runAtWork()
  const run = await RunClient.connect(runId, record.paths.control)
  const warnings: string[] = []
  const answering = answerApprovals(run, onApproval, (text) => warnings.push(text))
  const ask = (approvalId: string, tool = 'delete_file') =>
    queue.ask({ ...someCall, approvalId, tool, arguments: '{"path":"a.txt"}' })
  return { ...rest, run, ask, queue, end, warnings, answering }
}

describe('an application that answers approvals with a function', () => {
  it('is asked once for each approval, several at once, and its answers decide [S1.11 H.05]', async () => {
    const asked: string[] = []
    const both = Promise.withResolvers<void>()
    const { ask, warnings } = await open(async ({ approvalId, tool, arguments: given }) => {
      asked.push(`${approvalId} ${tool} ${given}`)
      if (asked.length === 2) both.resolve()
      await both.promise
      return approvalId === 'a1' ? 'allow' : { decision: 'deny', hint: 'keep it' }
    })
    const answers = [ask('a1'), ask('a2')]
    expect(await Promise.all(answers)).toEqual([{ decision: 'allow' }, { decision: 'deny', hint: 'keep it' }])
    expect(asked).toEqual(['a1 delete_file {"path":"a.txt"}', 'a2 delete_file {"path":"a.txt"}'])
    expect(warnings).toEqual([])
  })

  it.each<[string, OnApproval, RegExp]>([
    [
      'throws',
      () => {
        throw new Error('no database')
      },
      /denied: onApproval failed: no database/,
    ],
    ['rejects', () => Promise.reject(new Error('no database')), /denied: onApproval failed: no database/],
    ['returns what is no answer', (() => 'yes') as never, /an answer that does not fit/],
    ['returns nothing', (() => undefined) as never, /denied/],
    ['answers a question of another kind', () => ({ decision: 'allow', scope: 'always' }), /does not fit/],
  ])('denies and warns when the function %s [S1.11]', async (_, onApproval, warning) => {
    const { ask, warnings } = await open(onApproval)
    expect(await ask('a1')).toEqual({ decision: 'deny' })
    expect(warnings).toEqual([expect.stringMatching(warning)])
  })

  it('learns when somebody else answered first [S1.11 V.08]', async () => {
    const aborted = Promise.withResolvers<void>()
    const asked = Promise.withResolvers<void>()
    const { ask, queue, warnings } = await open((_, { signal }) => {
      asked.resolve()
      signal.addEventListener('abort', () => aborted.resolve())
      return aborted.promise.then(() => 'deny' as const)
    })
    const decision = ask('a1')
    await asked.promise
    queue.answer('a1', { decision: 'allow', scope: 'once' })
    expect(await decision).toEqual({ decision: 'allow' })
    await aborted.promise
    expect(warnings).toEqual([])
  })
})

describe('an application that answers nothing', () => {
  it('is warned once, with what to pass [S1.11 H.05]', async () => {
    const { queue, record } = await runAtWork()
    const run = await RunClient.connect(runId, record.paths.control)
    const warnings: string[] = []
    const watching = warnOfUnanswered(run, (text) => warnings.push(text))
    queue.detach()
    const call = { ...someCall, tool: 'delete_file', arguments: '{}' }
    for (const approvalId of ['a1', 'a2'])
      expect(await queue.ask({ ...call, approvalId })).toMatchObject({ decision: 'deny' })
    await watching
    expect(warnings).toEqual([
      expect.stringMatching(/onApproval, approvals: \{ mode: 'all' \} or approvals: \{ rules \}/),
    ])
  })
})
