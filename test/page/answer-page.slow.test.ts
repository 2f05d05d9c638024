// The page of a link in a real browser of a phone's width, over the real service and a run without a VM.
import { expect, it } from 'vitest'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { answerWith, noticeTimes, notifyingHost, receiveWebhooks } from '../service/notify-support.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, sees, useBrowser } from './support.ts'

const open = useBrowser()
const phone = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }

it('a link shows its question on a phone, answers it once, and says so afterwards [H.02]', async () => {
  const run = await runAtWork()
  const { got, url } = await receiveWebhooks(answerWith(200))
  const served = await serveHost(notifyingHost(run.env, url), {
    noticeTimes,
    publicUrl: 'https://caisson.example.com',
  })
  const asked = run.queue.ask({
    ...{ ...someCall, approvalId: 'a1', tool: 'delete_file', arguments: '{"path":"old.txt"}' },
    preview: 'the file "old.txt" <script>alert(1)</script>',
  })
  await expect.poll(() => got.length).toBe(1)
  const { link } = JSON.parse(got[0]?.body ?? '').data as { link: string }
  const address = link.replace('https://caisson.example.com', served.service.url)
  const { page, complaints } = await open(address, phone)
  await sees(page, 'delete_file')
  await sees(page, '<script>alert(1)</script>')
  expect(await axeFindings(page)).toEqual([])
  const width = await page.evaluate('document.documentElement.scrollWidth')
  expect(width).toBeLessThanOrEqual(phone.viewport.width)
  // Nothing broader than this once.
  await page.getByRole('button', { name: 'More answers and details' }).tap()
  expect(await page.getByRole('button', { name: /run/i }).count()).toBe(0)
  await page.getByRole('button', { name: 'Yes, this once' }).tap()
  await sees(page, 'Your answer counts')
  expect(await axeFindings(page)).toEqual([])
  expect(await asked).toMatchObject({ decision: 'allow' })
  await page.reload()
  await sees(page, 'allowed by link of webhook ops')
  expect(await axeFindings(page)).toEqual([])
  await page.goto(`${served.service.url}/answer#caisson-link_x.y`)
  await page.reload()
  await sees(page, 'no link to a question')
  // Neither the browser's storage nor the log has the link.
  const stored = await page.evaluate('JSON.stringify([{ ...localStorage }, { ...sessionStorage }])')
  expect(stored).not.toContain('caisson-link_')
  expect(JSON.stringify(served.logged)).not.toContain('caisson-link_')
  expect(served.logged).toContainEqual(expect.objectContaining({ path: '/answer', status: 200 }))
  expect(complaints).toEqual([])
}, 120_000)
