// The page over `caisson serve` as a process of its own, with a real VM: a run from its form to its applied changes and a fork.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { sees, useBrowser } from './support.ts'

const open = useBrowser()

const calls = [
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['delete_file', { path: 'old.txt' }],
] as const

it('a run is started, answered, applied and forked from the page [H.02 W.01 V.05]', async () => {
  await using model = await startModelServer(({ messages }) => {
    const call = calls[messages.filter(({ role }) => role === 'tool').length]
    return reply(
      call === undefined
        ? { text: 'It is done.' }
        : { calls: [{ id: `call${call[0].slice(0, 5)}`, name: call[0], arguments: call[1] }] },
    )
  })
  const env = { CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted' }
  const place = await cliPlace({ 'old.txt': 'old\n' }, env)
  const service = place.start('serve', '--port', '0')
  await expect.poll(() => /Page: (http:\S+)/.exec(service.errors())?.[1], { timeout: 30_000 }).toBeTruthy()
  const address = /Page: (http:\S+)/.exec(service.errors())?.[1] ?? ''
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  // Standard error is no terminal here, but a log.
  expect(service.errors()).not.toContain(token)
  const { page, complaints } = await open(`${address}#token=${token}`)
  page.setDefaultTimeout(120_000)
  await page.getByRole('link', { name: 'New run' }).first().click()
  await page.getByLabel('Task', { exact: true }).fill('Replace old.txt by new.txt')
  await page.getByLabel('Path of the folder').fill(place.workspace)
  await page.getByRole('button', { name: 'Start run' }).click()
  await page.getByRole('heading', { name: 'Allow delete_file' }).waitFor()
  await page.getByRole('meter', { name: 'Memory of the VM' }).waitFor()
  await page.getByRole('button', { name: 'Yes, this once' }).click()
  await page.getByRole('button', { name: 'Replay' }).waitFor()
  await page.getByRole('tab', { name: 'Changes' }).click()
  await page.getByRole('button', { name: 'Apply all 2 changes' }).click()
  await sees(page, 'Applied 2 paths.')
  expect(await readFiles(place.workspace)).toEqual({ 'new.txt': 'new\n' })
  const first = page.url()
  await page.getByRole('button', { name: 'Fork or rewind' }).click()
  await page.getByRole('combobox', { name: /^From/ }).selectOption('end')
  await page.getByRole('button', { name: 'Fork', exact: true }).click()
  await expect.poll(() => page.url(), { timeout: 60_000 }).not.toBe(first)
  // The last checkpoint may be the one before the question.
  const [ended, asked] = ['Replay', 'Yes, this once'].map((name) => page.getByRole('button', { name }))
  if (ended === undefined || asked === undefined) throw new TypeError('two buttons')
  await ended.or(asked).first().waitFor()
  if (await asked.isVisible()) await asked.click()
  await ended.waitFor()
  await page.getByRole('tab', { name: 'Details' }).click()
  await sees(page, 'Fork of')
  expect(complaints).toEqual([])
  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
}, 300_000)
