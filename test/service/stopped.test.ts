// Clients of a service whose process is stopped: the kernel accepts their connections, and nobody answers.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { ServiceClient, ServiceError } from '../../client/index.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import { cliPlace } from '../../host/test/support/cli.ts'

it('a request to a stopped service ends with an error that says what to do, and works when it continues [H.02]', async () => {
  const place = await cliPlace({})
  const { child, errors, ended } = place.start('serve', '--port', '0')
  // A stopped process takes no other signal.
  onTestFinished(() => void child.kill('SIGKILL'))
  const url = () => /listens on (http:\S+)/.exec(errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  const client = new ServiceClient({ baseUrl: url() ?? '', token })
  expect(await client.call('listRuns', {})).toEqual({ runs: [] })

  child.kill('SIGSTOP')
  const refused = await client.call('listRuns', {}).catch((error: unknown) => error)
  expect(refused).toBeInstanceOf(ServiceError)
  expect(refused).toMatchObject({
    code: 'no_answer',
    message: expect.stringMatching(/did not answer for 10 seconds; see whether its process is stopped/),
  })
  // The signal of the caller still ends a request, with its own reason.
  const signal = AbortSignal.timeout(100)
  await expect(client.call('listRuns', { signal })).rejects.toMatchObject({ name: 'TimeoutError' })

  child.kill('SIGCONT')
  expect(await client.call('listRuns', {})).toEqual({ runs: [] })
  child.kill('SIGTERM')
  expect((await ended).code).toBe(0)
}, 120_000)

it('events of a service that fell silent are read on from where they stopped, when it answers again [H.02]', async () => {
  const asked: string[] = []
  const runId = newRunId()
  const line = (seq: number) => {
    const event = { type: 'vm-keep-failed', message: 'the test says so' }
    const chained = { prev: 'a'.repeat(64), hash: 'b'.repeat(64) }
    const item = { seq, at: 0, runId, source: 'host', event, ...chained }
    return `id: ${seq}\ndata: ${JSON.stringify(item)}\n\n`
  }
  const server = createServer((request, response) => {
    asked.push(request.url ?? '')
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(line(asked.length))
    if (asked.length > 1) response.end('event: end\ndata: {}\n\n')
  }).listen(0, '127.0.0.1')
  onTestFinished(() => server.closeAllConnections())
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const client = new ServiceClient({ baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}` })
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const connections: string[] = []
  const events = client.events(runId, { onConnection: (state) => connections.push(state) })
  expect((await events.next()).value).toMatchObject({ seq: 1 })
  // A caller who is slow leaves the stream as it is.
  vi.advanceTimersByTime(60_000)
  const next = events.next()
  vi.advanceTimersByTime(40_000)
  expect(connections).toEqual(['open'])
  vi.advanceTimersByTime(10_000)
  expect((await next).value).toMatchObject({ seq: 2 })
  expect(connections).toEqual(['open', 'broken', 'open'])
  expect(asked).toEqual([1, 2].map((from) => `/v1/runs/${runId}/events?from=${from}`))
  expect((await events.next()).done).toBe(true)
}, 20_000)

it('the first signal ends a service in order, and the second one at once, whatever it still waits for [H.02]', async () => {
  const command = path.join(import.meta.dirname, '../../host/cli/commands/web-page.ts')
  // A service that never finishes to close.
  const program = `setInterval(() => undefined, 1_000)
    const { endSignal } = await import(${JSON.stringify(command)})
    const ending = endSignal()
    console.log('serves')
    console.log(await ending)`
  const child = spawn(process.execPath, ['--conditions=caisson-source', '--input-type=module', '-e', program])
  onTestFinished(() => void child.kill('SIGKILL'))
  const printed = async () => String((await once(child.stdout, 'data'))[0]).trim()
  expect(await printed()).toBe('serves')
  child.kill('SIGTERM')
  expect(await printed()).toBe('SIGTERM')
  child.kill('SIGINT')
  expect(await once(child, 'exit')).toEqual([null, 'SIGINT'])
}, 60_000)
