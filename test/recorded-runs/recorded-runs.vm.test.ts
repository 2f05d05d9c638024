// Runs that an earlier version recorded, replayed by the code as it is. A difference is a change of what runs do: if it is
// meant, record them again with `npm run record:runs`.
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { fixtureOf, recordedTasks } from './tasks.ts'

it.for(recordedTasks)('a replay of $name finds no difference [R.03, G.06]', async (task) => {
  const home = await temporaryFolder('home')
  const workspace = await temporaryFolder('workspace')
  await using host = new Host({
    env: { ...process.env, CAISSON_HOME: home, XDG_CONFIG_HOME: `${home}/config` },
  })
  const { runId } = await host.importRun(createReadStream(fixtureOf(task)), { workspace })
  const replay = await host.replay(runId)
  const { isSame, difference, isCutOff, events } = await replay.result()
  expect({ isSame, difference, isCutOff }).toEqual({ isSame: true, difference: null, isCutOff: false })
  expect(events).toBeGreaterThan(20)
})

it.for(recordedTasks)('the export of $name is small', async (task) => {
  expect((await stat(fixtureOf(task))).size).toBeLessThan(300_000)
})
