// Event streams for clients that read slowly, and the bound of each caller.
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { get, type IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'
import { noUsage } from '#specs/protocol/task.ts'
import { Host } from '../../host/index.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import { beginRun } from '../../host/test/support/begun-run.ts'
import { placeOfRuns } from '../../host/test/support/changed-run.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { holderOf } from './keys-support.ts'
import { serveHost } from './support.ts'

/** Of 4 KiB each: more than the buffers between service and client hold. */
const events = 4_000

it('the stream of an ended run reads its journal once, as the client reads, from any event on [H.02]', async () => {
  const { host } = await placeOfRuns({})
  const { service, token } = await serveHost(host)
  const run = newRunId()
  const { record, paths } = await beginRun(host, run, '/nowhere')
  {
    await using _ = record
    const note = { type: 'note', level: 'info', text: 'x'.repeat(4_096) } as const
    for (let n = 1; n < events - 1; n += 1) await record.agent('root', n, note)
    const end = { outcome: 'failed', reason: 'internal', message: '', summary: '' } as const
    await record.host({ type: 'run-end', ...end, usage: noUsage, durationMs: 1 })
  }
  const open = async (from: number): Promise<IncomingMessage> => {
    const headers = { authorization: `Bearer ${token}`, accept: 'text/event-stream' }
    const asked = get(`${service.url}/v1/runs/${run}/events?from=${from}`, { headers, agent: false })
    const [response] = (await once(asked, 'response')) as [IncomingMessage]
    return response
  }
  const late = await open(events)
  expect(idsIn(await text(late))).toEqual([events])
  const slow = await open(2)
  await once(slow, 'readable')
  // Whatever would look for the journal again finds none.
  await rm(paths.directory, { recursive: true })
  const got = await text(slow)
  expect(idsIn(got)).toEqual(Array.from({ length: events - 1 }, (_, at) => at + 2))
  expect(got).toMatch(/event: end\ndata: \{\}\n\n$/)
})

it('a key has at most 32 event streams open; the owner and other keys have theirs meanwhile [H.02 S4.11]', async () => {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const key = await holderOf(host, served, 'greedy', { scopes: ['admin'] })
  const other = await holderOf(host, served, 'other', { scopes: ['admin'] })
  const open = async (secret: string): Promise<IncomingMessage> => {
    const headers = { authorization: `Bearer ${secret}`, accept: 'text/event-stream' }
    const asked = get(`${served.service.url}/v1/runs/${runId}/events`, { headers, agent: false })
    const [response] = (await once(asked, 'response')) as [IncomingMessage]
    response.on('error', () => undefined)
    onTestFinished(() => void response.destroy())
    return response
  }
  const streams = await Promise.all(Array.from({ length: 32 }, () => open(key.secret)))
  expect(streams.map(({ statusCode }) => statusCode)).toEqual(streams.map(() => 200))
  const refused = await open(key.secret)
  expect([refused.statusCode, refused.headers['retry-after']]).toEqual([429, '10'])
  expect(JSON.parse(await text(refused))).toMatchObject({
    code: 'too_many_requests',
    detail: 'the key has 32 event streams or waiting requests open, and may not have more',
  })
  for (const secret of [other.secret, served.token]) expect((await open(secret)).statusCode).toBe(200)
  streams[0]?.destroy()
  await expect.poll(async () => (await open(key.secret)).statusCode).toBe(200)
  expect((await open(key.secret)).statusCode).toBe(429)
})

function idsIn(stream: string): number[] {
  return [...stream.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))
}
