import { expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { reply } from '../../specs/testing/model-replies.ts'
import { startModelServer } from '../../specs/testing/model-server.ts'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { attemptTask } from './attempt.ts'
import { chooseTasks } from './suite.ts'

const step = { id: 'fix', title: 'Fix', instructions: 'FIX', needs: [], writes: ['*'] }
const call = (name: string, input: unknown) => reply({ calls: [{ name, arguments: input }] })

it('an attempt runs a task in a VM, applies the changes, and tests the result in another VM [T.04]', async () => {
  const [task] = chooseTasks({ only: ['python-pages'], tags: [] })
  if (task === undefined) throw new Error('no task')
  const home = await temporaryFolder('eval-home')
  await using server = await startModelServer([
    call('submit_plan', { goal: 'Fix the pages', steps: [step] }),
    call('write_file', { path: 'pages.py', content: task.solution['pages.py'] }),
    reply({ text: 'Both bugs are fixed.' }),
  ])
  await using host = new Host({
    env: {
      ...process.env,
      CAISSON_HOME: home,
      XDG_CONFIG_HOME: `${home}/config`,
      CAISSON_LLM_URL: server.baseUrl,
      CAISSON_LLM_KEY: 'sk-some-key',
      CAISSON_MODEL: 'scripted',
    },
  })
  const folder = await temporaryFolder('eval-workspace')
  const attempt = await attemptTask(host, task, { attempt: 1, folder, run: {} })
  expect(attempt).toMatchObject({ passed: true, problems: [], end: 'completed', turns: 3 })
  expect((await host.runs.find(attempt.runId ?? '')).runId).toBe(attempt.runId)
})
