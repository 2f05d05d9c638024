// Runs from the form of the page, and their places in the queue, in a real browser. Hooks hold the runs in the place of VMs.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { hostOfHeldRuns } from '../service/queue-support.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, sees, useBrowser } from './support.ts'

const open = useBrowser()

async function openQueue() {
  const { held, home, host } = await hostOfHeldRuns('page-queue')
  const served = await serveHost(host)
  const opened = await open(`${served.service.url}/#token=${served.token}`)
  return { ...served, ...opened, held, home }
}

it('a run that waits shows its place in the queue, in the list and on its own page, as runs before it end [H.02 S4.12]', async () => {
  const { client, page, held, complaints, service } = await openQueue()
  const start = async (prompt: string) => (await client.call('createRun', { body: { prompt } })).id
  const [first, second, third] = [await start('one'), await start('two'), await start('three')]
  await sees(page, /place 1 of 2 in the queue/)
  await sees(page, /place 2 of 2 in the queue/)
  await page.goto(`${service.url}/#/runs/${third}`)
  await sees(page, 'The run waits for its turn: place 2 of 2 in the queue')
  expect(await axeFindings(page)).toEqual([])
  await held.release(first)
  await sees(page, 'The run waits for its turn: place 1 of 1 in the queue')
  await held.release(second)
  await expect.poll(() => page.getByText('waits for its turn').count()).toBe(0)
  expect(complaints).toEqual([])
}, 120_000)

it('an address that changes while the first view is drawn is followed [H.02]', async () => {
  const { page } = await openQueue()
  await page.addInitScript({
    content: `
      const observer = new MutationObserver(() => {
        if (document.querySelector('#main h1')?.textContent !== 'Runs') return
        observer.disconnect()
        location.hash = '#/new'
      })
      observer.observe(document, { childList: true, subtree: true })`,
  })
  await page.reload()
  await page.getByRole('heading', { name: 'New run', level: 1 }).waitFor()
}, 120_000)

it('a folder of this device is uploaded for a run, with names of any length; a refusal does not upload it again [H.02 V.06]', async () => {
  const { page, client, complaints, service, home } = await openQueue()
  const folder = path.join(await temporaryFolder('chosen'), 'site')
  const long = `${'é'.repeat(60)}/${'b'.repeat(150)}.txt`
  const files = {
    'index.html': '<h1>Hi</h1>\n',
    'empty.txt': '',
    [long]: 'x'.repeat(1_024),
    'deep/b.txt': 'b',
  }
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(folder, name)), { recursive: true })
    await writeFile(path.join(folder, name), text)
  }
  const bytes = Uint8Array.from({ length: 70_001 }, (_, at) => at % 251)
  await writeFile(path.join(folder, 'deep/c.bin'), bytes)
  await page.goto(`${service.url}/#/new`)
  await page.getByLabel('Task', { exact: true }).fill('Tidy the site')
  await page.getByLabel('Files to work on').selectOption('upload')
  await page.getByLabel('Folder to upload').setInputFiles(folder)
  let uploads = 0
  page.on('request', (request) => {
    if (request.url().endsWith('/v1/workspaces')) uploads += 1
  })
  await page.getByText('Limits and model').click()
  // No provider has this name.
  await page.getByLabel('Model').fill('nobody/model')
  expect(await axeFindings(page)).toEqual([])
  await page.getByRole('button', { name: 'Start run' }).click()
  await sees(page, /nobody/)
  expect(uploads).toBe(1)
  await page.getByLabel('Model').fill('')
  await page.getByRole('button', { name: 'Start run' }).click()
  await page.getByRole('heading', { name: 'Tidy the site', level: 1 }).waitFor()
  const { runs } = await client.call('listRuns', {})
  const { workspace = '' } = runs[0] ?? {}
  expect(path.dirname(workspace)).toBe(path.join(home, 'state/service/workspaces'))
  const { 'deep/c.bin': _, ...texts } = await readFiles(workspace)
  expect(texts).toEqual(files)
  expect(await readFile(path.join(workspace, 'deep/c.bin'))).toEqual(Buffer.from(bytes))
  expect(uploads).toBe(1)
  expect(complaints).toEqual([])
}, 120_000)
