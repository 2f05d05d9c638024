// Ten thousand events that stream into the page of a run: how long its thread is ever busy at once.
import { expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { note, runId, runStart } from '../../host/test/support/run-values.ts'
import { serveHost } from '../service/support.ts'
import { sees, useBrowser } from './support.ts'

const open = useBrowser()

/** Known work: sorts the same numbers. Its median time, ms, is what this machine needs now. */
const measureKnownWork = `(() => {
  const times = Array.from({ length: 9 }, () => {
    const numbers = Float64Array.from({ length: 200_000 }, (_, at) => (at * 7919) % 200_003)
    const since = performance.now()
    numbers.sort()
    return performance.now() - since
  })
  return times.sort((a, b) => a - b)[4]
})()`

it('ten thousand events keep the thread of the page busy at once for no longer than a small, known work [H.02]', async () => {
  const run = await runAtWork()
  await run.record.host(runStart)
  const served = await serveHost(new Host({ env: run.env }))
  const { page } = await open(`${served.service.url}/#token=${served.token}`)
  await page.goto(`${served.service.url}/#/runs/${runId}`)
  await sees(page, 'Activity')
  const before = await page.evaluate(measureKnownWork)
  await page.evaluate(`{
    window.longTasks = []
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) longTasks.push(duration)
    }).observe({ type: 'longtask' })
  }`)
  const began = performance.now()
  for (let n = 1; n <= 10_000; n += 1) await run.record.agent('root', n, note(`entry ${n}`))
  await sees(page, 'entry 10000')
  const took = performance.now() - began
  const tasks = (await page.evaluate('longTasks')) as number[]
  const after = await page.evaluate(measureKnownWork)
  console.log({ before, after, took, count: tasks.length, longest: tasks.sort((a, b) => b - a).slice(0, 10) })
}, 120_000)
