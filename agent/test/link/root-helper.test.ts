import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { encodeTypedFrame, frameKinds, TypedFrameReader } from '#specs/node/typed-frames.ts'
import { createHelper, type ExecRequest } from '../../link/root-helper.ts'

const { json, stdin, stdout, stderr } = frameKinds
const request: ExecRequest = {
  argv: ['true'],
  limits: { wallMs: 1_000, memoryBytes: 2 ** 26, pids: 16, cpuPercent: 100 },
}
const result = {
  exitCode: 0,
  signal: null,
  timedOut: false,
  oomKilled: false,
  pidsRefused: 0,
  durationMs: 1,
}
const reply = (value: unknown): Buffer => encodeTypedFrame(json, Buffer.from(JSON.stringify(value)))
const done = reply({ ok: true, ...result })

let folder: string
let path: string
let server: Server
/** What the far side does with each connection. */
let serve: (socket: Socket) => void

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'caisson-helper-'))
  path = join(folder, 'helper.sock')
  server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined)
    serve(socket)
  })
  await once(server.listen(path), 'listening')
})
afterEach(() => {
  server.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Answers with `bytes` once the request is there, and closes. */
const answer = (bytes: Uint8Array) => (socket: Socket) => {
  socket.once('data', () => socket.end(bytes))
}

describe('createHelper', () => {
  it('asks as the contract says, field by field', async () => {
    const asked: unknown[] = []
    serve = (socket) => {
      const reader = new TypedFrameReader()
      socket.on('data', (piece: Buffer) => {
        for (const { payload } of reader.feed(piece) as { payload: Buffer }[])
          asked.push(JSON.parse(payload.toString()))
        socket.end(reply({ ok: true }))
      })
    }
    const helper = createHelper(path)
    await helper.mountWorkspace(false)
    await helper.resetWorkspace(true)
    await helper.readStatus()
    await helper.execInSandbox(request)
    expect(asked).toEqual([
      { op: 'workspace_mount', readOnly: false },
      { op: 'workspace_reset', keepHome: true },
      { op: 'status' },
      { op: 'exec', argv: ['true'], view: null, cwd: '', env: {}, stdin: false, limits: request.limits },
    ])
  })

  it('starts a program that is spoken to while it runs [A.09]', async () => {
    const asked = Promise.withResolvers<unknown>()
    serve = (socket) => {
      const reader = new TypedFrameReader()
      socket.on('data', (piece: Buffer) => {
        for (const { payload } of reader.feed(piece) as { payload: Buffer }[])
          asked.resolve(JSON.parse(payload.toString()))
      })
    }
    const { limits } = request
    const socket = await createHelper(path).openProgram({
      argv: ['node', 's.js'],
      view: 'v1',
      cwd: 'a',
      limits,
    })
    expect(await asked.promise).toEqual({
      op: 'exec',
      argv: ['node', 's.js'],
      view: 'v1',
      cwd: 'a',
      env: {},
      stdin: true,
      limits,
    })
    socket.destroy()
  })

  it('hands output on in order and as bytes, then gives the result [S1.04]', async () => {
    const bytes = Buffer.from([0xff, 0, 0x61])
    serve = answer(
      Buffer.concat([encodeTypedFrame(stdout, bytes), encodeTypedFrame(stderr, Buffer.from('e')), done]),
    )
    const seen: [string, string][] = []
    const ended = await createHelper(path).execInSandbox(request, {
      onOutput: (stream, chunk) => {
        seen.push([stream, chunk.toString('hex')])
      },
    })
    expect(ended).toEqual({ ok: true, value: result })
    expect(seen).toEqual([
      ['stdout', 'ff0061'],
      ['stderr', '65'],
    ])
  })

  it('reads no further while output is being taken', async () => {
    const chunk = encodeTypedFrame(stdout, Buffer.alloc(64 * 1024))
    let written = 0
    serve = (socket) => {
      const write = (): void => {
        if (written === 200) socket.end(done)
        else if (++written && socket.write(chunk)) write()
        else socket.once('drain', write)
      }
      socket.once('data', write)
    }
    let mostAhead = 0
    let taken = 0
    await createHelper(path).execInSandbox(request, {
      onOutput: async () => {
        taken++
        mostAhead = Math.max(mostAhead, written - taken)
        await new Promise((turn) => setImmediate(turn))
      },
    })
    expect(taken).toBe(200)
    expect(mostAhead).toBeLessThan(50)
  })

  it('sends input of any size and its end [S1.04]', async () => {
    const received: Buffer[] = []
    serve = (socket) => {
      const reader = new TypedFrameReader()
      socket.on('data', (piece: Buffer) => {
        for (const { kind, payload } of reader.feed(piece) as { kind: number; payload: Buffer }[]) {
          if (kind !== stdin) continue
          if (payload.length === 0) socket.end(done)
          received.push(Buffer.from(payload))
        }
      })
    }
    const text = 'ä'.repeat(200_000)
    expect(await createHelper(path).execInSandbox({ ...request, stdin: text })).toMatchObject({ ok: true })
    expect(Buffer.concat(received).toString()).toBe(text)
  })

  it('is cancelled by its signal, and the connection with it', async () => {
    const closed = new Promise((turn) => {
      serve = (socket) =>
        socket
          .resume()
          .once('close', turn)
          .once('end', () => socket.destroy())
    })
    const stop = new AbortController()
    const ended = createHelper(path).execInSandbox(request, { signal: stop.signal })
    await once(server, 'connection')
    stop.abort()
    expect(await ended).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    await closed
    expect(await createHelper(path).execInSandbox(request, { signal: stop.signal })).toMatchObject({
      ok: false,
      error: { code: 'cancelled' },
    })
  })

  it('passes the failures of the helper on, and makes values of those of the socket', async () => {
    serve = answer(reply({ ok: false, error: { code: 'busy', message: 'later' } }))
    expect(await createHelper(path).readStatus()).toEqual({
      ok: false,
      error: { code: 'busy', message: 'later' },
    })
    const unavailable = { ok: false, error: { code: 'unavailable' } }
    for (const bytes of [
      Buffer.alloc(0),
      done.subarray(0, 7),
      Buffer.from('HTTP/1.1 200 OK\r\n\r\n'),
      encodeTypedFrame(stdin, Buffer.from('x')),
      encodeTypedFrame(json, Buffer.from('{')),
      reply({ ok: true, more: 1 }),
      reply({ ok: true, ...result, exitCode: 'none' }),
    ]) {
      serve = answer(bytes)
      expect(await createHelper(path).execInSandbox(request)).toMatchObject(unavailable)
    }
    expect(await createHelper(join(folder, 'none')).mountWorkspace(false)).toMatchObject(unavailable)
  })

  it('refuses a request beyond the bound of a frame before it is sent', async () => {
    const argv = ['x'.repeat(1024 * 1024)]
    expect(await createHelper(path).execInSandbox({ ...request, argv })).toMatchObject({
      ok: false,
      error: { code: 'bad_request' },
    })
  })

  it('comes to an end with a value, whatever the far side sends', async () => {
    const frame = fc
      .tuple(fc.constantFrom(json, stdin, stdout, stderr), fc.uint8Array({ maxLength: 50 }))
      .map(([kind, payload]) => new Uint8Array(encodeTypedFrame(kind, payload)))
    const bytes = fc.array(fc.oneof(frame, fc.uint8Array({ maxLength: 20 })), { maxLength: 5 })
    await fc.assert(
      fc.asyncProperty(bytes, async (pieces) => {
        serve = answer(Buffer.concat(pieces))
        const ended = await createHelper(path).execInSandbox(request)
        expect(ended).toMatchObject({ ok: false, error: { code: expect.any(String) } })
      }),
      { seed: 9, numRuns: 150 },
    )
  })
})

describe('TypedFrameReader', () => {
  it('finds the same frames however the bytes are cut', () => {
    const frames = fc.array(
      fc.tuple(fc.constantFrom(json, stdin, stdout, stderr), fc.uint8Array({ maxLength: 30 })),
      { maxLength: 8 },
    )
    fc.assert(
      fc.property(frames, fc.infiniteStream(fc.integer({ min: 1, max: 40 })), (sent, sizes) => {
        const bytes = Buffer.concat(sent.map(([kind, payload]) => encodeTypedFrame(kind, payload)))
        const reader = new TypedFrameReader()
        const found: [number, string][] = []
        for (let start = 0; start < bytes.length; ) {
          const size = sizes.next().value ?? 1
          const fed = reader.feed(bytes.subarray(start, start + size))
          if (typeof fed === 'string') throw new Error(fed)
          found.push(...fed.map(({ kind, payload }): [number, string] => [kind, payload.toString('hex')]))
          start += size
        }
        expect(found).toEqual(sent.map(([kind, payload]) => [kind, Buffer.from(payload).toString('hex')]))
        expect(reader.isBetweenFrames).toBe(true)
      }),
      { seed: 1, numRuns: 200 },
    )
  })

  it('refuses lengths and kinds out of bounds at once, without waiting for what they announce', () => {
    const feed = (...bytes: number[]) => new TypedFrameReader().feed(Buffer.from(bytes))
    expect(feed(0, 0, 0, 0, json)).toContain('saw 0')
    expect(feed(0xff, 0xff, 0xff, 0xff, json)).toContain('saw 4294967295')
    expect(feed(0, 0, 0, 1, 0x99)).toContain('saw 153')
    expect(feed(0, 0x10, 0, 0, stdout)).toEqual([])
  })
})
