// What fronts of the service do by its routes, before a service whose answers take a moment.
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { A2aHandler } from '../a2a/request-handler.ts'
import type { RunService } from '../run-view/run-view.ts'
import { sendOnce } from '../run-view/send-once.ts'

type Given = Readonly<{
  params?: { run: string }
  query?: { from?: number; limit?: number; cursor?: string }
  body?: never
}>

/** A service with these routes alone. */
function serviceOf(routes: Readonly<Record<string, (given: Given) => unknown>>): RunService {
  const call = async (name: string, given: Given): Promise<unknown> => {
    await sleep(1)
    const route = routes[name]
    if (route === undefined) throw new Error(`no route ${name} was expected`)
    return route(given)
  }
  return { call } as unknown as RunService
}

it('identical messages at once are sent once, and again where the first was not taken [H.03]', async () => {
  const journal: unknown[] = []
  let attempts = 0
  const service = serviceOf({
    listEvents: ({ query: { from = 1 } = {} }) => ({
      events: journal.slice(from - 1),
      next: journal.length + 1,
    }),
    sendMessage: ({ body }) => {
      attempts += 1
      if (attempts === 1) throw new Error('lost')
      journal.push({ event: { type: 'steer-request', ...(body as unknown as object) } })
    },
  })
  const send = () => sendOnce(service, 'run-1', 'Use tabs', 'message m1')
  const sent = await Promise.allSettled([send(), send(), send(), send()])
  expect(sent.map(({ status }) => status)).toEqual(['rejected', 'fulfilled', 'fulfilled', 'fulfilled'])
  expect([attempts, journal.length]).toEqual([2, 1])
})

it('a list of tasks with artifacts has some megabytes at most, and the token of its next page [H.03]', async () => {
  const ids = Array.from({ length: 45 }, (_, at) => `run-${at}`)
  const runOf = (id: string) => ({
    ...{
      id,
      status: 'completed',
      metadata: {},
      changes: 1,
      costUsd: null,
      pendingApprovals: 0,
      startedAt: 1,
    },
    end: { outcome: 'completed', message: '' },
  })
  const service = serviceOf({
    listRuns: ({ query: { limit = 50, cursor = '0' } = {} }) => {
      const next = Number(cursor) + limit
      const runs = ids.slice(Number(cursor), next).map(runOf)
      return next < ids.length ? { runs, nextCursor: String(next) } : { runs }
    },
    getRun: ({ params }) => runOf(params?.run ?? ''),
    getResult: () => ({ summary: 'Done.', changes: { entries: 1 } }),
    getPatch: () => 'x'.repeat(256 * 1024),
  })
  const { signal } = new AbortController()
  const clean = { line: String, block: String } as never
  const handler = new A2aHandler({ service, clean, signal, card: {} as never, log: () => undefined })
  const listed = {
    tenant: '',
    contextId: '',
    status: 0,
    statusTimestampAfter: undefined,
    includeArtifacts: true,
  }
  const seen: string[] = []
  let pages = 0
  for (let pageToken = ''; pages === 0 || pageToken !== ''; pages += 1) {
    const page = await handler.listTasks({ ...listed, pageToken, pageSize: 100 })
    expect(Buffer.byteLength(JSON.stringify(page))).toBeLessThan(4.5 * 1024 * 1024)
    seen.push(...page.tasks.map(({ id }) => id))
    pageToken = page.nextPageToken
  }
  expect(seen).toEqual(ids)
  expect(pages).toBe(3)
  expect((await handler.listTasks({ ...listed, pageToken: '', pageSize: 3 })).tasks).toHaveLength(3)
})
