// A run whose host process died, as `runs show`, `runs list`, `attach` and `runs cancel` tell of it.
import { stat, truncate, writeFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import type { Plan } from '#specs/protocol/plan.ts'
import { runAtWork } from '../../support/run-at-work.ts'
import { runId, runStart } from '../../support/run-values.ts'

const plan: Plan = {
  goal: 'tidy up',
  steps: [
    {
      id: 's',
      kind: 'task',
      title: 'delete old files',
      instructions: 'do it',
      needs: [],
      writes: [],
      onFailure: 'abort',
    },
  ],
}

const question = {
  type: 'approval-request' as const,
  kind: 'cooperative' as const,
  digest: '0'.repeat(64),
  request: {
    ...{ approvalId: 'a1', agentPath: 'root', stepId: 's', callId: 'asked' },
    ...{ tool: 'delete_file', arguments: '{"path":"old.txt"}', preview: '' },
  },
}

it('says when its last event was, what was under way, and what to do [H.01 V.08]', async () => {
  const { record, caisson, die } = await runAtWork()
  let n = 1
  await record.host(runStart)
  await record.agent('root', n++, { type: 'plan-update', plan, revision: 1 })
  await record.agent('root', n++, { type: 'step-start', stepId: 's' })
  await record.host({ type: 'model-start', requestId: 'model-7', agentPath: 'root/a', stepId: 's', turn: 1 })
  for (const callId of ['ended', 'open'])
    await record.agent('root', n++, {
      type: 'tool-start',
      ...{ callId, stepId: 's', tool: 'run_bash', arguments: `{"command":"sleep \\u001b[31m ${callId}"}` },
    })
  await record.agent('root', n++, {
    type: 'tool-end',
    ...{ callId: 'ended', stepId: 's', tool: 'run_bash', durationMs: 1, output: '' },
  })
  await record.host(question)
  await die()

  const { stdout, code } = await caisson('runs', 'show', runId)
  expect(code).toBe(0)
  const told = stdout.slice(stdout.indexOf('Interrupted: ')).split('\n')
  expect(told.slice(0, 9)).toEqual([
    expect.stringMatching(/^Interrupted: the host process of this run died /),
    expect.stringMatching(/^ {2}last event: \d{4}-\d\d-\d\d \d\d:\d\d \S+, during the work$/),
    '  under way at that time:',
    '    step 1/1 delete old files',
    expect.stringMatching(
      /^ {4}call run_bash command: sleep \\e\[31m open · started .* before the last event$/,
    ),
    expect.stringMatching(/^ {4}model request model-7 of \[a\] for 1\/1 delete old files · sent /),
    expect.stringMatching(/^ {4}approval without an answer: asks to call delete_file path: old.txt · asked /),
    '  no changes were collected, and nothing in /work was changed; its VM ended with it',
    `  run the task again, with the same plan: caisson run --plan-from ${runId}`,
  ])
  expect((await caisson('runs', 'list')).stdout).toContain(
    'interrupted  do it · interrupted during the work since ',
  )
  const attached = await caisson('attach', runId)
  expect(attached.stdout).toContain('  under way at that time:\n')
  expect(attached.stderr).toContain(`${runId} was interrupted: its host process ended before the run did`)
  expect(attached.code).toBe(1)
  expect((await caisson('runs', 'pause', runId)).stderr).toContain(
    `its host process ended before the run did; what it was doing: caisson runs show ${runId}`,
  )
  // Cancelled by the process that asks, as no other has the run.
  const cancelled = await caisson('runs', 'cancel', runId)
  expect([cancelled.code, cancelled.stdout]).toEqual([
    0,
    `${runId}: cancelled; its changes were not collected\n`,
  ])
  expect((await caisson('runs', 'list')).stdout).toContain(' cancelled ')
  expect((await caisson('runs', 'cancel', runId)).stderr).toContain('it has ended as cancelled')
})

it('gives the reason for which its process left it, until it is resumed [H.01 G.05]', async () => {
  const { record, caisson, die } = await runAtWork()
  await record.host(runStart)
  const message = `m takes requests again at 17:00\u001b[2J\nThen continue the run: caisson runs resume ${runId}`
  await record.host({ type: 'run-interrupt', reason: 'model_unreachable', message })
  await die()
  const { stdout } = await caisson('runs', 'show', runId)
  expect(stdout).toMatch(/\nInterrupted: m takes requests again at 17:00\\e\[2J\n {2}last event: /)
  expect(stdout).toMatch(/\nRun interrupted\n {2}│ model_unreachable: m takes requests/)
  expect(stdout).not.toContain('died')
  expect((await caisson('runs', 'list')).stdout).toContain(' interrupted ')
})

it('is not resumed without a terminal while it waits for an answer: the question would be denied [A.03 H.01]', async () => {
  const { record, caisson, die } = await runAtWork()
  await record.host(runStart)
  await record.host(question)
  await writeFile(record.paths.options, '{}')
  await die()
  const { code, stderr } = await caisson('runs', 'resume', runId)
  expect([code, stderr]).toEqual([
    1,
    expect.stringMatching(/waits for 1 answer, which nobody can give here.*approvals list.* --detach/s),
  ])
  expect((await caisson('runs', 'resume', '--all')).stderr).toContain('no run can be continued')
  expect((await caisson('approvals', 'list')).stdout).toContain('old.txt')
})

it('says of a run that died before it had a plan how to begin again [H.01]', async () => {
  const { record, caisson, die } = await runAtWork()
  await record.host(runStart)
  await die()
  const { stdout } = await caisson('runs', 'show', runId)
  expect(stdout).toMatch(/last event: .*, before the agent began\n {2}no changes were collected/)
  expect(stdout).toContain('  run the task again: caisson run "TASK"\n')
  expect(stdout).not.toContain('under way')
})

it('says of a run with a damaged journal that it cannot continue, and where to look [H.01 V.08]', async () => {
  const { record, caisson, die } = await runAtWork()
  await record.host(runStart)
  await die()
  const { size } = await stat(record.paths.journal)
  await truncate(record.paths.journal, size - 50)
  const { code, stderr } = await caisson('runs', 'resume', runId)
  expect([code, stderr]).toEqual([
    2,
    expect.stringContaining(
      `its journal is damaged, so it cannot continue; what is wrong: caisson runs show ${runId}`,
    ),
  ])
})
