// HTTP/2 from the guest to the host's streams, over the port of the link.
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { ServerHttp2Stream } from 'node:http2'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { describe, expect, it } from 'vitest'
import type { LinkedPort } from '#specs/testing/linked-port.ts'
import {
  GuestHttp,
  HttpSessionLostError,
  HttpStreamResetError,
  type PostOptions,
} from '../../agent/link/http.ts'
import { http2Limits } from '../../host/guest/http-server.ts'
import { until, wait } from '../../host/test/support/run-values.ts'
import { createWorld } from './support.ts'

const MiB = 1024 * 1024
const url = 'http://gateway/v1/things?x=1'
type OnStream = (stream: ServerHttp2Stream, headers: Record<string, unknown>) => void | Promise<void>

async function connected(onStream: OnStream) {
  const world = createWorld({ onStream: (stream, headers) => void onStream(stream, headers) })
  const guest = world.startGuest()
  await world.link.ready()
  return { world, http: guest.http, post: poster(guest.http) }
}

function poster(http: GuestHttp) {
  return (options: Partial<PostOptions> = {}) =>
    http.post(url, { body: '', signal: new AbortController().signal, ...options })
}

/** The guest's side of a port behind a real socket: HTTP/2 drives its handle without our code, as it does a device's. */
async function openBehindSocket(port: LinkedPort): Promise<Socket> {
  const guest = port.openGuest()
  const server = createServer((relay) => {
    server.close()
    relay.pipe(guest).pipe(relay)
    relay.on('error', () => {}).on('close', () => guest.destroy())
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  await once(socket, 'connect')
  return socket
}

/** A body that starts and never ends. */
const begun: OnStream = (stream) => {
  stream.respond({ ':status': 200 })
  stream.write('begun')
}

describe('a request of the guest', () => {
  it('reaches the host with method, path, headers and body, and brings its answer back [S1.07, C.04]', async () => {
    const seen: unknown[] = []
    const { world, post } = await connected(async (stream, headers) => {
      seen.push(headers[':method'], headers[':path'], headers[':authority'], headers['x-a'])
      stream.respond({ ':status': 201, 'content-type': 'text/plain' })
      stream.end(`got ${(await stream.toArray()).join('')}`)
    })
    await using _world = world
    const answer = await post({ body: 'hello', headers: { 'X-A': 'b' } })
    expect(answer.statusCode).toBe(201)
    expect(answer.headers['content-type']).toBe('text/plain')
    expect(await text(answer.body)).toBe('got hello')
    expect(seen).toEqual(['POST', '/v1/things?x=1', 'gateway', 'b'])
  })

  it('carries large bodies both ways unharmed, several at once [C.04]', async () => {
    const { world, post } = await connected((stream) => {
      stream.respond({ ':status': 200 })
      stream.pipe(stream)
    })
    await using _world = world
    const one = async (): Promise<void> => {
      const bytes = randomBytes(6 * MiB)
      const answer = await post({ body: bytes })
      const hash = createHash('sha256')
      for await (const chunk of answer.body) hash.update(chunk as Buffer)
      expect(hash.digest('hex')).toBe(createHash('sha256').update(bytes).digest('hex'))
    }
    await Promise.all([one(), one(), one()])
  })

  it('goes by the handle of the port, which is opened anew for each session [C.03 C.04]', async () => {
    await using world = createWorld({
      onStream: (stream) => {
        stream.respond({ ':status': 200 })
        stream.pipe(stream)
      },
    })
    let opened = 0
    const openHttp = (): Promise<Socket> => {
      opened++
      return openBehindSocket(world.http)
    }
    const post = poster(world.startGuest({ openHttp }).http)
    const body = randomBytes(6 * MiB)
    for (let session = 1; session <= 3; session++) {
      await until(() => world.seen.sessions.length === session, 'the session')
      const answers = [1, 2].map(() => post({ body }))
      for (const answer of await Promise.all(answers)) {
        expect(body.equals(Buffer.concat(await answer.body.toArray()))).toBe(true)
      }
      expect(opened).toBe(session)
      world.link.restartSession('again')
    }
    expect(world.seen.ends.map(({ reason }) => reason)).not.toContain('http_failed')
  })

  it('is held back when the reader is slow, in either direction [C.04]', async () => {
    let sent = 0
    let received = 0
    const gate = Promise.withResolvers<void>()
    const { world, http } = await connected(async (stream) => {
      stream.respond({ ':status': 200 })
      stream.once('data', async (chunk: Buffer) => {
        received += chunk.length
        stream.pause()
        await gate.promise
        stream.on('data', (more: Buffer) => {
          received += more.length
        })
        stream.resume()
        Readable.from(
          (function* () {
            for (; sent < 20 * MiB; sent += MiB) yield Buffer.alloc(MiB)
          })(),
        ).pipe(stream)
      })
    })
    await using _world = world
    let given = 0
    const body = Readable.from(
      (function* () {
        for (; given < 20 * MiB; given += 100_000) yield Buffer.alloc(100_000)
      })(),
    )
    const answer = body.pipe(await http.openStream({ ':method': 'POST', ':path': '/' }))
    await wait(100)
    expect(given).toBeLessThan(4 * MiB)
    gate.resolve()
    await until(() => received >= 20 * MiB, 'the whole body')
    await wait(100)
    expect(sent).toBeLessThan(6 * MiB)
    expect(Buffer.concat(await answer.toArray()).byteLength).toBe(20 * MiB)
  })

  it('fails on both ends, fast and retryable, when its session is replaced in the middle [C.04]', async () => {
    let hostSide = 'open'
    const { world, post } = await connected((stream) => {
      void begun(stream, {})
      stream.on('close', () => {
        hostSide = 'closed'
      })
    })
    await using _world = world
    const answer = await post()
    world.link.restartSession('again')
    const failure = await text(answer.body).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(HttpSessionLostError)
    expect(failure).toMatchObject({ retryable: true })
    await until(() => hostSide === 'closed', 'the end on the host')
    await until(() => world.seen.sessions.length === 2, 'the next session')
    const next = await post()
    expect(next.statusCode).toBe(200)
    next.body.on('error', () => {}).destroy()
  })

  it('fails when the host resets its stream, and does not take the part for the whole [C.04]', async () => {
    const { world, post } = await connected((stream) => {
      void begun(stream, {})
      setTimeout(() => stream.destroy(new Error('broken off')), 20)
    })
    await using _world = world
    const answer = await post()
    await expect(text(answer.body)).rejects.toBeInstanceOf(HttpStreamResetError)
  })

  it('resets its stream on the host when it is aborted [C.04]', async () => {
    const closed = Promise.withResolvers<void>()
    const { world, post } = await connected((stream) => {
      void begun(stream, {})
      stream.on('close', () => closed.resolve())
    })
    await using _world = world
    const controller = new AbortController()
    const answer = await post({ signal: controller.signal })
    controller.abort(new Error('enough'))
    await expect(text(answer.body)).rejects.toThrow('enough')
    await closed.promise
  })

  it('waits for a session, but no longer than its deadline [C.04]', async () => {
    const post = poster(new GuestHttp())
    await expect(post({ sessionTimeoutMs: 50 })).rejects.toMatchObject({ code: 'CAISSON_SESSION_LOST' })
  })

  it('reports a body that fails, and the host sees a reset instead of an end [C.04]', async () => {
    const host = Promise.withResolvers<string>()
    const body = new Readable({ read() {} })
    const { world, http } = await connected((stream) => {
      stream.on('aborted', () => host.resolve('aborted'))
      stream.on('end', () => setImmediate(() => host.resolve('ended')))
      stream.once('data', () => body.destroy(new Error('disk gone')))
    })
    await using _world = world
    body.push('part')
    const stream = await http.openStream({ ':method': 'POST', ':path': '/' })
    await expect(pipeline(body, stream)).rejects.toThrow('disk gone')
    expect(await host.promise).toBe('aborted')
  })

  it('is one of a bounded number: more than the limit wait or fail, and the host continues [C.04]', async () => {
    let open = 0
    let most = 0
    const { world, post } = await connected((stream) => {
      most = Math.max(most, ++open)
      stream.on('close', () => open--)
      stream.respond({ ':status': 200 })
      setTimeout(() => stream.end('ok'), 20)
    })
    await using _world = world
    const answers = await Promise.allSettled(
      Array.from({ length: 200 }, async () => text((await post()).body)),
    )
    expect(answers.filter((answer) => answer.status === 'fulfilled').length).toBeGreaterThan(60)
    expect(most).toBeLessThanOrEqual(http2Limits.maxConcurrentStreams)
    expect(await text((await post()).body)).toBe('ok')
  })
})
