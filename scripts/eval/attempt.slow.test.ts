import { existsSync } from 'node:fs'
import { expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { attemptTask } from './attempt.ts'
import { environmentFor, startSolvingModel } from './solving-model.ts'
import { chooseTasks } from './suite.ts'

it('an attempt runs a task in a VM, applies the changes, and tests the result in another VM [T.04]', async () => {
  const [task] = chooseTasks({ only: ['node-rename'], tags: [] })
  if (task === undefined) throw new Error('no task')
  const home = await temporaryFolder('eval-home')
  await using server = await startSolvingModel()
  await using host = new Host({ env: environmentFor(home, server) })
  const folder = `${await temporaryFolder('eval-workspace')}/one`
  const end = await attemptTask(host, task, { attempt: 1, folder, run: {} })
  if (end.kind === 'lost') throw new Error(end.why)
  const { attempt } = end
  expect(attempt).toMatchObject({ passed: true, problems: [], end: 'completed', turns: 2, model: 'scripted' })
  expect((await host.runs.find(attempt.runId)).runId).toBe(attempt.runId)
  expect(existsSync(folder)).toBe(false)
})
