// The agent's client for the gateway's own paths, over the port of the link.
import type { ServerHttp2Stream } from 'node:http2'
import { describe, expect, it } from 'vitest'
import * as z from 'zod'
import { createGatewayClient } from '../../agent/tool-calls/gateway-client.ts'
import { sendError } from '../../host/gateway/relay.ts'
import { gatewayError } from '../../host/net/gateway-error.ts'
import { createWorld } from './support.ts'

const Answer = z.strictObject({ title: z.string() })

async function connected(onStream: (stream: ServerHttp2Stream) => void | Promise<void>) {
  const seen: unknown[] = []
  const world = createWorld({
    onStream: (stream, headers) => {
      seen.push(headers[':method'], headers[':authority'], headers[':path'], headers['content-type'])
      void onStream(stream)
    },
  })
  const guest = world.startGuest()
  await world.link.ready()
  const client = createGatewayClient(() => guest.http)
  const ask = (signal = new AbortController().signal) =>
    client.post('/web/fetch', { url: 'x' }, Answer, signal)
  return { world, seen, ask }
}

function answer(stream: ServerHttp2Stream, status: number, body: string): void {
  stream.respond({ ':status': status })
  stream.end(body)
}

describe('a request to the gateway', () => {
  it('goes out as JSON and comes back as a value of its schema', async () => {
    let body = ''
    const { world, seen, ask } = await connected(async (stream) => {
      body = (await stream.toArray()).join('')
      answer(stream, 200, '{"title":"a"}')
    })
    await using _world = world
    expect(await ask()).toEqual({ ok: true, value: { title: 'a' } })
    expect(seen).toEqual(['POST', 'gateway', '/web/fetch', 'application/json'])
    expect(body).toBe('{"url":"x"}')
  })

  it('fails with the words of the gateway and a code that tools use [G.03]', async () => {
    const errors = [
      gatewayError('egress_denied', 'no rule allows it; call request_access'),
      gatewayError('upstream_unreachable', 'no answer'),
      gatewayError('invalid_request', 'no url'),
    ]
    const { world, ask } = await connected((stream) =>
      sendError(stream, errors.shift() ?? gatewayError('closed', '')),
    )
    await using _world = world
    expect(await ask()).toEqual({
      ok: false,
      error: { code: 'denied', message: 'no rule allows it; call request_access', retryable: false },
    })
    expect(await ask()).toMatchObject({ error: { code: 'unavailable', retryable: true } })
    expect(await ask()).toMatchObject({ error: { code: 'invalid_input', retryable: false } })
  })

  it('refuses an answer that is not of its form or beyond its bound, and survives one that breaks off', async () => {
    const answers = ['{"title":1}', 'no JSON', `{"title":"${'x'.repeat(5 * 1024 * 1024)}"}`]
    const { world, ask } = await connected((stream) => {
      const next = answers.shift()
      if (next !== undefined) return answer(stream, 200, next)
      stream.respond({ ':status': 200 })
      stream.write('{')
      setTimeout(() => stream.destroy(new Error('broken off')), 20)
    })
    await using _world = world
    expect(await ask()).toMatchObject({ error: { code: 'internal' } })
    expect(await ask()).toMatchObject({ error: { code: 'internal' } })
    expect(await ask()).toMatchObject({ error: { code: 'too_large' } })
    expect(await ask()).toMatchObject({ error: { code: 'unavailable', retryable: true } })
  })

  it('ends with its call, and so does the request at the host', async () => {
    const closed = Promise.withResolvers<void>()
    const calling = new AbortController()
    const { world, ask } = await connected((stream) => {
      stream.on('error', () => undefined).once('close', closed.resolve)
      calling.abort()
    })
    await using _world = world
    expect(await ask(calling.signal)).toMatchObject({ error: { code: 'cancelled' } })
    await closed.promise
  })
})
