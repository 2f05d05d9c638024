// The tasks of examples/trigger fit the types of Trigger.dev's SDK, installed by their lock, and those of the package.
import { appendFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { InstalledExample } from '../support/installed-example.ts'

it('compiles the tasks against the SDK, and notices a payload that does not fit [S4.09]', async () => {
  await using example = await InstalledExample.install('trigger')
  expect(await example.compile()).toBe('')
  const task = path.join(example.folder, 'trigger/direct.ts')
  await appendFile(task, '\nawait carryOutGoal.trigger({ goal: 1 })\n')
  expect(await example.compile()).toContain("not assignable to type 'string'")
})
