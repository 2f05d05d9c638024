// Images that a model looked at, on the page in a real browser.
import { createHash } from 'node:crypto'
import { appendFile } from 'node:fs/promises'
import type { Page } from 'playwright-core'
import { expect, it } from 'vitest'
import type { ImageRef } from '#specs/protocol/image.ts'
import { png } from '#specs/testing/images.ts'
import { Host } from '../../host/index.ts'
import { runThatTold } from '../../host/test/blame/support.ts'
import { changedRunId } from '../../host/test/support/changed-run.ts'
import { recordImages } from '../../host/test/support/recorded-images.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId, runStart } from '../../host/test/support/run-values.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, countOf, sees, useBrowser } from './support.ts'

const open = useBrowser()
const evil = '<img src=x onerror="alert(1)">.png'

function refOf(bytes: Uint8Array, width: number, height: number): ImageRef {
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  return { sha256, type: 'image/png', width, height, sizeBytes: bytes.length }
}

/** Color of the middle of the first canvas within an element. */
async function colorIn(page: Page, selector: string): Promise<number[]> {
  return await page
    .locator(`${selector} canvas`)
    .first()
    .evaluate((found) => {
      const canvas = found as unknown as {
        width: number
        height: number
        getContext(kind: '2d'): { getImageData(...at: number[]): { data: Uint8ClampedArray } }
      }
      const { data } = canvas.getContext('2d').getImageData(canvas.width / 2, canvas.height / 2, 1, 1)
      return [...data]
    })
}

/** A picture in one color that the browser itself makes. */
async function paint(): Promise<Buffer> {
  const { page } = await open('about:blank', { viewport: { width: 600, height: 300 } })
  await page.evaluate('document.documentElement.style.background = "rgb(10, 120, 200)"')
  return await page.screenshot()
}

it('an image is drawn in its entry and enlarged by the keyboard; what cannot be shown is text [G.09 H.02]', {
  timeout: 120_000,
}, async () => {
  const picture = await paint()
  // Whole by its header and end, without a pixel.
  const broken = png(64, 64)
  const missing = png(1, 1)
  const { host } = await runThatTold({ f: '1' }, { f: '2' }, async (told) => {
    await told.call('read_file', { path: 'chart.png' }, { image: refOf(picture, 600, 300) })
    await told.call('read_file', { path: evil }, { image: refOf(broken, 64, 64) })
    await told.call('read_file', { path: 'gone.png' }, { image: refOf(missing, 1, 1) })
  })
  const { exchanges } = host.runs.paths(changedRunId)
  await recordImages(exchanges, changedRunId, [
    ['image/png', picture],
    ['image/png', broken],
  ])
  await appendFile(exchanges, '{"kind":"full"}\n')
  const served = await serveHost(host)
  const { page, complaints } = await open(`${served.service.url}/#token=${served.token}`)
  await page.getByRole('heading', { name: 'Runs' }).waitFor()
  await page.goto(`${served.service.url}/#/runs/${changedRunId}`)
  const words = /chart\.png: PNG, 600 × 300 pixels, /
  const enlarge = page.getByRole('button', { name: words })
  await expect.poll(() => colorIn(page, '.shown-image')).toEqual([10, 120, 200, 255])
  await sees(page, words)
  await sees(page, `${evil}: PNG, 64 × 64 pixels, ${broken.length} B · The browser cannot show it`)
  await sees(page, /gone\.png: .* · The recording does not have it/)
  expect(await countOf(page, '.shown-image canvas')).toBe(1)
  expect(await axeFindings(page)).toEqual([])

  await enlarge.focus()
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog', { name: 'Image of the run' })
  await dialog.getByRole('img', { name: words }).waitFor()
  await expect.poll(() => colorIn(page, 'dialog')).toEqual([10, 120, 200, 255])
  expect(await axeFindings(page)).toEqual([])
  await page.keyboard.press('Escape')
  await expect.poll(() => countOf(page, 'dialog')).toBe(0)
  expect(await page.evaluate('document.activeElement.ariaLabel')).toMatch(words)
  expect(await countOf(page, '.log img')).toBe(0)
  expect(complaints).toEqual([])
})

it('an image of a run at work is drawn once the model is asked with it [G.09 H.02]', {
  timeout: 120_000,
}, async () => {
  const picture = await paint()
  const run = await runAtWork()
  const image = refOf(picture, 600, 300)
  await run.record.host({ ...runStart, images: [{ path: 'mockup.png', image }] })
  const served = await serveHost(new Host({ env: run.env }))
  const { page, complaints } = await open(`${served.service.url}/#token=${served.token}`)
  await page.getByRole('heading', { name: 'Runs' }).waitFor()
  await page.goto(`${served.service.url}/#/runs/${runId}`)
  await sees(page, /mockup\.png: .* · The model has not been asked with it yet/)
  await recordImages(run.record.paths.exchanges, runId, [['image/png', picture]])
  await page.getByRole('button', { name: /mockup\.png/ }).waitFor()
  await expect.poll(() => colorIn(page, '.shown-image')).toEqual([10, 120, 200, 255])
  expect(complaints).toEqual([])
})
