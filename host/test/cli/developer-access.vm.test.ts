// A person's own ways into a VM that another process runs, by the command line as people use it.
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFile, readlink } from 'node:fs/promises'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { VmInfo } from '../../control/messages.ts'
import { textOf } from '../control/support.ts'
import { type CliProcess, cliPlace, type Place } from '../support/cli.ts'
import { getTestImage, waitUntilGone } from '../support/vm.ts'

const ctrl = (letter: string): string => String.fromCharCode(letter.charCodeAt(0) & 0x1f)
const size = ['--ram', '512M']
/** Says that it runs in a word that its echo does not have. */
const longCommand = `sh -c 'echo be""gun; sleep 1000'\r`

beforeAll(async () => void (await getTestImage()))

/** A VM of a process of its own, with the place's workspace. */
async function bootVm(place: Place): Promise<CliProcess> {
  const boot = place.start('vm', 'boot', ...size, '-w', place.workspace)
  await boot.sees('agent ready')
  return boot
}

/** What a terminal does when its window changes. */
async function resize({ child }: CliProcess, columns: number, rows: number): Promise<void> {
  const children = await readFile(`/proc/${child.pid}/task/${child.pid}/children`, 'utf8')
  const terminal = await readlink(`/proc/${children.trim()}/fd/0`)
  await promisify(execFile)('stty', ['-F', terminal, 'cols', String(columns), 'rows', String(rows)])
}

/** Types a command until its output is the wanted one: a new size takes its time to the guest. */
async function typeUntil(shell: CliProcess, command: string, wanted: string): Promise<void> {
  const before = shell.output().length
  await expect
    .poll(
      () => {
        shell.type(`${command}\r`)
        return sleep(500).then(() => shell.output().slice(before))
      },
      { timeout: 60_000 },
    )
    .toContain(wanted)
  await shell.sees(wanted)
}

/** One command each: its input, outputs and exit code. */
async function useCommands(place: Place): Promise<void> {
  const shell = (...command: string[]) => place.run('vm', 'shell', '--', ...command)
  const result = await shell('bash', '-c', 'cat a.txt; id -un; tty; echo problem >&2; exit 7')
  expect(result).toMatchObject({
    code: 7,
    stdout: 'from the workspace\nwork\nnot a tty\n',
    stderr: 'problem\n',
  })
  expect(await shell('no-such-program')).toMatchObject({
    code: 127,
    stderr: expect.stringMatching(/not found/),
  })
  expect((await shell('sh', '-c', 'kill -9 $$')).code).toBe(137)
  const sum = place.start('vm', 'shell', '--', 'sha256sum')
  sum.child.stdin?.end(Buffer.alloc(3_000_000))
  expect((await sum.ended).stdout).toBe(
    `${createHash('sha256').update(Buffer.alloc(3_000_000)).digest('hex')}  -\n`,
  )
  expect((await place.run('vm', 'shell', '--plain', '--', 'printf', '\\033[31mred\\033[0m\\n')).stdout).toBe(
    '\\e[31mred\\e[0m\n',
  )
  const endless = place.start('vm', 'shell', '--', 'sh', '-c', 'echo begun; sleep 1000')
  await endless.sees('begun')
  endless.child.kill('SIGTERM')
  expect((await endless.ended).code).toBe(3)
  await expect.poll(async () => (await shell('pgrep', '-c', 'sleep')).stdout).toBe('0\n')
  expect(await place.run('vm', 'shell')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('terminal'),
  })
}

/** A port of this machine leads to a server in the VM. */
async function usePorts(place: Place, id: string): Promise<void> {
  const server = place.start(
    'vm',
    'shell',
    '--',
    'python3',
    '-um',
    'http.server',
    '8123',
    '--bind',
    '127.0.0.1',
  )
  await server.sees('Serving HTTP')
  const forward = place.start('vm', 'forward', id, '0:8123')
  await forward.sees('forwards to port 8123')
  const port = Number(/127\.0\.0\.1:(\d+)/.exec(forward.output())?.[1])
  expect(await (await fetch(`http://127.0.0.1:${port}/page.html`)).text()).toBe('hello from the guest\n')
  const many = await Promise.all(
    Array.from({ length: 20 }, () => fetch(`http://127.0.0.1:${port}/page.html`)),
  )
  expect(many.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200))

  const taken = await place.run('vm', 'forward', id, `${port}:8123`)
  expect(taken.code).toBe(1)
  expect(taken.stderr).toContain('to use a free port')
  const nowhere = place.start('vm', 'forward', id, '0:9')
  await nowhere.sees('forwards to port 9')
  const socket = connect(Number(/127\.0\.0\.1:(\d+)/.exec(nowhere.output())?.[1]), '127.0.0.1')
  await expect(textOf(socket)).rejects.toThrow(/ECONNRESET/)
  await expect.poll(() => nowhere.errors()).toContain('ECONNREFUSED')
  nowhere.child.kill('SIGINT')
  expect((await nowhere.ended).code).toBe(0)
  forward.child.kill('SIGINT')
  expect((await forward.ended).code).toBe(0)
}

/** Its processors stand still, its memory stays, and it continues where it was. */
async function usePause(place: Place, id: string, pid: number): Promise<void> {
  expect(await place.run('vm', 'pause', id)).toMatchObject({ code: 0, stdout: `paused ${id}\n` })
  expect((await place.run('vm', 'list')).stdout).toMatch(new RegExp(`${id} +paused`))
  // QEMU itself may still stir at first; a guest that ran would tick in each such time.
  await expect.poll(() => ticksIn(1_500, pid), { timeout: 30_000 }).toBeLessThanOrEqual(2)
  expect(await place.run('vm', 'resume', id)).toMatchObject({ code: 0, stdout: `running ${id}\n` })
  const sent = Date.now()
  const { stdout } = await place.run('vm', 'shell', id, '--', 'date', '+%s%3N')
  const told = Number(stdout)
  expect(told).toBeGreaterThanOrEqual(sent - 50)
  expect(told).toBeLessThanOrEqual(Date.now() + 50)
}

async function ticksIn(ms: number, pid: number): Promise<number> {
  const before = await cpuTicks(pid)
  await sleep(ms)
  return (await cpuTicks(pid)) - before
}

/** User and system time of a process, in hundredths of a second as a rule (proc(5), fields 14 and 15). */
async function cpuTicks(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return Number(fields[11]) + Number(fields[12])
}

describe('a VM that another process runs', { timeout: 240_000 }, () => {
  it('is listed, runs commands, leads to its ports, stands still, gives its logs, and stops on request [V.08 V.06 V.04]', async () => {
    const place = await cliPlace({ 'a.txt': 'from the workspace\n', 'page.html': 'hello from the guest\n' })
    expect(await place.run('vm', 'list')).toMatchObject({ code: 0, stdout: 'no VM is running\n' })
    const boot = await bootVm(place)
    const [line = ''] = (await place.run('vm', 'list', '--json')).stdout.split('\n')
    const listed = JSON.parse(line)
    expect(listed).toMatchObject({
      directory: place.workspace,
      runId: null,
      state: 'running',
      memoryBytes: 2 ** 29,
    })
    expect(listed.hostPid).toBe(boot.child.pid)
    expect(VmInfo.shape.id.safeParse(listed.id).success).toBe(true)
    expect((await place.run('vm', 'list')).stdout).toMatch(new RegExp(`${listed.id} +running`))

    await useCommands(place)
    await usePorts(place, listed.id)
    await usePause(place, listed.id, listed.pid)

    const logs = await place.run('vm', 'logs', listed.id)
    expect(logs).toMatchObject({ code: 0, stdout: expect.stringContaining('caisson: init ready') })
    const following = place.start('vm', 'logs', listed.id, '--follow')
    await following.sees('init ready')

    const stopped = await place.run('vm', 'stop', listed.id.slice(0, 8))
    expect(stopped).toMatchObject({ code: 0, stdout: `stopped ${listed.id}\n` })
    expect(await waitUntilGone(listed.pid, 100)).toBe(true)
    expect((await following.ended).code).toBe(0)
    expect(await boot.ended).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('stopped by another process'),
    })
    expect(await place.leftovers()).toEqual([])
    expect(await place.run('vm', 'stop', listed.id)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('vm list'),
    })
  })

  it('has a terminal of the right size, with Ctrl-C, Ctrl-Z and Ctrl-D, and gives the person’s back even when its host is killed [V.08 V.06]', async () => {
    const place = await cliPlace({})
    const boot = await bootVm(place)
    const shell = place.startInTerminal('vm', 'shell')
    await shell.sees('/mnt/workspace $')
    shell.type('stty size\r')
    await shell.sees('40 100')
    await resize(shell, 120, 50)
    await typeUntil(shell, 'stty size', '50 120')
    shell.type(longCommand)
    await shell.sees('begun')
    shell.type(ctrl('C'))
    await shell.sees(/\^C[\s\S]*\$ $/)
    shell.type('echo code=$?\r')
    await shell.sees('code=130')
    shell.type(longCommand)
    await shell.sees('begun')
    shell.type(ctrl('Z'))
    await shell.sees('Stopped')
    shell.type('kill %1; echo rea""dy; cat > typed\r')
    await shell.sees('ready')
    shell.type(`one line\r${ctrl('D')}`)
    shell.type('wc -l typed; (exit 9)\r')
    await shell.sees(/1 typed[\s\S]*\$ $/)
    shell.type(ctrl('D'))
    expect((await shell.ended).code).toBe(9)

    const { pid } = JSON.parse((await place.run('vm', 'list', '--json')).stdout)
    const left = place.startInTerminal('vm', 'shell')
    await left.sees('/mnt/workspace $')
    left.type('\r~.')
    expect(await left.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('Left the shell') })

    const cut = place.startInTerminal('vm', 'shell')
    await cut.sees('/mnt/workspace $')
    boot.child.kill('SIGKILL')
    const end = await cut.ended
    expect(end).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('the connection to the shell was lost'),
    })
    // Cooked again: what `script` echoes after it has its line ends.
    expect(end.stdout).toContain('\u001b[?25h')
    expect(await waitUntilGone(pid)).toBe(true)
    expect(await place.run('vm', 'list')).toMatchObject({ stdout: 'no VM is running\n' })
  })
})

describe('caisson vm shell without a VM', { timeout: 240_000 }, () => {
  it('boots one on a copy of the directory, which reaches the hosts that are allowed, ends with the shell and brings nothing home [V.08 V.06]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    const result = await place.run(
      'vm',
      'shell',
      ...size,
      '-w',
      place.workspace,
      '--allow-host',
      'allowed.invalid',
      '--',
      'sh',
      '-c',
      'cat a.txt; rm a.txt; for h in allowed other; do curl -so /dev/null -w "%{http_connect} " https://$h.invalid/; done; echo',
    )
    expect(result).toMatchObject({
      code: 0,
      // One goes out and has no address; the other is refused.
      stdout: expect.stringMatching(/^a\n50\d 403 \n$/),
      stderr: expect.stringContaining('Its changes are discarded'),
    })
    expect(await place.run('vm', 'list')).toMatchObject({ stdout: 'no VM is running\n' })
    expect(await place.leftovers()).toEqual([])
  })

  it('ends when another process stops its VM, and says so [V.08 V.06]', async () => {
    const place = await cliPlace({})
    const shell = place.start(
      'vm',
      'shell',
      ...size,
      '-w',
      place.workspace,
      '--',
      'sh',
      '-c',
      'echo begun; sleep 1000',
    )
    await shell.sees('begun')
    const { id } = JSON.parse((await place.run('vm', 'list', '--json')).stdout)
    expect(await place.run('vm', 'stop', id)).toMatchObject({ code: 0, stdout: `stopped ${id}\n` })
    expect(await shell.ended).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('stopped by another process'),
    })
    expect(await place.leftovers()).toEqual([])
  })
})
