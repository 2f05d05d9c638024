// Hostile code of workflow functions in a VM: bounds of memory and processes, and what code can reach of agent and guest.
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { hostileCode } from '../../agent/test/support/hostile-code.ts'
import type { ProbeRequest } from './agents/code-probe.ts'
import { type ProbeVm, startProbeVm } from './probe-vm.ts'

type Code = Extract<ProbeRequest, { op: 'function' }>['code']

let probe: ProbeVm
let before: Look
beforeAll(async () => {
  probe = await startProbeVm(192 * 1024 ** 2)
  before = await look()
})
afterAll(async () => probe?.[Symbol.asyncDispose]())

interface Look {
  readonly workProcesses: number
  readonly callGroups: number
  readonly initKiB: number
  readonly agentMiB: number
}
const look = () => probe.ask<Look>({ op: 'look' })
const call = (code: Code) => probe.ask<string>({ op: 'function', code })
const python = (...lines: string[]) => call({ language: 'python', code: lines.join('\n') })

describe('hostile code', () => {
  it.each(hostileCode.filter(({ needsVm }) => needsVm))(
    'that $what ($language) ends with a typed reason and leaves nothing [S3.05 S3.10]',
    async ({ gives, ...code }) => {
      expect(await call(code)).toMatch(gives)
    },
  )
})

/** Python that says what happens: the result of each entry, or the name of its exception. */
const attempts = (entries: Readonly<Record<string, string>>): string[] => [
  'import ctypes, glob, os, pwd, shutil, signal, socket, subprocess, sys',
  'def attempt(action):',
  '    try: return action()',
  '    except BaseException as error: return type(error).__name__',
  'def unix(address):',
  '    with socket.socket(socket.AF_UNIX) as one: return one.connect(address)',
  'def tcp(host, port):',
  '    with socket.create_connection((host, port), 2) as one: return "connected"',
  'def files(pattern): return sorted(glob.glob(pattern))',
  'libc = ctypes.CDLL(None, use_errno=True)',
  'def work(a):',
  '    return {',
  ...Object.entries(entries).map(
    ([name, action]) => `        ${JSON.stringify(name)}: attempt(lambda: ${action}),`,
  ),
  '    }',
]

describe('code cannot', () => {
  it('read memory, environment or files of the agent and of PID 1 [S3.10]', async () => {
    const given = await python(
      ...attempts({
        // Its own process, bubblewrap's init, and nothing else.
        processes: 'len(files("/proc/[0-9]*")) <= 3',
        environment: '[name for name in os.environ if "CAISSON" in name or "KEY" in name]',
        agentFiles: 'files("/opt/caisson/*") + files("/run/caisson/*") + files("/sys/*")',
        ports: 'files("/dev/vport*") + files("/dev/virtio-ports/*") + files("/dev/vd*") + files("/dev/mem")',
        memory: 'open("/proc/1/mem", "rb").read(1)',
        kernel: 'open("/proc/kcore", "rb").read(1)',
        shadow: 'open("/etc/shadow").read()',
        descriptors: 'sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 4)',
      }),
    )
    expect(JSON.parse(given)).toEqual({
      processes: true,
      environment: [],
      agentFiles: [],
      ports: [],
      memory: expect.stringMatching(/^(PermissionError|OSError)$/),
      kernel: expect.stringMatching(/Error$/),
      shadow: expect.stringMatching(/^(PermissionError|FileNotFoundError)$/),
      descriptors: [],
    })
  })

  it('reach sockets of the agent, or anything outside the VM [S3.10]', async () => {
    const given = await python(
      ...attempts({
        helper: 'unix("/run/caisson/helper.sock")',
        abstract: '[line for line in open("/proc/net/unix") if "@" in line]',
        network: 'tcp("192.0.2.1", 80)',
        name: 'tcp("example.com", 443)',
        loopback: 'tcp("127.0.0.1", 22)',
        vsock: 'socket.socket(socket.AF_VSOCK).connect((2, 1))',
        raw: 'socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)',
        packets: 'socket.socket(socket.AF_PACKET, socket.SOCK_RAW)',
      }),
    )
    const refused = expect.stringMatching(/Error$|^gaierror$/)
    expect(JSON.parse(given)).toEqual({
      helper: refused,
      abstract: [],
      network: refused,
      name: refused,
      loopback: refused,
      vsock: refused,
      raw: 'PermissionError',
      packets: expect.stringMatching(/Error$/),
    })
  })

  it('become another user, mount, or end processes that are not its own [S3.10]', async () => {
    const given = await python(
      ...attempts({
        user: 'os.setuid(0)',
        ids: '[os.getuid(), os.geteuid(), os.getgid()]',
        mounted: 'libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)',
        root: 'os.chroot("/tmp")',
        device: 'os.mknod("/tmp/vda", 0o60660, os.makedev(254, 0))',
        hostname: 'socket.sethostname("taken")',
        sudo: 'subprocess.run(["sudo", "-n", "true"]).returncode',
        killed: 'os.kill(1, signal.SIGKILL)',
        reboot: 'libc.reboot(0x1234567)',
      }),
    )
    const result = JSON.parse(given)
    expect(result).toMatchObject({
      user: expect.stringMatching(/^(PermissionError|OSError)$/),
      ids: [1000, 1000, 1000],
      mounted: -1,
      root: 'PermissionError',
      device: 'PermissionError',
      hostname: 'PermissionError',
      reboot: -1,
    })
    expect(result.sudo).not.toBe(0)
    expect((await look()).agentMiB).toBeGreaterThan(0)
  })

  it('write outside the workspace and its own folders, also by links [S3.10]', async () => {
    const write = (path: string) => `open(${JSON.stringify(path)}, "w").write("x")`
    const given = await python(
      ...attempts({
        etc: write('/etc/caisson'),
        program: write('/usr/bin/python3'),
        kernel: write('/proc/sys/kernel/core_pattern'),
        link: '(os.symlink("/etc", "out"), open("out/caisson", "w"))',
        // Of file systems that this call alone has.
        own: `[${['/caisson', '../caisson', '/dev/caisson'].map((path) => `attempt(lambda: ${write(path)})`).join(', ')}] and None`,
        workspace: '(os.remove("out"), open("in", "w").write("x"), os.remove("in"))[1]',
      }),
    )
    const refused = expect.stringMatching(/^(PermissionError|OSError)$/)
    const outcomes = { etc: refused, program: refused, kernel: refused, link: refused }
    expect(JSON.parse(given)).toEqual({ ...outcomes, own: null, workspace: 1 })
    const paths = ['/caisson', '../caisson', '/dev/caisson', '/etc/caisson'].map((path) =>
      JSON.stringify(path),
    )
    expect(
      await python(
        'import os',
        `def work(a): return os.listdir(".") + [p for p in (${paths}) if os.path.exists(p)]`,
      ),
    ).toBe('[]')
  })
})

describe('after all of it', () => {
  it('no process, group of processes or memory is left, and the next calls work [S3.10]', async () => {
    const after = await look()
    expect(after).toMatchObject({ workProcesses: 0, callGroups: 0 })
    expect(after.initKiB - before.initKiB).toBeLessThan(4 * 1024)
    expect(after.agentMiB - before.agentMiB).toBeLessThan(128)
    expect(await python('def work(a): return a')).toBe('1')
    expect(await call({ language: 'javascript', code: 'function work(a) { return a }' })).toBe('1')
  })
})
