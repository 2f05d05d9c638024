// Shells from the control socket to the root side's frames: client, server, link, agent and helper client are the real ones.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished } from 'vitest'
import { encodeTypedFrame, frameKinds } from '#specs/node/typed-frames.ts'
import { askControl } from '../../host/control/client.ts'
import { accessLimits } from '../../host/control/guest-access.ts'
import { textOf } from '../../host/test/control/support.ts'
import { until } from '../../host/test/support/run-values.ts'
import { controlBench, type HelperCall } from './support.ts'

const terminal = { columns: 100, rows: 30, term: 'xterm' }
const ended = { ok: true, exitCode: 7, signal: null, oomKilled: false }

/** Gives back all its input, then ends. */
const echo = (call: HelperCall): void => {
  const { socket, frames } = call
  let done = 0
  socket.on('data', () => {
    for (const frame of frames.slice(done)) {
      done += 1
      if (frame.kind === frameKinds.stdin && frame.payload.length > 0)
        call.send(frameKinds.stdout, frame.payload)
      else if (frame.kind === frameKinds.stdin) call.finish(ended)
    }
  })
}

describe('a shell over the control socket', () => {
  it('is asked of the root side with its terminal, and tells how the program ended [V.08]', async () => {
    const bench = await controlBench((call) => {
      call.send(frameKinds.stdout, 'welcome')
      call.finish(ended)
    })
    const shell = await bench.client.openShell({ argv: [], terminal })
    expect(await textOf(shell.stdout)).toBe('welcome')
    expect(await shell.ended).toEqual({ kind: 'exited', exitCode: 7, outOfMemory: false })
    expect(bench.helperCalls.map(({ request }) => request)).toEqual([
      { op: 'shell', env: {}, argv: [], terminal },
    ])
    expect(bench.accesses).toEqual([{ kind: 'shell', detail: '' }])
  })

  it('carries input, its end and both outputs of a command, many megabytes of them [V.08]', async () => {
    const bench = await controlBench(echo)
    const shell = await bench.client.openShell({ argv: ['cat'], terminal: null })
    const bytes = Buffer.alloc(8 * 1024 * 1024, 'abcdefg')
    shell.stdin.end(bytes)
    const text = await textOf(shell.stdout)
    expect(text.length).toBe(bytes.length)
    expect(text).toBe(bytes.toString())
    expect(await shell.ended).toMatchObject({ exitCode: 7 })
  })

  it('keeps the exit code of a program that ends while it is still being fed [V.08]', async () => {
    const bench = await controlBench((call) => {
      call.socket.on('data', () => {
        if (call.frames.length === 20) call.finish(ended)
      })
    })
    const shell = await bench.client.openShell({ argv: ['head'], terminal: null })
    shell.stdin.write(Buffer.alloc(16 * 1024 * 1024))
    shell.stdout.resume()
    expect(await shell.ended).toMatchObject({ kind: 'exited', exitCode: 7 })
  })

  it('passes the window size on [V.08]', async () => {
    const bench = await controlBench()
    const shell = await bench.client.openShell({ argv: [], terminal })
    shell.resize(132, 50)
    await until(() => bench.helperCalls[0]?.frames.length === 1, 'the window size')
    const [frame] = bench.helperCalls[0]?.frames ?? []
    expect(frame).toMatchObject({ kind: frameKinds.windowSize, payload: Buffer.from([0, 132, 0, 50]) })
    shell.kill()
  })

  it('ends in the guest when its client goes away, and for the client when the guest side breaks off [V.08]', async () => {
    const bench = await controlBench()
    const shell = await bench.client.openShell({ argv: [], terminal })
    await until(() => bench.helperCalls.length === 1, 'the call')
    const closed = once(bench.helperCalls[0]?.socket ?? process, 'end')
    shell.kill()
    await closed
    const other = await bench.client.openShell({ argv: [], terminal })
    await until(() => bench.helperCalls.length === 2, 'the second call')
    bench.helperCalls[1]?.socket.destroy()
    expect(await other.ended).toMatchObject({ kind: 'lost' })
  })

  it('tells a refusal of the root side, and an unknown form of an end, in words [V.08]', async () => {
    const replies: unknown[] = [
      { ok: false, error: { code: 'busy', message: 'no room' } },
      { ok: true, exitCode: 'x' },
    ]
    const bench = await controlBench((call) => call.finish(replies.shift()))
    const first = await bench.client.openShell({ argv: ['true'], terminal: null })
    expect(await first.ended).toEqual({ kind: 'lost', message: 'no room', code: 'busy' })
    const second = await bench.client.openShell({ argv: ['true'], terminal: null })
    expect(await second.ended).toMatchObject({
      kind: 'lost',
      message: expect.stringMatching(/an unknown form/),
    })
  })

  it('waits for the workspace of a VM that has just started, and not for longer than a bound [V.08]', async () => {
    const open = Promise.withResolvers<void>()
    let isOpen = false
    const onCall = (call: HelperCall): void =>
      call.finish(isOpen ? ended : { ok: false, error: { code: 'not_ready', message: 'no workspace yet' } })
    const starting = await controlBench(onCall, { ready: () => open.promise, readyTimeoutMs: 60_000 })
    const shell = await starting.client.openShell({ argv: ['true'], terminal: null })
    await sleep(100)
    expect(starting.helperCalls).toEqual([])
    isOpen = true
    open.resolve()
    expect(await shell.ended).toMatchObject({ kind: 'exited', exitCode: 7 })

    isOpen = false
    const stuck = await controlBench(onCall, {
      ready: () => new Promise(() => undefined),
      readyTimeoutMs: 50,
    })
    const early = await stuck.client.openShell({ argv: ['true'], terminal: null })
    expect(await early.ended).toEqual({ kind: 'lost', message: 'no workspace yet', code: 'not_ready' })
  })

  it('is refused beyond a number, and a place is free again after an end [V.08]', async () => {
    const bench = await controlBench()
    const shells = await Promise.all(
      Array.from({ length: accessLimits.maxShells }, () => bench.client.openShell({ argv: [], terminal })),
    )
    await until(() => bench.helperCalls.length === accessLimits.maxShells, 'all shells')
    const more = await bench.client.openShell({ argv: [], terminal })
    expect(await more.ended).toMatchObject({ kind: 'lost', message: expect.stringMatching(/open already/) })
    for (const shell of shells) shell.kill()
    const open = async () => {
      const again = await bench.client.openShell({ argv: [], terminal })
      await Promise.race([again.ended, sleep(200)])
      again.kill()
      return bench.helperCalls.length
    }
    await expect.poll(open).toBeGreaterThan(accessLimits.maxShells)
  })

  it('does not run ahead of a reader that does not read [V.08]', async () => {
    const piece = Buffer.alloc(64 * 1024)
    let sent = 0
    const bench = await controlBench((call) => {
      const pump = (): void => {
        while (sent < 400 && call.socket.writable) {
          sent += 1
          call.send(frameKinds.stdout, piece)
          if (call.socket.writableNeedDrain) {
            call.socket.once('drain', pump)
            return
          }
        }
      }
      pump()
    })
    const shell = await bench.client.openShell({ argv: ['yes'], terminal: null })
    await sleep(500)
    expect(sent).toBeLessThan(200)
    shell.kill()
  })
})

describe('a hostile guest', () => {
  it('can send any bytes as a shell: it ends, and the host serves on [V.08]', async () => {
    const pieces: Buffer[] = []
    const bench = await controlBench(({ socket }) => socket.end(pieces.shift() ?? ''))
    const frame = fc
      .tuple(fc.constantFrom(...Object.values(frameKinds)), fc.uint8Array({ maxLength: 40 }))
      .map(([kind, payload]) => encodeTypedFrame(kind, payload))
    const bytes = fc.oneof(
      frame,
      fc.uint8Array({ maxLength: 60 }).map((raw) => Buffer.from(raw)),
      fc
        .jsonValue({ maxDepth: 2 })
        .map((value) => encodeTypedFrame(frameKinds.json, Buffer.from(JSON.stringify(value)))),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(bytes, { maxLength: 4 }), async (sent) => {
        pieces.push(Buffer.concat(sent))
        const shell = await bench.client.openShell({ argv: ['x'], terminal: null })
        shell.stdout.resume()
        shell.stderr.resume()
        expect(['lost', 'exited', 'killed']).toContain((await shell.ended).kind)
      }),
      { seed: 8, numRuns: 60 },
    )
    expect(await textOf(bench.client.console())).toBe('so far\n')
  })

  it('is refused a stream that nobody asked for [V.08]', async () => {
    const bench = await controlBench()
    const statusOf = async (path: string): Promise<unknown> => {
      const stream = await bench.guest.http.openStream({ ':method': 'POST', ':path': path })
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>]
      stream.destroy()
      return headers[':status']
    }
    expect(await statusOf(`/shell/${'0'.repeat(32)}`)).toBe(404)
    expect(await statusOf('/forward/x')).toBe(404)
    expect(bench.accesses).toEqual([])
  })
})

describe('a forwarded port', () => {
  it('carries connections both ways, with half-closed ones and large ones [V.08]', async () => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      let bytes = 0
      socket.on('data', (chunk) => {
        bytes += chunk.length
      })
      // Answers only after the other side's end.
      socket.on('end', () => socket.end(`had ${bytes}`))
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as { port: number }
    const bench = await controlBench()
    await using forwarding = await bench.client.forward({ guestPort: port })
    const answers = await Promise.all(
      [1, 70_000, 5_000_000].map(async (size) => {
        const socket = connect({ host: '127.0.0.1', port: forwarding.port, allowHalfOpen: true })
        socket.end(Buffer.alloc(size))
        return await textOf(socket)
      }),
    )
    expect(answers).toEqual(['had 1', 'had 70000', 'had 5000000'])
    expect(bench.accesses).toEqual([{ kind: 'forward', detail: String(port) }])
    server.close()
  })

  it('closes the connection and says why when nothing listens in the guest [V.08]', async () => {
    const closed = createServer()
    await once(closed.listen(0, '127.0.0.1'), 'listening')
    const { port } = closed.address() as { port: number }
    closed.close()
    const bench = await controlBench()
    const failures: string[] = []
    await using forwarding = await bench.client.forward({
      guestPort: port,
      onFailure: (text) => failures.push(text),
    })
    const socket = connect(forwarding.port, '127.0.0.1')
    socket.on('error', () => undefined)
    await new Promise((resolve) => socket.on('close', resolve))
    expect(failures).toEqual([expect.stringMatching(/ECONNREFUSED/)])
  })

  it('breaks off in the guest when the client on the host does [V.08]', async () => {
    const ended = Promise.withResolvers<string>()
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('end', () => ended.resolve('an orderly end')).on('error', () => ended.resolve('a reset'))
      socket.resume()
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const bench = await controlBench()
    await using forwarding = await bench.client.forward({
      guestPort: (server.address() as { port: number }).port,
    })
    const socket = connect(forwarding.port, '127.0.0.1')
    await once(socket, 'connect')
    socket.write('half', () => setTimeout(() => socket.resetAndDestroy(), 50))
    expect(await ended.promise).toBe('a reset')
    server.close()
  })

  /** A server that says something forever, such as a stream of events, and how its connection ended. */
  const serveEvents = async () => {
    const gone = Promise.withResolvers<string>()
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => gone.resolve('a reset'))
      const timer = setInterval(() => socket.write('more'), 5)
      socket.on('close', () => clearInterval(timer)).resume()
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    onTestFinished(() => void server.close())
    return { port: (server.address() as { port: number }).port, gone: gone.promise }
  }

  it('breaks off in the guest when a client goes that had said all and still listened [V.08]', async () => {
    const { port, gone } = await serveEvents()
    const bench = await controlBench()
    const failures: string[] = []
    await using forwarding = await bench.client.forward({
      guestPort: port,
      onFailure: (text) => failures.push(text),
    })
    const socket = connect({ host: '127.0.0.1', port: forwarding.port, allowHalfOpen: true })
    socket.end()
    await once(socket, 'data')
    socket.destroy()
    expect(await gone).toBe('a reset')
    // It knows that it went.
    expect(failures).toEqual([])
  })

  it('breaks off in the guest when the process that forwards is killed while it only listens [V.08]', async () => {
    const { port, gone } = await serveEvents()
    const bench = await controlBench()
    const stream = await askControl(bench.socket, { op: 'vm/forward', port })
    await stream.send(frameKinds.stdin, Buffer.alloc(0))
    await stream.next()
    stream.destroy()
    expect(await gone).toBe('a reset')
  })

  it('resets the connection when the server in the guest does [V.08]', async () => {
    const server = createServer((socket) => {
      socket.write('half', () => socket.resetAndDestroy())
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const bench = await controlBench()
    await using forwarding = await bench.client.forward({
      guestPort: (server.address() as { port: number }).port,
    })
    const socket = connect(forwarding.port, '127.0.0.1')
    await expect(textOf(socket)).rejects.toThrow(/ECONNRESET/)
    server.close()
  })
})
