import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type ProbeVm, startProbeVm } from './probe-vm.ts'

const MIB = 1024 * 1024
let probe: ProbeVm

beforeAll(async () => {
  probe = await startProbeVm(512 * MIB)
})
afterAll(async () => probe?.[Symbol.asyncDispose]())

const frame = (kind: string, payload: string | Uint8Array): Buffer => {
  const body = Buffer.concat([Buffer.from(kind), Buffer.from(payload)])
  const length = Buffer.alloc(4)
  length.writeUInt32BE(body.length)
  return Buffer.concat([length, body])
}
/** What the helper answers to these bytes; undefined when it closes without a word. */
async function answerTo(bytes: Buffer): Promise<unknown> {
  const reply = Buffer.from(await probe.ask<string>({ op: 'raw', hex: bytes.toString('hex') }), 'hex')
  return reply.length === 0 ? undefined : JSON.parse(reply.toString('utf8', 5))
}
const bash = (command: string) =>
  probe.ask<{ result: { ok: boolean; value: { stdout: string } } }>({
    op: 'tool',
    name: 'run_bash',
    input: { command },
  })

const limits = { wallMs: 1_000, memoryBytes: 64 * MIB, pids: 16, cpuPercent: 100 }
const exec = { op: 'exec', argv: ['true'], view: null, cwd: '', env: {}, stdin: false, limits }
const terminal = { columns: 80, rows: 24, term: 'xterm' }
const shell = { op: 'shell', argv: [], terminal }

describe('the helper socket', () => {
  it.each([
    ['no JSON', 'not json'],
    ['no object', '[]'],
    ['an unknown operation', '{"op":"shutdown"}'],
    ['an operation of another type', '{"op":["exec"]}'],
    ['an unknown field', '{"op":"status","also":1}'],
    ['a missing field', '{"op":"workspace_reset"}'],
    ['a field that stands twice', '{"op":"workspace_reset","keepHome":true,"keepHome":false}'],
    ['a boolean as a number', JSON.stringify({ ...exec, limits: { ...limits, wallMs: true } })],
    ['no number', JSON.stringify({ ...exec, limits }).replace('"wallMs":1000', '"wallMs":NaN')],
    ['deep nesting', `${'['.repeat(100_000)}`],
    ['an empty command', JSON.stringify({ ...exec, argv: [] })],
    ['NUL in an argument', JSON.stringify({ ...exec, argv: ['a\0'] })],
    ['half a surrogate pair', JSON.stringify({ ...exec, argv: ['\ud800'] })],
    ['a directory above the workspace', JSON.stringify({ ...exec, cwd: 'a/../..' })],
    ['a view that is no name', JSON.stringify({ ...exec, view: '../workspace' })],
    ['a view that is not there', JSON.stringify({ ...exec, view: 'none' })],
    ['to open a view by a path', '{"op":"view_open","ids":["a/b"],"source":null}'],
    ['to open a view by more than a name', '{"op":"view_open","ids":["a,upperdir=b"],"source":null}'],
    ['to open a view by the name of a copy', '{"op":"view_open","ids":["frozen.1"],"source":null}'],
    ['to open a view over a path', '{"op":"view_open","ids":["a"],"source":"../upper"}'],
    ['to open no view', '{"op":"view_open","ids":[],"source":null}'],
    ['to open a view twice', '{"op":"view_open","ids":["a","a"],"source":null}'],
    ['to close a view by a path', '{"op":"view_close","ids":["a","../b"]}'],
    ['to close what is no list', '{"op":"view_close","ids":"a"}'],
    ['an absolute directory', JSON.stringify({ ...exec, cwd: '/etc' })],
    ['a directory that is not there', JSON.stringify({ ...exec, cwd: 'none' })],
    ['a variable that is none', JSON.stringify({ ...exec, env: { 'A=B': '' } })],
    ['no limit on memory', JSON.stringify({ ...exec, limits: { ...limits, memoryBytes: 0 } })],
    ['a terminal without a size', JSON.stringify({ ...shell, terminal: { columns: 0, rows: 1, term: 'x' } })],
    [
      'a type of terminal that is none',
      JSON.stringify({ ...shell, terminal: { ...terminal, term: '../x' } }),
    ],
    ['a shell with a wall limit', JSON.stringify({ ...shell, limits })],
    ['a limit that is missing', JSON.stringify({ ...exec, limits: { wallMs: 1 } })],
  ])('refuses %s with a reason [C.02]', async (_, payload) => {
    expect(await answerTo(frame('J', payload))).toMatchObject({ ok: false, error: { code: 'bad_request' } })
  })

  it('refuses what is no frame, and a frame in the wrong place [C.02]', async () => {
    for (const bytes of [
      Buffer.from('GET / HTTP/1.1\r\n\r\n'),
      Buffer.from([0, 0, 0, 0, 0x4a]),
      Buffer.from([0, 0x20, 0, 0, 0x4a]),
      frame('X', '{}'),
      frame('1', 'output'),
      Buffer.concat([frame('J', JSON.stringify(exec)), frame('0', 'input that was not announced')]),
    ])
      expect(await answerTo(bytes)).toMatchObject({ ok: false, error: { code: 'bad_request' } })
  })

  it('outlives any bytes at all [C.02]', async () => {
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc
        .tuple(fc.constantFrom('J', '0', '1', '2', 'x'), fc.uint8Array({ maxLength: 60 }))
        .map(([kind, bytes]) => frame(kind, bytes)),
      fc.jsonValue({ maxDepth: 3 }).map((value) => frame('J', JSON.stringify(value))),
      fc
        .tuple(fc.constantFrom(...Object.keys(exec)), fc.jsonValue({ maxDepth: 2 }))
        .map(([field, value]) => frame('J', JSON.stringify({ ...exec, [field]: value }))),
    )
    const streams = fc.sample(fc.array(piece, { minLength: 1, maxLength: 4 }), { numRuns: 150, seed: 7 })
    for (const pieces of streams) {
      const answer = await answerTo(Buffer.concat(pieces))
      if (answer !== undefined) expect(answer).toHaveProperty('ok')
    }
    expect(await probe.ask({ op: 'status' })).toMatchObject({ ok: true, value: { agentRestarts: 0 } })
  })

  it('cannot be reached from inside a call', async () => {
    const { result } = await bash(
      'ls -d /run /run/caisson /proc/1/root/run 2>&1; cat /proc/net/unix | grep -c "@"',
    )
    expect(result.value.stdout).toContain("cannot access '/run/caisson'")
    expect(result.value.stdout.trim().split('\n').at(-1)).toBe('0')
  })

  it('takes the workspace away with all calls, and puts an empty one back', async () => {
    const dig = [
      'import os',
      'for name in ("/tmp/left", "/home/work/left"): open(name, "w").close()',
      'for _ in range(3000): os.mkdir("d"); os.chdir("d")',
    ].join('\n')
    const dug = await probe.ask({ op: 'tool', name: 'run_python', input: { code: dig } })
    expect(dug).toMatchObject({ result: { value: { exitCode: 0 } } })
    const running = bash('sleep 1000')
    await expect
      .poll(() => probe.ask({ op: 'status' }), { timeout: 20_000 })
      .toMatchObject({ value: { calls: 1 } })
    expect(await probe.ask({ op: 'reset' })).toEqual({ ok: true })
    expect((await running).result).toMatchObject({ ok: false, error: { code: 'unavailable' } })
    expect((await bash('true')).result).toMatchObject({ ok: false, error: { code: 'unavailable' } })
    expect(await probe.ask({ op: 'mount' })).toEqual({ ok: true })
    expect(await probe.ask({ op: 'mount' })).toEqual({ ok: true })
    expect((await bash('ls -A . /tmp ~')).result.value.stdout).not.toContain('left')
    expect((await bash('ls -A')).result.value.stdout).toBe('')
  })
})

describe('PID 1', () => {
  it('gives the agent the rights to file work, and no others', async () => {
    expect(await probe.ask({ op: 'look' })).toMatchObject({
      // chown, dac_override, fowner
      capabilities: '000000000000000b',
      noNewPrivileges: '1',
      user: [1001, 1001],
    })
  })

  it('starts a crashed agent again and keeps how it ended [S1.01]', async () => {
    const again = probe.nextStart()
    void probe.ask({ op: 'exit', code: 42 }).catch(() => undefined)
    expect(await again).toEqual({ ok: true })
    const { exits } = await probe.ask<{ exits: unknown }>({ op: 'look' })
    expect(exits).toMatchObject({
      restarts: 1,
      last: { code: 42, signal: null, stderrTail: expect.stringContaining('the probe ends as instructed') },
    })
    expect(probe.vm.console.text()).toContain('caisson: ERROR phase=agent the agent ended with code 42')
    expect((await bash('echo alive')).result.value.stdout).toBe('alive\n')
  })
})
