import { expect, it } from 'vitest'
import { runAtWork } from '../../support/run-at-work.ts'
import { runId, runStart } from '../../support/run-values.ts'

const usage = { requests: 1, inputTokens: 900, outputTokens: 60, reasoningTokens: 0 }

it('lists the cost of a run where it is known, for people and for programs [H.01]', async () => {
  const { record, caisson } = await runAtWork()
  await record.host(runStart)
  const listed = async () => ({
    line: (await caisson('runs', 'list')).stdout,
    json: JSON.parse((await caisson('runs', 'list', '--json')).stdout) as {
      state: { costUsd: number | null }
    },
  })
  const answer = { type: 'model-end', requestId: 'model-1', status: 200, durationMs: 1, usage } as const

  await record.host(answer)
  // A run begins by its first line.
  expect((await caisson('runs', 'show', runId)).stdout).toMatch(
    /^run-\w+ {2}\d{4}-\d\d-\d\d \d\d:\d\d \S+ {2}\//,
  )
  const unknown = await listed()
  expect(unknown.json.state.costUsd).toBeNull()
  expect(unknown.line).not.toContain('$')

  await record.host({ ...answer, costUsd: 0.0021 })
  await record.host({ ...answer, costUsd: 0.25 })
  const known = await listed()
  expect(known.line).toContain(`${runId}  `)
  expect(known.line).toContain(' · $0.2521')
  expect(known.json.state.costUsd).toBeCloseTo(0.2521)
})
