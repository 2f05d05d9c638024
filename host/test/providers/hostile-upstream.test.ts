import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import {
  customProvider,
  readAnswer,
  sendStream,
  sse,
  startGateway,
  startRawUpstream,
  startUpstream,
  testKey,
  textChunk,
} from '../support/gateway.ts'

const quick = { firstByteTimeoutMs: 700, idleTimeoutMs: 300 }

describe('a hostile or broken upstream', () => {
  it.each([301, 302, 303, 307, 308])(
    'gets no second request, and no key elsewhere, by a redirect %i [G.01]',
    async (status) => {
      await using other = await startUpstream((response) => sendStream(response))
      await using upstream = await startUpstream((response) => {
        response.writeHead(status, { location: `${other.url}/chat/completions` })
        response.end()
      })
      await using test = await startGateway(customProvider(upstream.url))
      expect(await test.request()).toMatchObject({ status: 421, code: 'upstream_redirect' })
      expect(other.requests).toHaveLength(0)
    },
  )

  it('cannot echo the key into the guest, wherever its chunks are cut [G.01]', async () => {
    const text = textChunk(`key: ${testKey} and again ${testKey}`)
    for (const cut of [1, 7, 60, 61, 62, 70, 85]) {
      await using upstream = await startUpstream((response) => {
        response.writeHead(200, {
          'content-type': 'text/event-stream',
          'x-request-id': testKey,
          'x-echo': testKey,
        })
        response.write(text.slice(0, cut))
        setTimeout(() => response.end(text.slice(cut) + sse('[DONE]')), 5)
      })
      await using test = await startGateway(customProvider(upstream.url))
      const answer = await test.request()
      expect(answer.text).toContain('key: [redacted] and again [redacted]')
      expect(JSON.stringify(answer)).not.toContain(testKey)
      expect(answer.headers).not.toHaveProperty('x-echo')
    }
  })

  it('cannot echo the key in an error, a header of an error, a journal or a log [G.01]', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(401, { 'content-type': 'text/html', 'x-request-id': testKey })
      response.end(`<html><title>Bad key ${testKey}</title></html>`)
    })
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request()
    expect(answer.status).toBe(401)
    expect(answer.text).toContain('Bad key [redacted]')
    expect(JSON.stringify([answer, test.exchanges, test.logged])).not.toContain(testKey)
  })

  it.each([
    [
      'problem+json',
      402,
      '{"status":402,"title":"Payment Required","detail":"Cloud credits expired"}',
      'Cloud credits expired',
    ],
    [
      'OpenAI',
      400,
      '{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}',
      'too long',
    ],
    ['flat vLLM', 400, '{"object":"error","message":"flat","type":"BadRequestError","code":400}', 'flat'],
    ['a bare error', 503, '{"error":"model is loading"}', 'model is loading'],
    ['a list of problems', 422, '{"title":"Unprocessable","detail":[{"loc":["body","n"]}]}', 'loc'],
    ['text', 404, '404 page not found', '404 page not found'],
    ['nothing', 500, '', 'no reason'],
    ['HTML', 502, '<!DOCTYPE html><title>502 Bad Gateway</title><script>x</script>', '502 Bad Gateway'],
    ['control characters', 500, '{"error":{"message":"a\\u001b[31mb","type":"x","code":"y"}}', '\\u001b[31m'],
  ])('has its error in %s put into one form [S0.06]', async (_, status, body, word) => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(status)
      response.end(body)
    })
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request()
    expect(answer.status).toBe(status)
    expect(answer.text).toContain(word)
    expect(JSON.parse(answer.text)).toEqual({
      error: { message: expect.any(String), type: expect.any(String), code: expect.any(String) },
    })
    expect(test.exchanges).toMatchObject([
      { status, usage: { requests: 0 }, error: expect.stringContaining(String(status)) },
    ])
  })

  it('has an endless error body read to its bound only [S0.07]', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(500)
      const more = (): void => {
        while (response.writable && response.write('x'.repeat(65_536)));
        if (response.writable) response.once('drain', more)
      }
      more()
    })
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request()
    expect(answer.status).toBe(500)
    expect(answer.text.length).toBeLessThan(5_000)
    await upstream.closed()
  })

  it('that answers with a page and status 200 is called broken [S0.06]', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/html' })
      response.end('<html>captive portal</html>')
    })
    await using test = await startGateway(customProvider(upstream.url))
    expect(await test.request()).toMatchObject({ status: 502, code: 'upstream_broken' })
  })

  it('that never begins to answer is given up [S0.07]', async () => {
    await using upstream = await startUpstream(() => {})
    await using test = await startGateway(customProvider(upstream.url), { timeouts: quick })
    expect(await test.request()).toMatchObject({ status: 504, code: 'upstream_timeout' })
  })

  it('that falls silent between events ends the stream with an error event [S0.07 G.05]', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(textChunk('begun'))
    })
    await using test = await startGateway(customProvider(upstream.url), { timeouts: quick })
    const answer = await test.request()
    expect(answer.text).toMatch(/begun[\s\S]*data: \{"error":\{.*"upstream_timeout"\}\}\n\n$/)
    expect(test.exchanges).toMatchObject([{ status: 200, error: expect.stringContaining('silent') }])
    await upstream.closed()
  })

  it('that resets in the middle of an event resets the guest stream, which cannot pass for an end [C.04]', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write('data: {"choices":[{"delta":{"con')
      // Bytes that are still on their way are lost with a reset, so it comes a little later.
      setTimeout(() => response.socket?.resetAndDestroy(), 60)
    })
    await using test = await startGateway(customProvider(upstream.url))
    const answer = await test.request()
    expect(answer.reset).not.toBe(0)
    expect(test.exchanges[0]?.error).toContain('middle of the answer')
  })

  it.each([
    ['headers beyond the bound', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(100_000)}\r\n\r\n`],
    ['bytes that are not HTTP', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['a status without meaning', 'HTTP/1.1 299 Odd\r\ncontent-length: 0\r\n\r\n'],
    ['a queue', 'HTTP/1.1 202 Accepted\r\nnvcf-reqid: x\r\ncontent-length: 0\r\n\r\n'],
  ])('that sends %s fails the request, not the gateway [T.02]', async (_, bytes) => {
    await using upstream = await startRawUpstream(Buffer.from(bytes), () => {})
    await using test = await startGateway(customProvider(upstream.url), { timeouts: quick })
    const answer = await test.request()
    expect(answer.status).toBeGreaterThanOrEqual(500)
    expect(answer.code).toMatch(/^upstream_/)
  })

  it('that is not there is named by its origin [S0.06]', async () => {
    await using test = await startGateway(customProvider('http://127.0.0.1:1/v1'))
    const answer = await test.request()
    expect(answer).toMatchObject({ status: 502, code: 'upstream_unreachable' })
    expect(answer.text).toContain('http://127.0.0.1:1')
  })
})

describe('the two ends', () => {
  it('a guest that goes away ends the request at the upstream', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(textChunk('one'))
    })
    await using test = await startGateway(customProvider(upstream.url))
    const stream = test.open()
    await once(stream, 'data')
    stream.close()
    await upstream.closed()
    await test.exchanged(1)
    expect(test.exchanges[0]?.error).toContain('guest ended')
  })

  it('a guest that does not read makes the upstream wait, and no memory grow [C.04]', async () => {
    let written = 0
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const event = textChunk('x'.repeat(60_000))
      const more = (): void => {
        while (response.writable && written < 30_000_000) {
          written += event.length
          if (!response.write(event)) {
            response.once('drain', more)
            return
          }
        }
        response.end()
      }
      more()
    })
    await using test = await startGateway(customProvider(upstream.url))
    const stream = test.open()
    await once(stream, 'response')
    let last = -1
    // The counter stands still when every buffer on the way is full.
    while (last !== written) {
      last = written
      await new Promise((resolve) => setTimeout(resolve, 150))
    }
    expect(written).toBeLessThan(20_000_000)
    const answer = await readAnswer(stream)
    expect(Buffer.byteLength(answer.text)).toBeGreaterThan(29_000_000)
  })

  it('a guest that never reads on loses its answer, and keeps nobody from their turn [G.05]', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      const more = (): void => {
        while (response.writable && response.write(textChunk('x'.repeat(60_000))));
        if (response.writable) response.once('drain', more)
      }
      more()
    })
    await using test = await startGateway(customProvider(upstream.url), { timeouts: quick })
    const stream = test.open()
    await once(stream, 'response')
    await upstream.closed()
    await test.exchanged(1)
    expect(test.exchanges[0]?.error).toContain('read nothing')
  })

  it('closing the gateway ends what is open and refuses what comes', async () => {
    await using upstream = await startUpstream((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(textChunk('one'))
    })
    await using test = await startGateway(customProvider(upstream.url))
    const stream = test.open()
    await once(stream, 'data')
    await test.gateway.close()
    await upstream.closed()
    expect(await test.request()).toMatchObject({ status: 503, code: 'closed' })
  })
})
