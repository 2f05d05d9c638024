// Callers of the MCP server that open more connections than their share.
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'
import { Host } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { holderOf } from './keys-support.ts'
import { sendCall, startMcp } from './mcp-support.ts'
import { serveHost } from './support.ts'

const list = { name: 'list_runs', arguments: {} }

async function serve() {
  const host = new Host({ env: (await runAtWork()).env })
  const served = await serveHost(host)
  const [mine, other] = [await holderOf(host, served, 'mine'), await holderOf(host, served, 'other')]
  const { url } = await startMcp(served.service.url)
  const call = async ({ secret }: typeof mine) => (await sendCall(url, secret, list)).status
  return { url, mine, other, call }
}

it('a caller has its share of the connections, and one too many is refused by name [H.03]', async () => {
  const { url, mine, other, call } = await serve()
  const agent = new Agent({ keepAlive: true })
  onTestFinished(() => agent.destroy())
  expect(await call(mine)).toBe(200)
  const answers = await Promise.all(Array.from({ length: 80 }, () => ask(url, mine.secret, agent)))
  const refused = answers.filter(({ status }) => status === 429)
  expect(refused.length).toBeGreaterThanOrEqual(16)
  expect(answers.length - refused.length).toBeGreaterThanOrEqual(60)
  for (const { text: said, retryAfter } of refused) {
    expect(said).toContain('The caller has 64 connections open')
    expect(retryAfter).toBe('5')
  }
  expect(await call(other)).toBe(200)
  agent.destroy()
  await expect.poll(() => call(mine)).toBe(200)
})

it('connections that name no caller end before those of callers, and give their places back [H.03]', async () => {
  const { url, mine, call } = await serve()
  const agent = new Agent({ keepAlive: true })
  onTestFinished(() => agent.destroy())
  const first = await ask(url, mine.secret, agent)
  const silent = Array.from({ length: 600 }, () => open(Number(new URL(url).port)))
  onTestFinished(() => {
    for (const socket of silent) socket.destroy()
  })
  const closed = async () => {
    // A connection without a request for 5 s ends.
    await ask(url, mine.secret, agent)
    return silent.filter((socket) => socket.closed).length
  }
  await expect.poll(closed, { timeout: 20_000 }).toBe(600 - 128)
  // On the connection from before the flood, and on a new one.
  expect((await ask(url, mine.secret, agent)).port).toBe(first.port)
  expect(await call(mine)).toBe(200)
})

/** A request without a body of MCP: who sends it is known when it is refused. */
async function ask(url: string, secret: string, agent: Agent) {
  const { promise, resolve, reject } = Promise.withResolvers<{
    readonly status: number | undefined
    readonly retryAfter: string | undefined
    readonly port: number | undefined
    readonly text: string
  }>()
  const sent = request(url, { agent, headers: { authorization: `Bearer ${secret}` } }, (response) => {
    const port = response.socket.localPort
    const { statusCode: status, headers } = response
    text(response).then(
      (said) => resolve({ status, retryAfter: headers['retry-after'], port, text: said }),
      reject,
    )
  })
  sent.once('error', reject)
  sent.end()
  return await promise
}

function open(port: number): Socket {
  return connect(port, '127.0.0.1').on('error', () => undefined)
}
