// A sandbox in a real VM, as an application uses it: one VM for all of it.
import { randomBytes } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import { writeFiles } from '../support/runs.ts'
import { getTestImage, isRunning, makeTestFolders } from '../support/vm.ts'

beforeAll(async () => void (await getTestImage()))

async function useCommands(box: Sandbox): Promise<void> {
  const seen: [string, number][] = []
  const streamed = await box.exec('echo one; sleep 6; echo two >&2; id -un; pwd', {
    onStdout: (text) => void seen.push([text, performance.now()]),
  })
  expect(streamed).toMatchObject({
    exitCode: 0,
    stdout: 'one\nwork\n/mnt/workspace\n',
    stderr: 'two\n',
    truncated: false,
  })
  expect(seen[0]?.[0]).toBe('one\n')
  expect((seen.at(-1)?.[1] ?? 0) - (seen[0]?.[1] ?? 0)).toBeGreaterThan(2_000)

  expect(await box.exec('echo no >&2; exit 7')).toMatchObject({ exitCode: 7, stderr: 'no\n' })
  expect(await box.exec(['no-such-program'])).toMatchObject({ exitCode: 127 })
  expect(await box.exec('kill -9 $$')).toMatchObject({ exitCode: 137, timedOut: false })
  expect(await box.exec(['cat'], { input: 'a\nb' })).toMatchObject({ exitCode: 0, stdout: 'a\nb' })
  expect(
    await box.exec('printf "%s|" "$NAME" "$PWD"', { cwd: 'data', env: { NAME: "it's $HOME\n" } }),
  ).toMatchObject({ exitCode: 0, stdout: "it's $HOME\n|/mnt/workspace/data|" })
  expect(await box.exec('pwd', { cwd: '/nowhere' })).toMatchObject({ exitCode: 126, stdout: '' })
  const long = await box.exec('head -c 3000000 /dev/zero | tr "\\0" x', { maxOutputBytes: 1_000 })
  expect(long).toMatchObject({ exitCode: 0, stdout: 'x'.repeat(1_000), truncated: true })
}

/** Also what such a command started is ended. */
async function endCommands(box: Sandbox): Promise<void> {
  const late = await box.exec('echo begun; sleep 1234 & sleep 1234', { timeoutMs: 8_000 })
  expect(late).toMatchObject({ exitCode: null, timedOut: true, stdout: 'begun\n' })
  const ending = new AbortController()
  const cancelled = box.exec('echo begun; sleep 1234', {
    signal: ending.signal,
    onStdout: () => ending.abort(new Error('enough')),
  })
  await expect(cancelled).rejects.toMatchObject({ code: 'cancelled' })
  await expect
    .poll(async () => (await box.exec('pgrep -fc "sleep 1234$"')).stdout, { timeout: 30_000 })
    .toBe('0\n')
}

async function useFiles(box: Sandbox): Promise<void> {
  expect(Buffer.from(await box.readFile('data/a.txt')).toString()).toBe('from the host\n')
  const bytes = Buffer.concat([Buffer.from([0, 255, 10, 13]), randomBytes(3_000_000)])
  const name = "new dir/it's\n-rf €"
  await box.writeFile(name, bytes)
  expect(Buffer.compare(await box.readFile(`/mnt/workspace/${name}`), bytes)).toBe(0)
  await box.writeFile(name, 'short')
  expect(Buffer.from(await box.readFile(name)).toString()).toBe('short')
  expect(await box.listFiles('new dir')).toEqual([{ name: "it's\n-rf €", type: 'file', bytes: 5 }])
  await box.remove('new dir')
  await expect(box.readFile(name)).rejects.toMatchObject({ code: 'file_not_found' })
  await expect(box.remove('new dir')).rejects.toMatchObject({ code: 'file_not_found' })
  await expect(box.listFiles('data/a.txt')).rejects.toMatchObject({ code: 'invalid_options' })
  await expect(box.readFile('data')).rejects.toMatchObject({ code: 'invalid_options' })
}

/** Links that lead out of the workspace, to files and by a directory, and a pipe that nobody writes to. */
async function refuseHostilePaths(box: Sandbox): Promise<void> {
  await box.exec('ln -s /etc/passwd out; ln -s /tmp way; ln -s data in; mkfifo pipe; ln -s out chain')
  for (const outside of ['out', 'chain', 'way/new', 'way'])
    for (const call of [() => box.readFile(outside), () => box.writeFile(outside, 'x')])
      await expect(call(), outside).rejects.toMatchObject({ code: 'invalid_options' })
  await expect(box.listFiles('way')).rejects.toMatchObject({ code: 'invalid_options' })
  await expect(box.remove('way/x')).rejects.toMatchObject({ code: 'invalid_options' })
  for (const call of [() => box.readFile('pipe'), () => box.writeFile('pipe', 'x')])
    await expect(call()).rejects.toMatchObject({ code: 'invalid_options' })
  expect(Buffer.from(await box.readFile('in/a.txt')).toString()).toBe('from the host\n')
  // The link, and not what it leads to.
  await box.remove('out')
  expect(await box.exec('test -e /etc/passwd && ! test -L out')).toMatchObject({ exitCode: 0 })
}

async function usePort(box: Sandbox): Promise<void> {
  const ending = new AbortController()
  const started = Promise.withResolvers<void>()
  const server = box.exec('exec python3 -um http.server 8123 --bind 127.0.0.1', {
    signal: ending.signal,
    onStdout: () => started.resolve(),
  })
  server.catch(() => undefined)
  await started.promise
  await using port = await box.forward(8123)
  const answer = await fetch(`http://127.0.0.1:${port.port}/data/a.txt`)
  expect([answer.status, await answer.text()]).toEqual([200, 'from the host\n'])
  ending.abort()
  await expect(server).rejects.toMatchObject({ code: 'cancelled' })
}

/** What no rule allows is refused with the reason; what one allows is connected, and refused for its address. */
async function useNetwork(box: Sandbox): Promise<void> {
  const denied = await box.exec('curl -sS http://other.test/')
  expect(denied.stdout).toContain('other.test')
  expect(denied.stdout).toMatch(/[Rr]efused/)
  const allowed = await box.exec('curl -sS -o /dev/null -w "%{http_code}" http://allowed.invalid/')
  expect(allowed).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/^50\d$/) })
}

describe('a sandbox in a real VM', { timeout: 240_000 }, () => {
  it('runs commands, has files and ports, refuses what leads out, and leaves nothing [V.11 V.12 V.06]', async () => {
    using home = makeTestFolders()
    const workspace = await temporaryFolder('workspace')
    await writeFiles(workspace, { 'data/a.txt': 'from the host\n' })
    await using host = new Host({ env: { ...process.env, CAISSON_HOME: home.folders.home } })
    const box = await host.sandbox({
      workspace,
      vm: { memoryBytes: 512 * 1024 ** 2 },
      egress: { rules: [{ effect: 'allow', host: 'allowed.invalid', schemes: ['http'] }] },
    })
    const { pid } = box.vm
    expect((await host.vms.list()).map(({ id, runId }) => [id, runId])).toEqual([[box.id, null]])
    await useCommands(box)
    await endCommands(box)
    await useFiles(box)
    await refuseHostilePaths(box)
    await usePort(box)
    await useNetwork(box)
    const running = box.exec('sleep 1234')
    running.catch(() => undefined)
    await box.writeFile('data/a.txt', 'changed')
    await box.close()
    await expect(running).rejects.toMatchObject({ code: 'cancelled' })
    expect(await isRunning(pid)).toBe(false)
    expect(await host.vms.list()).toEqual([])
    await expect(box.exec('true')).rejects.toMatchObject({ code: 'not_possible_now' })
    expect(await readFile(path.join(workspace, 'data/a.txt'), 'utf8')).toBe('from the host\n')
  })

  it('is ended with its VM when the host is closed while the VM starts [V.06 V.12]', async () => {
    using home = makeTestFolders()
    const host = new Host({ env: { ...process.env, CAISSON_HOME: home.folders.home } })
    const starting = host.sandbox({ vm: { memoryBytes: 512 * 1024 ** 2, start: 'cold' } })
    const refused = expect(starting).rejects.toMatchObject({ code: 'not_possible_now' })
    await expect.poll(async () => await readdir(home.folders.vms).catch(() => [])).not.toEqual([])
    await host.close()
    expect(await host.vms.list()).toEqual([])
    expect(await readdir(home.folders.vms)).toEqual([])
    await refused
  })
})
