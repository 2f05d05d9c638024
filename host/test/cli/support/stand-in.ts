/** A service of this user in the place of a real one: a server of the test on the socket of a state folder. */
import { mkdir, writeFile } from 'node:fs/promises'
import { createServer, type IncomingHttpHeaders, type RequestListener } from 'node:http'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { onTestFinished } from 'vitest'
import { noUsage } from '#specs/protocol/task.ts'
import { runId } from '../../support/run-values.ts'

export const token = 't'.repeat(43)
export const version = '0'

export interface Seen {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

/** A service on the socket of a state folder. @param started what it answers to a request that starts a run */
export async function standIn(
  home: string,
  { started, says = { status: 'running', version } }: { started?: RequestListener; says?: unknown } = {},
) {
  const folder = path.join(home, 'service')
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await writeFile(path.join(folder, 'token'), `${token}\n`, { mode: 0o600 })
  const socket = path.join(folder, 'service.sock')
  const seen: Seen[] = []
  const server = createServer(async (request, response) => {
    seen.push({ path: request.url ?? '', headers: request.headers, body: await text(request) })
    if (request.url === '/healthz') response.end(JSON.stringify(says))
    else if (started === undefined) response.writeHead(500).end()
    else started(request, response)
  })
  await new Promise<void>((resolve) => server.listen(socket, resolve))
  const close = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  onTestFinished(close)
  return { socket, folder, seen, close }
}

/** A run at work. */
export const resource = {
  ...{ id: runId, status: 'running', startedAt: 1, prompt: 'p', workspace: '/w', model: 'm' },
  ...{ phase: 'preparing', toolCalls: 0, usage: noUsage, isUsageEstimated: false, costUsd: null },
  ...{ changes: null, applied: null, pendingApprovals: 0, isLive: true, end: null },
}
