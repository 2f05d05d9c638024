// Why a line is there, asked on the page in a real browser.
import { expect, it } from 'vitest'
import { runThatTold } from '../../host/test/blame/support.ts'
import { changedRunId } from '../../host/test/support/changed-run.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, countOf, sees, useBrowser } from './support.ts'

const open = useBrowser()
const evil = '<img src=x onerror="alert(1)">\u202e'

it('a changed line is asked why: by the keyboard, on a phone, as text, and axe finds nothing [W.09 H.02]', {
  timeout: 120_000,
}, async () => {
  const [one, two] = ['a\nb\nc\n', `a\nB\nc\n`]
  const after = { f: `${two}${evil}\n` }
  const { host } = await runThatTold({ f: one }, after, async (told) => {
    await told.host({ type: 'steer-request', messageId: 'm1', text: `write big ${evil}`, by: 'Ada' })
    await told.event('root', { type: 'steer-seen', stepId: 'work', messageIds: ['m1'] })
    await told.turn(1, ['c1'])
    await told.edit([['f', one, two]])
    await told.command(`echo '${evil}' >> f`)
    await told.command('true')
  })
  const served = await serveHost(host)
  const { page, complaints } = await open(`${served.service.url}/#token=${served.token}`, {
    viewport: { width: 360, height: 740 },
    hasTouch: true,
    isMobile: true,
  })
  await page.getByRole('heading', { name: 'Runs' }).waitFor()
  await page.goto(`${served.service.url}/#/runs/${changedRunId}`)
  await page.getByRole('tab', { name: 'Changes' }).click()
  await page.getByRole('button', { name: 'removed, why line 2' }).waitFor()
  expect(await axeFindings(page)).toEqual([])
  // One tab stop; the arrows reach the other lines.
  expect(await countOf(page, '.why')).toBe(3)
  expect(await countOf(page, '.why[tabindex="0"]')).toBe(1)
  await page.locator('.why[tabindex="0"]').focus()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await page.getByRole('dialog', { name: 'Why this line is there' }).waitFor()
  await page.getByRole('heading', { name: /^edit_file/ }).waitFor()
  for (const text of ['turn 1', 'thought 1', 'Message of Ada', 'None was asked.']) await sees(page, text)
  expect(await countOf(page, 'dialog img')).toBe(0)
  expect(await axeFindings(page)).toEqual([])
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360)
  await page.keyboard.press('Escape')
  await expect.poll(() => countOf(page, 'dialog')).toBe(0)
  expect(await page.evaluate('document.activeElement.ariaLabel')).toBe('added, why line 2')
  await page.keyboard.press('End')
  await page.keyboard.press('Enter')
  await sees(page, /It is one of 2 calls/)
  expect(await countOf(page, '.why-call')).toBe(2)
  expect(await axeFindings(page)).toEqual([])
  expect(complaints).toEqual([])
})
