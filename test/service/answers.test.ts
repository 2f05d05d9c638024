// Who may answer a question over HTTP, and whose answer counts when many come at once. Real requests, no VM.
import { expect, it, vi } from 'vitest'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId, runStart } from '../../host/test/support/run-values.ts'
import { codeOf, detailOf, holderOf, startOf } from './keys-support.ts'
import { serveHost } from './support.ts'

const answersAtOnce = 20

it('a question has one answer of many at once, by whoever has the scope, and none by a key without it [H.02, S1.11]', async () => {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const reader = await holderOf(host, served, 'reader', { scopes: ['read', 'run', 'apply', 'metrics'] })
  const one = await holderOf(host, served, 'one')
  await run.record.host(startOf(one.metadata))
  const asked = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
  await expect.poll(async () => (await one.send('GET', '/v1/approvals')).text).toContain('q1')
  const place = `/v1/runs/${runId}/approvals/q1`
  const body = (answer: string) => ({ decision: 'allow', answer })
  const refused = await reader.send('POST', place, body('red'))
  expect([refused.status, codeOf(refused)]).toEqual([403, 'forbidden'])
  expect(detailOf(refused)).toContain('approve')
  // A key with the scope that does not own the run learns nothing of it.
  const other = await holderOf(host, served, 'other')
  expect((await other.send('POST', place, body('red'))).status).toBe(404)

  const answers = await Promise.all(
    Array.from({ length: answersAtOnce }, async (_, at) => {
      const answer = `color ${at}`
      return { answer, ...(await one.send('POST', place, body(answer))) }
    }),
  )
  const taken = answers.filter(({ status }) => status === 200)
  expect(taken).toHaveLength(1)
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 409]))
  for (const answer of answers) if (answer.status === 409) expect(codeOf(answer)).toBe('decided')
  expect(await asked).toMatchObject({ decision: 'allow', answer: taken[0]?.answer })
  const decisions = (await host.runs.read(runId)).filter(({ event }) => event.type === 'approval-decision')
  expect(decisions).toHaveLength(1)
})

it('an answer to a run that just left its service is taken where the run is next [H.02, S1.11]', async () => {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const { client } = await serveHost(host)
  await run.record.host(runStart)
  const asked = run.ask({ question: 'Which color?', kind: 'text' }, 'q1')
  await expect.poll(() => run.record.state.pendingApprovals).toHaveProperty('q1')
  // The handle of the service does not know yet that the run left.
  const left = { taken: false, reason: 'connection_lost', message: 'the run left' } as const
  const handle = { id: runId, answer: vi.fn(async () => left), result: () => new Promise(() => undefined) }
  vi.spyOn(host, 'run').mockResolvedValue(handle as never)
  await client.call('createRun', { body: { prompt: 'x' } })
  const params = { run: runId, approval: 'q1' }
  expect(await client.call('answerApproval', { params, body: { decision: 'allow', answer: 'red' } })).toEqual(
    {
      taken: true,
    },
  )
  expect(handle.answer).toHaveBeenCalledOnce()
  expect(await asked).toMatchObject({ decision: 'allow', answer: 'red' })
})
