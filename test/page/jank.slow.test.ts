// Ten thousand events that stream into the page of a run: how long its thread is ever busy at once.
import type { CDPSession } from 'playwright-core'
import { expect, it } from 'vitest'
import * as z from 'zod'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { note, runId, runStart } from '../../host/test/support/run-values.ts'
import { serveHost } from '../service/support.ts'
import { sees, useBrowser } from './support.ts'

const open = useBrowser()

/** What a browser traces, µs; `tdur` is the processor time of the thread, whatever else the machine does. */
const Traced = z.object({
  name: z.string(),
  pid: z.number(),
  tid: z.number(),
  ts: z.number(),
  dur: z.number().optional(),
  tdur: z.number().optional(),
})
type Traced = z.infer<typeof Traced>

/** A task of the page's thread that takes about 100 ms where nothing else runs. */
const knownWork = `{
  performance.mark('known-work')
  for (let round = 0; round < 3; round += 1)
    Float64Array.from({ length: 200_000 }, (_, at) => (at * 7919) % 200_003).sort()
}`

async function trace(browser: CDPSession, work: () => Promise<unknown>): Promise<Traced[]> {
  const traced: Traced[] = []
  browser.on('Tracing.dataCollected', ({ value }) => traced.push(...z.array(Traced).parse(value)))
  await browser.send('Tracing.start', {
    transferMode: 'ReportEvents',
    categories: 'toplevel,blink.user_timing',
  })
  await work()
  const complete = new Promise((resolve) => browser.once('Tracing.tracingComplete', resolve))
  await browser.send('Tracing.end')
  await complete
  return traced
}

it('ten thousand events that stream keep the thread of the page busy at once for less than a known work of 100 ms [H.02]', async ({
  annotate,
}) => {
  const run = await runAtWork()
  await run.record.host(runStart)
  const served = await serveHost(new Host({ env: run.env }))
  const { page } = await open(`${served.service.url}/#token=${served.token}`)
  await page.goto(`${served.service.url}/#/runs/${runId}`)
  await sees(page, 'Activity')
  const traced = await trace(await page.context().newCDPSession(page), async () => {
    await page.evaluate(knownWork)
    for (let n = 1; n <= 10_000; n += 1) await run.record.agent('root', n, note(`entry ${n}`))
    await sees(page, 'entry 10000')
    await page.evaluate(knownWork)
  })
  const marks = traced.filter(({ name }) => name === 'known-work')
  const tasks = traced.filter(
    ({ name, pid, tid }) =>
      name === 'ThreadControllerImpl::RunTask' && pid === marks[0]?.pid && tid === marks[0].tid,
  )
  const isKnown = ({ ts, dur = 0 }: Traced) => marks.some((mark) => ts <= mark.ts && mark.ts <= ts + dur)
  const known = tasks.filter(isKnown).map(({ tdur = 0 }) => tdur / 1_000)
  const streamed = tasks.filter((task) => !isKnown(task)).map(({ tdur = 0 }) => tdur / 1_000)
  const longest = Math.max(...streamed)
  const over = streamed.filter((ms) => ms > 50).length
  await annotate(
    `the longest of ${streamed.length} tasks takes ${longest.toFixed(1)} ms of the processor, ${over} more than 50 ms; the known work ${known.map((ms) => ms.toFixed(1)).join(' and ')} ms`,
  )
  expect([known.length, streamed.length > 100]).toEqual([2, true])
  expect(longest).toBeLessThan(Math.min(...known))
}, 120_000)
