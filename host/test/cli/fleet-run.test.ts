// A run of a fleet as commands follow it. The service is a server of the test on a Unix socket.
import { createServer, type ServerResponse } from 'node:http'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'
import type { HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { FleetRun } from '../../cli/fleet-run.ts'
import { SocketClient } from '../../cli/socket-client.ts'
import { someCall } from '../support/run-at-work.ts'
import { runId } from '../support/run-values.ts'

const digest = 'd'.repeat(64)
const { runId: _, ...call } = { ...someCall, tool: 'delete_file', arguments: '{}' }

function asks(approvalId: string): HostEvent {
  return { type: 'approval-request', kind: 'cooperative', request: { ...call, approvalId }, digest }
}

function decides(approvalId: string): HostEvent {
  return { type: 'approval-decision', approvalId, decision: 'allow', by: 'rule', scope: 'once' } as HostEvent
}

const end: HostEvent = {
  ...{ type: 'run-end', outcome: 'completed', reason: 'completed', message: '', summary: '' },
  ...{ usage: noUsage, durationMs: 1 },
}

/** What a service does for one run. */
class Served {
  readonly events: JournalEvent[] = []
  /** Questions that wait. */
  readonly waiting = new Set<string>()
  readonly posted: unknown[] = []
  /** How often a stream was asked for, and where it begins. */
  readonly streams: number[] = []
  /** What it says to an answer. Undefined: it counts. */
  refusal: Readonly<Record<string, unknown>> | undefined
  #stream: ServerResponse | undefined

  push(event: HostEvent): void {
    const seq = this.events.length + 1
    const hash = String(seq).padStart(64, '0')
    this.events.push({
      source: 'host',
      runId,
      seq,
      at: seq,
      prev: '0'.repeat(64),
      hash,
      event,
    } as JournalEvent)
    this.#stream?.write(frameOf(this.events.at(-1)))
  }

  cut(): void {
    this.#stream?.destroy()
  }

  async start(): Promise<{ readonly run: FleetRun; readonly stop: () => Promise<void>; socket: string }> {
    const socket = path.join(await temporaryFolder('fleet-run'), 'service.sock')
    const stop = await this.listen(socket)
    return { run: new FleetRun(new SocketClient({ socket, token: 't' }), runId), stop, socket }
  }

  /** @returns ends it, with all connections */
  async listen(socket: string): Promise<() => Promise<void>> {
    const server = createServer(async (request, response) => {
      const url = new URL(request.url ?? '', 'http://localhost')
      const body = await text(request)
      if (request.headers.accept === 'text/event-stream')
        return this.#open(Number(url.searchParams.get('from')), response)
      const [status, reply] = this.#reply(request.method ?? '', url, body)
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(reply))
    })
    await new Promise<void>((resolve) => server.listen(socket, resolve))
    const stop = () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      })
    onTestFinished(stop)
    return stop
  }

  #open(from: number, response: ServerResponse): void {
    this.streams.push(from)
    this.#stream = response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.flushHeaders()
    for (const event of this.events.slice(from - 1)) response.write(frameOf(event))
  }

  #reply(method: string, { pathname, searchParams }: URL, body: string): readonly [number, unknown] {
    const asked = (id: string) => ({
      ...{ runId, at: 1, digest },
      approval: { ...call, approvalId: id, kind: 'cooperative' },
    })
    if (method === 'POST') {
      this.posted.push(JSON.parse(body))
      return this.refusal === undefined ? [200, { taken: true }] : [Number(this.refusal.status), this.refusal]
    }
    if (pathname.endsWith('/events')) {
      const from = Number(searchParams.get('from'))
      const events = this.events.slice(from - 1)
      return [200, { events, next: this.events.length + 1, isLast: false }]
    }
    if (pathname === '/v1/approvals')
      return [200, { approvals: [...this.waiting].map(asked), hasMore: false }]
    const id = pathname.split('/').at(-1) ?? ''
    const decided = { type: 'about:blank', title: 't', status: 409, code: 'decided', detail: 'by a rule' }
    return this.waiting.has(id) ? [200, asked(id)] : [409, decided]
  }
}

function frameOf(event: JournalEvent | undefined): string {
  const isEnd = event?.event.type === 'run-end'
  return `event: event\ndata: ${JSON.stringify(event)}\n\n${isEnd ? 'event: end\ndata: {}\n\n' : ''}`
}

it('puts the questions that wait, and none that somebody or a rule has decided; each event comes once [S1.11]', async () => {
  const served = new Served()
  for (const event of [asks('old'), decides('old'), asks('open')]) served.push(event)
  served.waiting.add('open')
  const { run } = await served.start()
  const seen: string[] = []
  const pending: string[] = []
  const followed = (async () => {
    for await (const item of run.watch()) {
      if (item.source !== 'host') continue
      const { event } = item
      seen.push(event.type)
      if (event.type === 'approval-request' && run.hasPendingApproval(event.request.approvalId))
        pending.push(event.request.approvalId)
    }
  })()
  await expect.poll(() => served.streams).toEqual([4])
  expect(pending).toEqual(['open'])
  served.push(asks('by-rule'))
  served.waiting.add('new')
  served.push(asks('new'))
  await expect.poll(() => pending).toEqual(['open', 'new'])
  expect(run.pendingCount).toBe(2)
  const resolved = run.whenResolved('open')
  served.push(decides('open'))
  await resolved
  served.cut()
  await expect.poll(() => served.streams).toEqual([4, 7])
  served.push(end)
  expect(await run.ended).toMatchObject({ kind: 'ended', journalHead: '7'.padStart(64, '0') })
  await followed
  expect(seen).toEqual(served.events.map(({ event }) => event.type))
  expect(run.pendingCount).toBe(0)
  expect(await run.result()).toMatchObject({ runId, outcome: 'completed' })
})

it('answers for the question that was shown, and says why an answer does not count [S1.11]', async () => {
  const served = new Served()
  served.push(asks('ap-1'))
  served.waiting.add('ap-1')
  const { run, stop } = await served.start()
  void run.ended
  await expect.poll(() => run.pendingCount).toBe(1)
  const answer = async () => await run.answer('ap-1', { decision: 'allow', scope: 'once' }, { by: 'Ada' })
  expect(await answer()).toEqual({ taken: true })
  expect(served.posted).toEqual([{ decision: 'allow', scope: 'once', by: 'Ada', digest }])
  const problem = { type: 'about:blank', title: 't', status: 409, detail: 'somebody was faster' }
  served.refusal = { ...problem, code: 'decided' }
  expect(await answer()).toEqual({ taken: false, reason: 'decided', message: 'somebody was faster' })
  served.refusal = { ...problem, status: 503, code: 'state_unavailable', remedy: 'start the database' }
  expect(await answer()).toMatchObject({
    ...{ taken: false, reason: 'connection_lost' },
    message: expect.stringContaining('somebody was faster; start the database'),
  })
  await run.detach()
  expect(await run.ended).toEqual({ kind: 'left' })
  await stop()
  expect(await answer()).toMatchObject({
    ...{ taken: false, reason: 'connection_lost' },
    message: expect.stringContaining('see whether caisson serve runs'),
  })
  await expect(run.pause()).rejects.toMatchObject({ code: 'connection_lost' })
})

it('says when the service has been silent for a while, and when it answers again; one that is back at once is no news', async () => {
  const served = new Served()
  served.push(asks('ap-1'))
  const { run, stop, socket } = await served.start()
  const said: string[] = []
  run.say = (line) => said.push(line)
  void run.ended
  await expect.poll(() => served.streams).toHaveLength(1)
  served.cut()
  await expect.poll(() => served.streams).toHaveLength(2)
  expect(said).toEqual([])
  await stop()
  const silent = 'The service does not answer; the run continues. It is tried again until you leave.'
  await expect.poll(() => said, { timeout: 10_000 }).toEqual([silent])
  await served.listen(socket)
  served.push(end)
  await expect.poll(() => said, { timeout: 10_000 }).toEqual([silent, 'The service answers again.'])
  expect(await run.ended).toMatchObject({ kind: 'ended' })
}, 30_000)
