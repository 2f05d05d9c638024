// The files of a disk with checkpoints: an empty layer as QEMU reads it, what a start makes, and damaged records.
import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { CheckpointDisk } from '../../../vm/checkpoints/checkpoint-disk.ts'
import { writeEmptyQcow2 } from '../../../vm/checkpoints/qcow2.ts'

const run = promisify(execFile)
const GIB = 1024 ** 3

it.each([512, 512 * 1024 ** 2, 8 * GIB, 4_096 * GIB])(
  'an empty layer of a disk of %d bytes is a sound qcow2 file for QEMU, and takes little room [W.04]',
  async (bytes) => {
    const file = path.join(await temporaryFolder('qcow2'), 'layer.qcow2')
    await writeFile(file, 'what was there before')
    await writeEmptyQcow2(file, bytes)
    const { stdout } = await run('qemu-img', ['info', '--output=json', file])
    expect(JSON.parse(stdout)).toMatchObject({
      format: 'qcow2',
      'virtual-size': bytes,
    })
    const checked = await run('qemu-img', ['check', '--output=json', file])
    expect(JSON.parse(checked.stdout)).toMatchObject({ 'check-errors': 0, 'image-end-offset': 262_144 })
    expect((await stat(file)).blocks * 512).toBeLessThanOrEqual(32 * 1024)
  },
)

it('an empty layer has a size that its format can hold', async () => {
  const file = path.join(await temporaryFolder('qcow2'), 'layer.qcow2')
  await writeFile(file, 'kept')
  for (const bytes of [0, -512, 513, 512.5, Number.NaN, 4_097 * GIB])
    await expect(writeEmptyQcow2(file, bytes)).rejects.toThrow('no qcow2 file of')
  expect(await readFile(file, 'utf8')).toBe('kept')
})

/** A prepared disk over a base of 8 KiB. */
async function prepared() {
  const folder = await temporaryFolder('disk')
  const base = path.join(folder, 'template.raw')
  await writeFile(base, Buffer.alloc(8_192, 1))
  const start = { kind: 'overlay', base } as const
  const directory = path.join(folder, 'disk')
  const disk = await CheckpointDisk.create(directory)
  return { folder, start, directory, disk, files: await disk.prepare(start) }
}

it('a start makes files for this user alone, keeps the base of its template, and removes layers that nothing needs [W.04]', async () => {
  const { start, directory, disk, files } = await prepared()
  expect((await stat(directory)).mode & 0o777).toBe(0o700)
  for (const file of [files.top, ...files.spares]) expect((await stat(file)).mode & 0o777).toBe(0o600)
  await rm(start.base)
  expect((await readFile(files.base)).length).toBe(8_192)
  await disk.write([{ file: path.basename(files.top), checkpoint: 'one' }])

  const again = await CheckpointDisk.open(directory)
  // No template is needed any more.
  const next = await again.prepare({ kind: 'overlay', base: '/nowhere' })
  expect(next.sealed).toEqual([files.top])
  const names = await readdir(directory)
  expect(names.toSorted()).toEqual(
    [
      ...new Set([
        'base.raw',
        'disk.json',
        ...[files.top, next.top, ...next.spares].map((file) => path.basename(file)),
      ]),
    ].toSorted(),
  )
  // A file that another disk may share is never used anew.
  expect(next.spares).not.toContain(files.spares[0])
  const boot = await CheckpointDisk.create(path.join(directory, 'boot'))
  const { base } = await boot.prepare({ kind: 'blank', bytes: GIB })
  expect((await stat(base)).size).toBe(GIB)
})

it('a start whose template was rejected begins again with the next one', async () => {
  const { start, directory } = await prepared()
  const other = path.join(directory, '../other.raw')
  await writeFile(other, 'other'.padEnd(512))
  const disk = await CheckpointDisk.create(`${directory}-2`)
  await disk.prepare(start)
  await disk.write([])
  const { base } = await disk.prepare({ ...start, base: other })
  expect(await readFile(base, 'utf8')).toContain('other')
})

it.each<[string, (directory: string) => Promise<unknown>, string]>([
  ['without a record', (at) => rm(path.join(at, 'disk.json')), 'cannot be read'],
  ['with no JSON', (at) => writeFile(path.join(at, 'disk.json'), '{'), 'damaged'],
  [
    'with a path in a name',
    (at) => writeFile(path.join(at, 'disk.json'), recordOf([{ file: '../x.qcow2', checkpoint: 'one' }])),
    'damaged',
  ],
  ['of another version', (at) => writeFile(path.join(at, 'disk.json'), '{"version":2}'), 'another version'],
  [
    'without a layer that it names',
    (at) => writeFile(path.join(at, 'disk.json'), recordOf([{ file: 'layer-77.qcow2', checkpoint: 'one' }])),
    'layer-77.qcow2 is missing',
  ],
  [
    'with a directory in place of a layer',
    async (at) => {
      await rm(path.join(at, 'layer-0.qcow2'))
      await mkdir(path.join(at, 'layer-0.qcow2'))
    },
    'layer-0.qcow2 is missing',
  ],
  ['without a checkpoint', (at) => writeFile(path.join(at, 'disk.json'), recordOf([])), 'no checkpoint'],
])('a disk %s is refused, and nothing in it is changed [W.04]', async (_, damage, words) => {
  const { directory, disk, files } = await prepared()
  await disk.write([{ file: path.basename(files.top), checkpoint: 'one' }])
  await damage(directory)
  const before = await readdir(directory)
  const opened = CheckpointDisk.open(directory)
  await expect(opened).rejects.toMatchObject({
    code: 'state_corrupted',
    message: expect.stringContaining(words),
  })
  expect(await readdir(directory)).toEqual(before)
})

function recordOf(sealed: readonly object[]): string {
  return JSON.stringify({ version: 1, diskBytes: 8_192, sealed })
}

it('shares its files with a fork, which does not write to them [W.04]', async () => {
  const { directory, disk, files } = await prepared()
  await disk.write([{ file: path.basename(files.top), checkpoint: 'one' }])
  await expect(CheckpointDisk.fork(directory, `${directory}-copy`, 'two')).rejects.toThrow(
    'no checkpoint two',
  )
  const fork = await CheckpointDisk.fork(directory, `${directory}-copy`, 'one')
  const before = await readFile(files.top)
  const { sealed } = await fork.prepare({ kind: 'blank', bytes: 8_192 })
  expect((await stat(sealed[0] ?? '')).ino).toBe((await stat(files.top)).ino)
  expect(await readFile(files.top)).toEqual(before)
  expect(JSON.parse(await readFile(path.join(directory, 'disk.json'), 'utf8'))).toMatchObject({
    sealed: [{ checkpoint: 'one' }],
  })
})
