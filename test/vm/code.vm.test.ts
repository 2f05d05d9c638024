import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProbeRequest } from './agents/code-probe.ts'
import { type ProbeVm, startProbeVm } from './probe-vm.ts'

const MIB = 1024 * 1024
let probe: ProbeVm

beforeAll(async () => {
  probe = await startProbeVm(192 * MIB)
})
afterAll(async () => probe?.[Symbol.asyncDispose]())

interface Called {
  readonly result: {
    readonly ok: boolean
    readonly error?: { readonly code: string }
    readonly value: {
      readonly stdout: string
      readonly stderr: string
      readonly exitCode: number | null
      readonly signal: string | null
      readonly timedOut: boolean
      readonly oomKilled: boolean
      readonly pidsRefused: number
      readonly outputExceeded: boolean
      readonly diskFull: boolean
    }
  }
  readonly shown: { readonly stdout: string; readonly stderr: string }
  readonly told: string
}
type ToolRequest = Extract<ProbeRequest, { op: 'tool' }>

const bash = (command: string, more: Partial<ToolRequest> & { timeoutMs?: number } = {}): Promise<Called> => {
  const { timeoutMs = 60_000, ...rest } = more
  return probe.ask<Called>({ op: 'tool', name: 'run_bash', input: { command, timeoutMs }, ...rest })
}
const python = (code: string, more: Partial<ToolRequest> & { args?: string[] } = {}): Promise<Called> => {
  const { args = [], ...rest } = more
  return probe.ask<Called>({ op: 'tool', name: 'run_python', input: { code, args }, ...rest })
}
const valueFrom = async (called: Promise<Called>): Promise<Called['result']['value']> => {
  const { result } = await called
  expect(result).toMatchObject({ ok: true })
  return result.value
}

interface Look {
  readonly workProcesses: number
  readonly callGroups: number
  readonly initKiB: number
  readonly agentMiB: number
}
/** Nothing of any call is left, neither process nor control group, and the VM continues. */
async function expectNothingLeft(): Promise<Look> {
  const look = await probe.ask<Look>({ op: 'look' })
  expect(look).toMatchObject({ workProcesses: 0, callGroups: 0 })
  expect((await valueFrom(bash('echo alive'))).stdout).toBe('alive\n')
  return look
}

describe('run_bash and run_python', () => {
  it('run in the workspace as a user without any privilege, and see nothing of the agent [S1.04] [S1.14]', async () => {
    const { stdout } = await valueFrom(
      bash(
        'pwd; id -u; grep -E "CapEff|CapBnd|NoNewPrivs" /proc/self/status; ls -d /run/caisson /opt/caisson /sys 2>&1 | grep -c "No such"; ls /proc | grep -c "^[0-9]"; env | grep -c CAISSON',
      ),
    )
    const lines = stdout.split('\n')
    expect(lines.slice(0, 2)).toEqual(['/mnt/workspace', '1000'])
    expect(lines.slice(2, 5).map((line) => line.replace(/\s+/, ' '))).toEqual([
      'CapEff: 0000000000000000',
      'CapBnd: 0000000000000000',
      'NoNewPrivs: 1',
    ])
    expect(lines[5]).toBe('3')
    // bubblewrap's own init, bash, ls and grep.
    expect(Number(lines[6])).toBeLessThanOrEqual(4)
    expect(lines[7]).toBe('0')
  })

  it('find every program that the image promises [S1.14]', async () => {
    const programs = 'node python3 bash curl git rg sed awk grep find tar gzip diff ps'
    const { stdout, exitCode } = await valueFrom(
      bash(`for p in ${programs}; do command -v $p >/dev/null || echo $p; done`),
    )
    expect({ stdout, exitCode }).toEqual({ stdout: '', exitCode: 0 })
  })

  it('give output, errors and exit code as values, and show output while it comes [S1.04] [S1.09]', async () => {
    const called = await bash('echo out; echo err >&2; exit 3')
    expect(called.result.value).toMatchObject({ stdout: 'out\n', stderr: 'err\n', exitCode: 3, signal: null })
    expect(called.shown).toEqual({ stdout: 'out\n', stderr: 'err\n' })
    expect(called.told).toMatch(/^out\n\[standard error\]\nerr\n\[exit code 3, after [\d.]+ s\]$/)
  })

  it('run Python without a file, with arguments, quoted tracebacks and multiprocessing [S1.04]', async () => {
    const code = [
      'import sys, multiprocessing',
      'def square(n):',
      '    return n * n',
      'print(sys.argv[1:], __name__)',
      'print(multiprocessing.Pool(2).map(square, [2, 3]))',
      'raise ValueError("so it ends")',
    ].join('\n')
    const { stdout, stderr, exitCode } = await valueFrom(python(code, { args: ['a', 'b c'] }))
    expect(stdout).toBe("['a', 'b c'] __main__\n[4, 9]\n")
    expect(stderr).toBe(
      'Traceback (most recent call last):\n  File "<code>", line 6, in <module>\n    raise ValueError("so it ends")\nValueError: so it ends\n',
    )
    expect(exitCode).toBe(1)
    expect((await valueFrom(bash('ls -A'))).stdout).toBe('')
  })

  it('keep /tmp and the home directory from call to call, outside the workspace [S1.04]', async () => {
    await valueFrom(bash('echo kept > /tmp/a; echo kept > ~/b'))
    expect((await valueFrom(bash('cat /tmp/a ~/b; ls -A'))).stdout).toBe('kept\nkept\n')
  })

  it('end what a pipe no longer reads', async () => {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: bash expands it
    expect((await valueFrom(bash('yes | head -n1; echo ${PIPESTATUS[0]}'))).stdout).toBe('y\n141\n')
  })

  it('refuse what cannot be an argument, as a value [S1.09]', async () => {
    const { result } = await bash('echo a\0b')
    expect(result).toMatchObject({ ok: false, error: { code: 'invalid_input' } })
  })

  it('decode bytes that are no text, and cut long output in its middle [S1.04]', async () => {
    const binary = await valueFrom(bash('printf "a\\xff\\xfeb\\0c"'))
    expect(binary.stdout).toBe('a\ufffd\ufffdb\0c')
    const long = await valueFrom(bash('seq 100000'))
    expect(long.stdout.startsWith('1\n2\n3\n')).toBe(true)
    expect(long.stdout.endsWith('99999\n100000\n')).toBe(true)
    expect(long.stdout).toMatch(/\n\[… \d+ bytes cut …\]\n/)
    expect(long.stdout.length).toBeLessThan(49 * 1024)
  })

  it('continue when a program closes its output', async () => {
    expect(await valueFrom(bash('exec >&- 2>&-; sleep 0.2; exit 7'))).toMatchObject({
      stdout: '',
      exitCode: 7,
    })
  })
})

describe('what a program cannot do to the VM', () => {
  it('a fork bomb is held at its limit, reported and ended [V.06]', async () => {
    const called = await bash(':(){ :|:& };:; sleep 2', { timeoutMs: 8_000, options: { pids: 64 } })
    expect(called.result.value.pidsRefused).toBeGreaterThan(0)
    expect(called.told).toContain('forks were refused: at most 64')
    await expectNothingLeft()
  })

  it('a memory hog is ended with all it started, and told why [V.06]', async () => {
    const code = 'hog = []\nwhile True: hog.append(bytearray(8_000_000))'
    const called = await python(code, { options: { memoryBytes: 96 * MIB } })
    expect(called.result.value).toMatchObject({ oomKilled: true, exitCode: null, signal: 'SIGKILL' })
    expect(called.told).toContain('memory ran out (at most 96 MiB')
    await expectNothingLeft()
  })

  it('hogs that keep to their own limits cannot starve the agent together [V.06]', async () => {
    const code =
      'import time\nhog = bytearray(400_000_000)\nfor i in range(0, len(hog), 4096): hog[i] = 1\ntime.sleep(3)'
    const ended = await Promise.all([1, 2, 3].map(() => valueFrom(python(code))))
    expect(ended.filter(({ oomKilled }) => oomKilled).length).toBeGreaterThanOrEqual(1)
    await expectNothingLeft()
  })

  it('endless output is bounded in helper and agent, and ends the program [S1.04]', async () => {
    const before = await expectNothingLeft()
    const called = await bash('yes', { options: { outputMaxBytes: 24 * MIB } })
    expect(called.result.value).toMatchObject({ outputExceeded: true, exitCode: null })
    expect(called.told).toContain('did not stop writing output')
    expect(called.shown.stdout.length).toBeLessThan(257 * 1024)
    const after = await expectNothingLeft()
    expect(after.initKiB - before.initKiB).toBeLessThan(4 * 1024)
    expect(after.agentMiB - before.agentMiB).toBeLessThan(128)
  })

  it('a client that reads slowly slows the program down, and loses nothing [S1.04]', async () => {
    const request = {
      argv: ['head', '-c', '2000000', '/dev/zero'],
      limits: { wallMs: 60_000, memoryBytes: 64 * MIB, pids: 16, cpuPercent: 100 },
    }
    expect(await probe.ask({ op: 'exec', request, pauseMs: 20 })).toMatchObject({
      ended: { ok: true, value: { exitCode: 0 } },
      bytes: { stdout: 2_000_000, stderr: 0 },
    })
  })

  it('input of any size reaches a program that reads, and hurts none that does not [S1.04]', async () => {
    const limits = { wallMs: 60_000, memoryBytes: 64 * MIB, pids: 16, cpuPercent: 100 }
    const stdin = 'x'.repeat(700_000)
    const counted = await probe.ask({ op: 'exec', request: { argv: ['cat'], stdin, limits } })
    expect(counted).toMatchObject({ ended: { ok: true, value: { exitCode: 0 } }, bytes: { stdout: 700_000 } })
    const ignored = await probe.ask({
      op: 'exec',
      request: { argv: ['sh', '-c', 'exec <&-; sleep 0.3; exit 5'], stdin, limits },
    })
    expect(ignored).toMatchObject({ ended: { ok: true, value: { exitCode: 5 } } })
  })

  it('a full disk is reported, and is usable again once something is deleted [V.06]', async () => {
    const called = await bash('head -c 1G /dev/zero > big')
    expect(called.result.value.stderr).toContain('No space left on device')
    expect(called.result.value).toMatchObject({ exitCode: 1, diskFull: true })
    expect(called.told).toContain('the disk is full')
    expect((await valueFrom(bash('rm big; echo fits > small; cat small; rm small'))).stdout).toBe('fits\n')
    await expectNothingLeft()
  })

  it('after a time-out nothing of a call lives on, however it hid [S1.04]', async () => {
    const hidden = `for i in 1 2 3 4 5; do (trap '' TERM HUP; setsid bash -c "trap '' TERM HUP; sleep 1000 & sleep 1000" &) & done`
    const called = await bash(`${hidden}; sleep 1000`, { timeoutMs: 1_500 })
    expect(called.result.value).toMatchObject({ timedOut: true, exitCode: null, signal: 'SIGKILL' })
    expect(called.told).toContain('its time was over')
    await expectNothingLeft()
  })

  it('a call that is cancelled, or ends before what it started, leaves nothing [S1.04]', async () => {
    const cancelled = await bash('sleep 1000 & setsid sleep 1000', { cancelAfterMs: 700 })
    expect(cancelled.result).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    await expect.poll(() => probe.ask({ op: 'look' })).toMatchObject({ workProcesses: 0, callGroups: 0 })
    expect(await valueFrom(bash('setsid sleep 1000 & echo started'))).toMatchObject({
      stdout: 'started\n',
      exitCode: 0,
    })
    await expectNothingLeft()
  })

  it('ten calls at once each get their own output and exit code [S1.04]', async () => {
    const ended = await Promise.all(
      Array.from({ length: 10 }, (_, at) => valueFrom(bash(`echo ${at}; exit ${at}`))),
    )
    expect(ended.map(({ stdout, exitCode }) => [stdout, exitCode])).toEqual(
      Array.from({ length: 10 }, (_, at) => [`${at}\n`, at]),
    )
    await expectNothingLeft()
  })
})
