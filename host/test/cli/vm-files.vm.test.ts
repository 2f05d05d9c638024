// Files and usage of a living VM, by the command line and by the library: one VM for all of it.
import { readFile, readlink } from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { cliPlace, type Place } from '../support/cli.ts'
import { writeFiles } from '../support/runs.ts'
import { getTestImage } from '../support/vm.ts'

beforeAll(async () => void (await getTestImage()))

/** Files and folders, and archives on pipes, in both directions. */
async function useCopies(place: Place, id: string): Promise<void> {
  const here = await temporaryFolder('copies')
  await writeFiles(here, { 'tree/sub/one.txt': 'one\n', 'tree/run.sh': 'true\n' })
  const copy = (...paths: string[]) => place.run('vm', 'cp', ...paths)
  expect(await copy(path.join(here, 'tree'), `${id}:brought`)).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('copied 2 files'),
  })
  const made = 'cat brought/sub/one.txt; id -un; mkfifo brought/pipe; ln -s /etc/passwd brought/link'
  expect((await place.run('vm', 'shell', '--', 'sh', '-c', made)).stdout).toBe('one\nwork\n')
  const back = await copy(`${id}:/mnt/workspace/brought`, path.join(here, 'back'))
  expect(back).toMatchObject({ code: 1, stderr: expect.stringContaining('not copied: brought/pipe') })
  expect(await readFile(path.join(here, 'back/sub/one.txt'), 'utf8')).toBe('one\n')
  expect(await readlink(path.join(here, 'back/link'))).toBe('/etc/passwd')

  const archive = place.start('vm', 'cp', `${id}:brought/sub`, '-')
  const unpack = place.start('vm', 'cp', '-', `${id}:/tmp`)
  if (archive.child.stdout === null || unpack.child.stdin === null) throw new Error('no pipes')
  archive.child.stdout.pipe(unpack.child.stdin)
  expect([(await archive.ended).code, (await unpack.ended).code]).toEqual([0, 0])
  expect((await copy(`${id}:/no/such/file`, here)).stderr).toContain('No such file')
  expect(await copy(`${id}:a.txt`, `${id}:b.txt`)).toMatchObject({ code: 2 })
}

/** What the host counts of the VM, and what it knows of it. */
async function readStats(place: Place, id: string): Promise<void> {
  const stats = await place.run('vm', 'stats', '--no-stream', '--json')
  expect(JSON.parse(stats.stdout)).toMatchObject({ id, state: 'running', memoryMaxBytes: 2 ** 29 })
  const reading = JSON.parse(stats.stdout)
  for (const name of ['memoryBytes', 'diskBytes', 'threads']) expect(reading[name], name).toBeGreaterThan(0)
  expect(reading.cpuPercent).toBeGreaterThanOrEqual(0)
  expect((await place.run('vm', 'stats', '--no-stream', id)).stdout).toMatch(/^VM +STATE +CPU[\s\S]*%/)
  expect(JSON.parse((await place.run('vm', 'inspect', id)).stdout)).toMatchObject({
    id,
    directory: place.workspace,
    egress: null,
    imageKey: expect.stringMatching(/^[0-9a-f]+$/),
    usage: { diskBytes: expect.any(Number) },
  })
}

async function useLibrary(home: string): Promise<void> {
  const here = await temporaryFolder('copies')
  await writeFiles(here, { 'tree/sub/one.txt': 'one\n' })
  await using host = new Host({ env: { ...process.env, CAISSON_HOME: home } })
  const box = await host.sandbox({ vm: { memoryBytes: 512 * 1024 ** 2 } })
  expect(await box.copyIn(path.join(here, 'tree'), 'data')).toMatchObject({ files: 1, bytes: 4 })
  expect(Buffer.from(await box.readFile('data/sub/one.txt')).toString()).toBe('one\n')
  await box.copyOut('data/.', path.join(here, 'back'))
  expect(await readFile(path.join(here, 'back/sub/one.txt'), 'utf8')).toBe('one\n')
  await expect(box.copyOut('no-such-file', here)).rejects.toMatchObject({ code: 'file_not_found' })
}

describe('files and usage of a living VM', { timeout: 300_000 }, () => {
  it('are copied in and out, as folders and as archives, by command line and library, and usage is shown [V.13 V.06]', async () => {
    const place = await cliPlace({ 'a.txt': 'from the workspace\n' })
    const boot = place.start('vm', 'boot', '--ram', '512M', '-w', place.workspace)
    await boot.sees('agent ready')
    const { id } = JSON.parse((await place.run('vm', 'list', '--json')).stdout)
    await useCopies(place, id)
    await readStats(place, id)
    expect((await place.run('vm', 'stop', id)).code).toBe(0)
    await useLibrary(place.home)
  })
})
