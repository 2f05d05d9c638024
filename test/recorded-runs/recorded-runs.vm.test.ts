// Runs that an earlier version recorded, replayed by the code as it is. A difference is a change of what runs do: if it is
// meant, record them again with `npm run record:runs`.
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { fixtureOf, type RecordedTask, recordedTasks } from './tasks.ts'

async function replayed(host: Host, task: RecordedTask, workspace: string) {
  const { runId } = await host.importRun(createReadStream(fixtureOf(task)), { workspace })
  const replay = await host.replay(runId)
  const { isSame, difference, isCutOff, events } = await replay.result()
  return { name: task.name, isSame, difference, isCutOff, hasEvents: events > 20 }
}

it('a replay of each recorded run finds no difference [R.03, G.06]', async () => {
  const home = await temporaryFolder('home')
  const workspace = await temporaryFolder('workspace')
  const host = new Host({ env: { ...process.env, CAISSON_HOME: home, XDG_CONFIG_HOME: `${home}/config` } })
  onTestFinished(async () => await host.close())
  const results = await Promise.all(recordedTasks.map(async (task) => await replayed(host, task, workspace)))
  expect(results).toEqual(
    recordedTasks.map(({ name }) => ({
      ...{ name, isSame: true, difference: null, isCutOff: false, hasEvents: true },
    })),
  )
}, 240_000)

it.each(recordedTasks)('the export of $name is small', async (task) => {
  expect((await stat(fixtureOf(task))).size).toBeLessThan(300_000)
})
