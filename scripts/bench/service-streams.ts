/**
 * Event streams of the service. Its clients are in another process. An event is a pause of the run or its end: from the
 * request until the last client has it. The floor is a bare Fastify that writes the same text to as many responses.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import Fastify from 'fastify'
import { RunRecord } from '../../host/journal/run-record.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import type { Bench, Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { endRun, serve, startRun } from './served.ts'
import type { ClientsOrder, ClientsReport } from './service-clients.ts'

const CLIENTS = 1_000
const TICKS = repeats(50)
const SLOW_CLIENTS = 50
/** Of 4 KiB each. */
const SLOW_EVENTS = 4_000
const SETTLE_MS = 1_000
const MIB = 1024 * 1024

/** Clients of one stream, in a process of their own. */
class Clients implements AsyncDisposable {
  readonly #child = fork(path.join(import.meta.dirname, 'service-clients.ts'), {
    execArgv: ['--conditions=caisson-source'],
  })

  async connect(order: ClientsOrder): Promise<void> {
    this.#child.send(order)
    await this.#report('connected')
  }

  /** Resolves with the time of this machine at which the last client had the next event. */
  async everyOneHasNext(): Promise<number> {
    return (await this.#report('event')).at
  }

  async #report(kind: ClientsReport['kind']): Promise<ClientsReport> {
    for (;;) {
      const [report] = (await once(this.#child, 'message')) as [ClientsReport]
      if (report.kind === 'failed') throw new Error(`the clients failed: ${report.message}`)
      if (report.kind === kind) return report
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { exitCode, signalCode } = this.#child
    // Clients that the service has left end by themselves.
    if (exitCode !== null || signalCode !== null) return
    const gone = once(this.#child, 'exit')
    this.#child.kill()
    await gone
  }
}

export async function measureStreams(bench: Bench): Promise<Figures> {
  const bare = await measureBare()
  const served = await measureServed(bench)
  const [streamMs, bareStreamMs] = [figureOf(served), figureOf(bare)]
  return { streamMs, bareStreamMs, streamToBare: round(streamMs.p50 / bareStreamMs.p50) }
}

async function measureServed(bench: Bench): Promise<number[]> {
  await using served = await serve(bench)
  const run = await startRun(served, 'Run the command `sleep 600`')
  const params = { run }
  for await (const item of served.client.events(run))
    if (item.source === 'agent' && item.event.type === 'tool-start') break
  await using clients = new Clients()
  reportProgress(`${CLIENTS} clients of an event stream`)
  // From the next event on.
  const { next } = await served.client.call('listEvents', { params, query: { limit: '10000' } })
  const stream = `${served.service.url}/v1/runs/${run}/events?from=${next}`
  await clients.connect({ url: stream, token: served.token, count: CLIENTS, reads: true })
  const times = await timeTicks(clients, async (tick) => {
    await served.client.call(tick % 2 === 0 ? 'pauseRun' : 'unpauseRun', { params })
  })
  await endRun(served, run)
  return times
}

async function measureBare(): Promise<number[]> {
  const app = Fastify()
  const open = new Set<ServerResponse>()
  app.get('/events', (_, reply) => {
    reply.hijack()
    reply.raw.writeHead(200, { 'content-type': 'text/event-stream' })
    reply.raw.flushHeaders()
    open.add(reply.raw)
  })
  app.post('/tick', async () => {
    const data = JSON.stringify({ source: 'host', seq: 1, at: Date.now(), event: { type: 'pause-request' } })
    for (const response of open) response.write(`id: 1\nevent: event\ndata: ${data}\n\n`)
    return {}
  })
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  try {
    await using clients = new Clients()
    reportProgress(`${CLIENTS} clients of a bare server`)
    await clients.connect({ url: `${url}/events`, token: '', count: CLIENTS, reads: true })
    return await timeTicks(clients, async () => {
      await (await fetch(`${url}/tick`, { method: 'POST' })).text()
    })
  } finally {
    for (const response of open) response.destroy()
    await app.close()
  }
}

async function timeTicks(clients: Clients, tick: (index: number) => Promise<void>): Promise<number[]> {
  const times: number[] = []
  for (let index = 0; index <= TICKS; index += 1) {
    const startedAt = performance.timeOrigin + performance.now()
    const [at] = await Promise.all([clients.everyOneHasNext(), tick(index)])
    // The first one finds code that was never used.
    if (index > 0 || TICKS === 1) times.push(at - startedAt)
  }
  return times
}

/** What a client that stops to read holds of an ended run with a long journal. */
export async function measureSlowReaders(bench: Bench): Promise<Figures> {
  await using served = await serve(bench)
  const { runs } = served.host
  const run = newRunId()
  {
    await using record = await RunRecord.open(await runs.create(run))
    const text = 'x'.repeat(4 * 1024)
    for (let n = 1; n <= SLOW_EVENTS; n += 1)
      await record.agent('root', n, { type: 'note', level: 'info', text })
  }
  await using clients = new Clients()
  const stream = `${served.service.url}/v1/runs/${run}/events`
  const before = process.memoryUsage().rss
  reportProgress(`${SLOW_CLIENTS} clients that do not read`)
  await clients.connect({ url: stream, token: served.token, count: SLOW_CLIENTS, reads: false })
  const held: number[] = []
  for (let look = 0; look < 5; look += 1) {
    await sleep(SETTLE_MS)
    held.push((process.memoryUsage().rss - before) / MIB / SLOW_CLIENTS)
  }
  return { slowReaderMiB: figureOf(held) }
}
