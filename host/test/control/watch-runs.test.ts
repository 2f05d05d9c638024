// One feed over all runs of a user.
import { expect, it } from 'vitest'
import { Host } from '../../host.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { runAtWork } from '../support/run-at-work.ts'
import { runId, runStart } from '../support/run-values.ts'

it('one feed has the runs at work from their beginning, those that start later, and none that ended before [V.06 S1.10]', async () => {
  const work = await runAtWork()
  const host = new Host({ env: work.env })
  const endedRun = async (id: string) => {
    await using record = await RunRecord.open(await host.runs.create(id))
    await record.host(runStart)
  }
  await endedRun('run-0000000000000000000a')
  await work.record.host(runStart)
  const seen: string[] = []
  const stop = new AbortController()
  const watching = (async () => {
    for await (const item of host.watchRuns({ signal: stop.signal })) seen.push(nameOf(item))
  })()
  await expect.poll(() => seen).toEqual([`${runId} run-start`])
  await work.record.host({ type: 'pause-request', by: 'x' })
  await expect.poll(() => seen.at(-1)).toBe(`${runId} pause-request`)
  await endedRun('run-0000000000000000000b')
  await expect.poll(() => seen.slice(2)).toEqual(['run-0000000000000000000b run-start'])
  stop.abort()
  await watching
})

function nameOf(item: FeedItem): string {
  return `${item.runId} ${item.source === 'delta' ? item.delta.type : item.event.type}`
}
