// `caisson run --web` without a service, in a real browser: the page of the run, from its question to its changes.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { cliPlace, runArguments } from '../../host/test/support/cli.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { sees, useBrowser } from './support.ts'

const open = useBrowser()

it('a run with --web is answered on its page; in a terminal the address signs in, elsewhere the changes wait for the page [H.02 V.09]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
  const first = place.startInTerminal(...runArguments(place, 'Delete a.txt', '--web'))
  await first.sees('Allow it?')
  const [, address = ''] = /Page: (http:\S+#token=\S+&run=run-[0-9a-f]{20})/.exec(first.output()) ?? []
  const { page, complaints } = await open(address)
  await page.getByRole('button', { name: 'Yes, this once' }).click()
  expect(page.url()).toMatch(/\/#\/runs\/run-[0-9a-f]{20}$/)
  await first.sees('Apply the changes')
  first.type('1\r')
  expect((await first.ended).code).toBe(0)
  expect(await readFiles(place.workspace)).toEqual({ 'b.txt': 'b\n' })

  const second = place.start(...runArguments(place, 'Delete b.txt', '--web'))
  await expect.poll(() => second.errors(), { timeout: 120_000 }).toMatch(/Page: http:\S+\n/)
  const [, url = '', view = ''] =
    /Page: (http:[^#\s]+)#\/runs\/(run-[0-9a-f]{20})\n/.exec(second.errors()) ?? []
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  expect(second.errors() + second.output()).not.toContain(token)
  const { page: next, complaints: others } = await open(`${url}#token=${token}&run=${view}`)
  next.setDefaultTimeout(120_000)
  await next.getByRole('button', { name: 'Yes, this once' }).click()
  await expect.poll(() => second.errors(), { timeout: 120_000 }).toContain('1 change to review')
  await next.getByRole('tab', { name: 'Changes' }).click()
  await next.getByRole('button', { name: /^Apply/ }).click()
  await sees(next, /^Applied 1 path/)
  expect(await readFiles(place.workspace)).toEqual({})
  second.child.kill('SIGINT')
  await second.ended
  expect([...complaints, ...others]).toEqual([])
}, 300_000)
