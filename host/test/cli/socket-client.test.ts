// Calls over the socket of a service that answers late, breaks off, or is stopped.
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import path from 'node:path'
import { afterEach, expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { fetchOver, SocketClient } from '../../cli/socket-client.ts'
import { runId } from '../support/run-values.ts'

afterEach(() => {
  vi.useRealTimers()
  vi.restoreAllMocks()
})

async function listen(onRequest: RequestListener) {
  const socket = path.join(await temporaryFolder('socket-client'), 'service.sock')
  const server = createServer(onRequest)
  await new Promise<void>((resolve) => server.listen(socket, resolve))
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  onTestFinished(close)
  return { socket, client: new SocketClient({ socket, token: 't' }), close }
}

const pause = { params: { run: runId }, body: {} }

it('an answer that takes ten minutes is waited for', async () => {
  const asked = Promise.withResolvers<ServerResponse>()
  const { socket } = await listen((_, response) => asked.resolve(response))
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
  const answer = fetchOver(socket)(new URL('http://localhost/v1/runs'), { method: 'POST' })
  const seen = answer.then(
    async (response) => await response.text(),
    (error: unknown) => String((error as Error).cause),
  )
  const response = await asked.promise
  await vi.advanceTimersByTimeAsync(600_000)
  response.end('forked')
  expect(await seen).toBe('forked')
})

it('a broken connection says that a change may have been made, and where to look before it is asked for again', async () => {
  const { client, socket, close } = await listen(({ socket: connection }) => connection.destroy())
  const found = { code: 'connection_lost', cause: expect.any(Error) }
  const broken = expect.stringMatching(/broke off: .*; it may have done what was asked; see whether caisson/)
  const lost = await client.call('pauseRun', pause).catch((error: unknown) => error)
  expect(lost).toMatchObject({ ...found, message: broken })
  expect(lost).toMatchObject({ remedy: expect.stringContaining(`caisson runs show ${runId}`) })
  const unnamed = await client.call('mergeRuns', { body: { runs: [runId, runId] } }).catch((error) => error)
  expect(unnamed).toMatchObject({ ...found, remedy: expect.stringMatching(/done: caisson runs list$/) })
  const repeat = 'see whether caisson serve runs, then repeat the command'
  const read = client.call('getRun', { params: { run: runId } })
  await expect(read).rejects.toMatchObject({ ...found, remedy: repeat })
  await close()
  // Nobody listens, so nothing was sent.
  await expect(client.call('pauseRun', pause)).rejects.toMatchObject({
    ...{ ...found, remedy: repeat },
    message: expect.stringContaining(`the service on ${socket} has ended`),
  })
})

it('a service whose process is stopped is waited for no longer, and what was asked may have been done', async () => {
  const { client, socket } = await listen(() => undefined)
  const { timeout } = AbortSignal
  vi.spyOn(AbortSignal, 'timeout').mockImplementation(() => timeout.call(AbortSignal, 50))
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
  const stopped = client.call('pauseRun', pause).catch((error: unknown) => error)
  await vi.advanceTimersByTimeAsync(5_000)
  expect(await stopped).toMatchObject({
    code: 'connection_lost',
    message: expect.stringContaining(
      `the service on ${socket} accepts connections, but does not answer; it may have done what was asked; ` +
        `see whether the process of caisson serve is stopped, and before you repeat`,
    ),
  })
})
