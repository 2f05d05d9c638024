/**
 * Requests to the service beside those to a bare Fastify: for its health, for a run and for a list of runs. Alternating, since
 * the machine has other work; the clients are in a process of their own.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import Fastify from 'fastify'
import { RunRecord } from '../../host/journal/run-record.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import type { Bench, Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { serve } from './served.ts'
import type { LoadOrder, LoadReport } from './service-requests.ts'

const ROUNDS = repeats(5)
const LISTED_RUNS = 20

export async function measureLoad(bench: Bench): Promise<Figures> {
  await using served = await serve(bench)
  const { runs } = served.host
  const ids = Array.from({ length: LISTED_RUNS }, newRunId)
  for (const id of ids) {
    await using record = await RunRecord.open(await runs.create(id))
    await record.agent('root', 1, { type: 'note', level: 'info', text: 'x' })
  }
  const bare = Fastify()
  bare.get('/healthz', async () => ({ status: 'running', version: 'bench' }))
  const bareUrl = await bare.listen({ host: '127.0.0.1', port: 0 })
  const { url } = served.service
  const orders: Record<string, LoadOrder> = {
    bare: { url: `${bareUrl}/healthz`, token: '' },
    health: { url: `${url}/healthz`, token: '' },
    run: { url: `${url}/v1/runs/${ids[0]}`, token: served.token },
    list: { url: `${url}/v1/runs?limit=${LISTED_RUNS}`, token: served.token },
  }
  const rates = new Map(Object.keys(orders).map((name) => [name, [] as number[]]))
  try {
    for (let count = -1; count < ROUNDS; count += 1)
      for (const [name, order] of Object.entries(orders)) {
        reportProgress(`requests, round ${count + 1} of ${ROUNDS}: ${name}`)
        const rate = await rateOf(order)
        // The first round finds code that was never used.
        if (count >= 0) rates.get(name)?.push(rate)
      }
  } finally {
    await bare.close()
  }
  const of = (name: string) => figureOf(rates.get(name) ?? [])
  const [bareRate, healthRate, runRate, listRate] = [of('bare'), of('health'), of('run'), of('list')]
  return {
    bareRequestsPerS: bareRate,
    healthRequestsPerS: healthRate,
    runRequestsPerS: runRate,
    listRequestsPerS: listRate,
    healthToBare: round(healthRate.p50 / bareRate.p50),
  }
}

/** Requests that were answered in a second. @throws when one was answered with an error */
async function rateOf(order: LoadOrder): Promise<number> {
  const child = fork(path.join(import.meta.dirname, 'service-requests.ts'), {
    execArgv: ['--conditions=caisson-source'],
  })
  const ended = once(child, 'exit')
  child.send(order)
  const [report] = (await once(child, 'message')) as [LoadReport]
  await ended
  if (report.failed > 0)
    throw new Error(`${report.failed} of ${report.answered} requests to ${order.url} failed`)
  return report.perSecond
}
