// Commands and files of a sandbox over the real protocol; what runs in the guest is said by the test, byte by byte.
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { frameKinds } from '#specs/node/typed-frames.ts'
import { accessLimits } from '../../host/control/guest-access.ts'
import { Sandbox } from '../../host/sandbox/sandbox.ts'
import { textOf } from '../../host/test/control/support.ts'
import { until } from '../../host/test/support/run-values.ts'
import { type Bench, controlBench, type HelperCall } from '../control/support.ts'

const end = (exitCode: number | null, signal: string | null = null) => ({
  ok: true,
  exitCode,
  signal,
  oomKilled: false,
})

interface World {
  readonly box: Sandbox
  readonly bench: Bench
  readonly stopped: PromiseWithResolvers<void>
  readonly exited: PromiseWithResolvers<{ reason: string }>
  readonly disposals: string[]
}

async function openBox(onCall?: (call: HelperCall) => void): Promise<World> {
  const bench = await controlBench(onCall)
  const stopped = Promise.withResolvers<void>()
  const exited = Promise.withResolvers<{ reason: string }>()
  const disposals: string[] = []
  const box = await Sandbox.open(bench.socket, {
    stopped: stopped.promise,
    exited: exited.promise,
    collect: () => Promise.reject(new Error('it has no changes')),
    [Symbol.asyncDispose]: async () => {
      disposals.push('disposed')
      await bench.server[Symbol.asyncDispose]()
    },
  })
  return { box, bench, stopped, exited, disposals }
}

/** The program and its arguments, as the guest was asked. */
const argvOf = ({ request }: HelperCall): string[] => (request as { argv: string[] }).argv

/** All input of a command, when its end has come. */
function onInput(call: HelperCall, done: (input: Buffer) => void): void {
  const look = (): void => {
    const input = call.frames.filter(({ kind }) => kind === frameKinds.stdin)
    if (input.at(-1)?.payload.length !== 0) return
    call.socket.off('data', look)
    done(Buffer.concat(input.map(({ payload }) => payload)))
  }
  call.socket.on('data', look)
  look()
}

describe('a command of a sandbox', () => {
  it('streams its output, and gives its exit code and both outputs [V.11]', async () => {
    const { box } = await openBox((call) =>
      onInput(call, (input) => {
        // A character in two pieces.
        const euro = Buffer.from('€')
        call.send(frameKinds.stdout, Buffer.concat([input, euro.subarray(0, 1)]))
        call.send(frameKinds.stdout, euro.subarray(1))
        call.send(frameKinds.stderr, 'problem')
        call.finish(end(3))
      }),
    )
    const seen: string[] = []
    const result = await box.exec('cat', {
      input: 'in',
      onStdout: (text) => void seen.push(text),
      onStderr: (text) => void seen.push(`! ${text}`),
    })
    expect(result).toEqual({
      exitCode: 3,
      timedOut: false,
      outOfMemory: false,
      stdout: 'in€',
      stderr: 'problem',
      truncated: false,
    })
    expect(seen.toSorted().join('')).toBe('! problemin€')
  })

  it('is read by bash as text, and by nobody as a list; directory and variables go before it [V.11]', async () => {
    const { box, bench } = await openBox((call) => call.finish(end(0)))
    await box.exec('echo $HOME')
    await box.exec(['printf', '%s', '$HOME'])
    await box.exec(['env'], { cwd: 'sub dir', env: { NAME: 'a b', _x: '' } })
    await box.exec('pwd', { cwd: '/tmp' })
    const [text, list, placed, absolute] = bench.helperCalls.map(argvOf)
    expect(text).toEqual(['/bin/bash', '-c', 'echo $HOME'])
    expect(list).toEqual(['printf', '%s', '$HOME'])
    expect(placed?.slice(3)).toEqual(['sh', '/mnt/workspace/sub dir', 'NAME=a b', '_x=', '--', 'env'])
    expect(absolute?.slice(3)).toEqual(['sh', '/tmp', '--', '/bin/bash', '-c', 'pwd'])
  })

  it('keeps the beginning of a long output, hands on all of it, and says so [V.11]', async () => {
    const { box } = await openBox((call) => {
      call.send(frameKinds.stdout, Buffer.alloc(100_000, 'é'))
      call.finish(end(0))
    })
    let passed = 0
    const result = await box.exec('x', {
      maxOutputBytes: 11,
      onStdout: (text) => {
        passed += text.length
      },
    })
    // The sixth character is cut in its middle.
    expect(result).toMatchObject({ stdout: 'é'.repeat(5), truncated: true, exitCode: 0 })
    expect(passed).toBe(50_000)
  })

  it('is ended in the guest by its time limit, with what it wrote so far [V.11]', async () => {
    const closed: Promise<unknown>[] = []
    const { box } = await openBox((call) => {
      closed.push(once(call.socket, 'end'))
      call.send(frameKinds.stdout, 'begun')
    })
    const result = await box.exec('sleep 100', { timeoutMs: 400 })
    expect(result).toMatchObject({ exitCode: null, timedOut: true, stdout: 'begun' })
    expect(closed).toHaveLength(1)
    await closed[0]
  })

  it('rejects with cancelled where its signal aborts, before and while it runs [V.11 E.01]', async () => {
    const { box, bench } = await openBox()
    const ending = new AbortController()
    const running = box.exec('sleep 100', { signal: ending.signal })
    await until(() => bench.helperCalls.length === 1, 'the command')
    const gone = once(bench.helperCalls[0]?.socket ?? process, 'end')
    ending.abort(new Error('enough'))
    await expect(running).rejects.toMatchObject({
      code: 'cancelled',
      message: expect.stringMatching(/enough/),
    })
    await gone
    await expect(box.exec('true', { signal: ending.signal })).rejects.toMatchObject({ code: 'cancelled' })
    expect(bench.helperCalls).toHaveLength(1)
  })

  it('is ended by a callback that throws, which is the cause of the error [V.11 E.01]', async () => {
    const thrown = new Error('not this')
    const { box, bench } = await openBox((call) => call.send(frameKinds.stdout, 'a'))
    const running = box.exec('yes', {
      onStdout: () => {
        throw thrown
      },
    })
    await expect(running).rejects.toMatchObject({ code: 'cancelled', cause: thrown })
    await until(() => bench.helperCalls[0]?.socket.readableEnded === true, 'the end of the command')
  })

  it('that a signal ended has the exit code of a shell [V.11]', async () => {
    const { box } = await openBox((call) => call.finish({ ...end(null, 'SIGKILL'), oomKilled: true }))
    expect(await box.exec('x')).toMatchObject({ exitCode: 137, outOfMemory: true })
  })

  it('is refused beyond the commands that a VM has at once [V.11]', async () => {
    const { box, bench } = await openBox()
    const running = Array.from({ length: accessLimits.maxShells }, () => box.exec('sleep 100'))
    for (const one of running) one.catch(() => undefined)
    await until(() => bench.helperCalls.length === accessLimits.maxShells, 'all commands')
    await expect(box.exec('true')).rejects.toMatchObject({ code: 'limit_reached' })
    await box.close()
    expect((await Promise.allSettled(running)).map(({ status }) => status)).not.toContain('fulfilled')
  })

  const anyCommand = [
    '',
    [],
    [''.padEnd(200_000, 'x')],
    'x'.repeat(200_000),
    'a\0b',
    ['a\0'],
    ['\ud800'],
    1,
    null,
    undefined,
    [1],
  ]
  const anyOptions = [
    { nope: 1 },
    { cwd: '' },
    { cwd: 'a\0' },
    { env: { 'A=B': 'x' } },
    { env: { A: 1 } },
    { env: { A: '\0' } },
    { input: 1 },
    { timeoutMs: 0 },
    { timeoutMs: Number.NaN },
    { maxOutputBytes: -1 },
    { signal: {} },
    { onStdout: 1 },
    null,
    1,
  ]
  it('is checked before anything is asked of the guest [V.11 E.01]', async () => {
    const { box, bench } = await openBox()
    for (const command of anyCommand)
      await expect(box.exec(command as never), JSON.stringify(command)?.slice(0, 50)).rejects.toMatchObject({
        code: 'invalid_options',
      })
    for (const options of anyOptions)
      await expect(box.exec('true', options as never)).rejects.toMatchObject({ code: 'invalid_options' })
    expect(bench.helperCalls).toEqual([])
  })
})

describe('files of a sandbox', () => {
  it('are read and written as they are, byte by byte [V.12]', async () => {
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, index) => index % 256))
    const written: Buffer[] = []
    const { box, bench } = await openBox((call) => {
      if (argvOf(call)[2]?.includes('exec cat --') === true) {
        call.send(frameKinds.stdout, bytes)
        call.finish(end(0))
      } else
        onInput(call, (input) => {
          written.push(input)
          call.finish(end(0))
        })
    })
    expect(Buffer.compare(await box.readFile('./a//b'), bytes)).toBe(0)
    await box.writeFile('/mnt/workspace/c', bytes)
    expect(written.map((input) => Buffer.compare(input, bytes))).toEqual([0])
    expect(bench.helperCalls.map((call) => argvOf(call).at(-1))).toEqual([
      '/mnt/workspace/a/b',
      '/mnt/workspace/c',
    ])
  })

  it('are reported by codes where they cannot be used [V.12 E.01]', async () => {
    const replies: [number, string][] = [
      [66, ''],
      [67, ''],
      [68, ''],
      [1, 'cat: x: Permission denied'],
      [1, 'sh: cannot create x: No space left on device'],
      [9, 'odd\u001b[31m'],
    ]
    const { box } = await openBox((call) => {
      const [code, text] = replies.shift() ?? [0, '']
      if (text !== '') call.send(frameKinds.stderr, text)
      call.finish(end(code))
    })
    for (const code of [
      'file_not_found',
      'invalid_options',
      'invalid_options',
      'permission_denied',
      'no_space',
      'not_possible_now',
    ])
      await expect(box.readFile('x')).rejects.toMatchObject({
        code,
        message: expect.not.stringContaining('\u001b'),
      })
  })

  it('are read up to a bound [V.12]', async () => {
    const { box } = await openBox((call) => call.send(frameKinds.stdout, Buffer.alloc(2_000)))
    await expect(box.readFile('x', { maxBytes: 1_999 })).rejects.toMatchObject({ code: 'limit_reached' })
  })

  it('are listed by name, whatever their names are [V.12]', async () => {
    const { box } = await openBox((call) => {
      call.send(frameKinds.stdout, ['f', 5, 'b\nc', 'd', 4096, 'a', 'l', 1, 'x', 's', 0, 'y', ''].join('\0'))
      call.finish(end(0))
    })
    expect(await box.listFiles()).toEqual([
      { name: 'a', type: 'directory', bytes: 4096 },
      { name: 'b\nc', type: 'file', bytes: 5 },
      { name: 'x', type: 'link', bytes: 1 },
      { name: 'y', type: 'other', bytes: 0 },
    ])
  })

  it('are refused outside of the workspace before anything is asked of the guest [V.12 E.01]', async () => {
    const { box, bench } = await openBox()
    const hostile = fc.oneof(
      fc.constantFrom('', '/', '/etc/passwd', '..', '../x', 'a/../../x', 'a/..', '/mnt/workspace/../x'),
      fc.constantFrom('/mnt/workspaces', '/mnt', 'a\0b', '\0', '\ud800', 'x'.repeat(5_000)),
      fc.string().map((text) => `/${text.replace(/^mnt/, '')}`),
      fc.string().map((text) => `${text}/../${text}`),
      fc.anything().filter((value) => typeof value !== 'string' && value !== undefined),
    )
    await fc.assert(
      fc.asyncProperty(hostile, async (path) => {
        for (const call of [
          () => box.readFile(path as string),
          () => box.writeFile(path as string, 'x'),
          () => box.listFiles(path as string),
          () => box.remove(path as string),
        ])
          await expect(call()).rejects.toMatchObject({ code: 'invalid_options' })
      }),
      { seed: 12, numRuns: 100 },
    )
    for (const root of ['.', '/mnt/workspace', './'])
      await expect(box.remove(root)).rejects.toMatchObject({ code: 'invalid_options' })
    await expect(box.writeFile('x', 1 as never)).rejects.toMatchObject({ code: 'invalid_options' })
    await expect(box.readFile('x', { nope: 1 } as never)).rejects.toMatchObject({ code: 'invalid_options' })
    expect(bench.helperCalls).toEqual([])
  })
})

describe('a port of a sandbox', () => {
  it('leads to a server in the guest until it is closed [V.11]', async () => {
    const server = createServer((socket) => void socket.on('error', () => undefined).end('hello'))
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const guestPort = (server.address() as { port: number }).port
    const { box } = await openBox()
    const port = await box.forward(guestPort)
    const said = await fetchText(port.port)
    expect(said).toBe('hello')
    await expect(box.forward(guestPort, { hostPort: port.port })).rejects.toMatchObject({
      code: 'not_possible_now',
    })
    await port.close()
    await expect(fetchText(port.port)).rejects.toThrow(/ECONNREFUSED/)
    const other = await box.forward(guestPort)
    await box.close()
    await expect(fetchText(other.port)).rejects.toThrow(/ECONNREFUSED/)
    for (const wrong of [0, 70_000, 1.5, '80', null])
      await expect((await openBox()).box.forward(wrong as number)).rejects.toMatchObject({
        code: 'invalid_options',
      })
    server.close()
  })
})

describe('a sandbox', () => {
  it('is disposed once, and after that each call says that it is closed [V.11 E.01]', async () => {
    const { box, disposals } = await openBox()
    const running = box.exec('sleep 100')
    running.catch(() => undefined)
    await Promise.all([box.close(), box.close()])
    await expect(running).rejects.toMatchObject({ code: 'cancelled' })
    expect(disposals).toEqual(['disposed'])
    for (const call of [() => box.exec('true'), () => box.readFile('x'), () => box.forward(1)])
      await expect(call()).rejects.toMatchObject({ code: 'not_possible_now' })
  })

  it('says that its VM has ended where that is why a command was cut off [V.11 E.01]', async () => {
    const { box, bench, exited } = await openBox()
    const running = box.exec('sleep 100')
    await until(() => bench.helperCalls.length === 1, 'the command')
    bench.helperCalls[0]?.socket.destroy()
    exited.resolve({ reason: 'killed' })
    await expect(running).rejects.toMatchObject({ code: 'vm_lost', message: expect.stringMatching(/killed/) })
    await expect(box.exec('true')).rejects.toMatchObject({ code: 'vm_lost' })
  })

  it('ends when another process stops its VM [V.11 V.08]', async () => {
    const { box, stopped, disposals } = await openBox()
    stopped.resolve()
    await until(() => disposals.length === 1, 'the end')
    await expect(box.exec('true')).rejects.toMatchObject({ code: 'vm_lost' })
  })
})

async function fetchText(port: number): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  return await textOf(socket)
}
