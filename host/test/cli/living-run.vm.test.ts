// Files and usage of the VM of a run under way, by the command line: also where programs of the guest forge the archives.
import { mkdir, readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { encodeEnd, encodeEntry, encodePadding, type TarEntry } from '../../control/tar.ts'
import { type CliEnd, cliPlace, type Place } from '../support/cli.ts'
import { writeFiles } from '../support/runs.ts'
import { getTestImage } from '../support/vm.ts'

beforeAll(async () => void (await getTestImage()))

/** Programs of the guest find it before the real one: it sends the archive that lies ready under the name asked for. */
const forger = `mkdir -p ~/.local/bin
printf '%s\\n' '#!/bin/sh' 'for last; do :; done' 'exec cat "/tmp/forged/$last"' >~/.local/bin/tar
chmod +x ~/.local/bin/tar`

type Forged = Partial<TarEntry> & { readonly path: string; readonly content?: string }

function archive(...entries: readonly Forged[]): Buffer {
  return Buffer.concat([
    ...entries.flatMap(({ content = '', ...entry }) => [
      encodeEntry({ type: 'file', mode: 0o644, mtimeMs: 0, target: '', size: content.length, ...entry }),
      Buffer.from(content),
      encodePadding(content.length),
    ]),
    encodeEnd(),
  ])
}

/** A device of characters: the header of a file with another type, and the sum to it. */
function deviceEntry(path: string): Buffer {
  const header = encodeEntry({ path, type: 'file', mode: 0o644, mtimeMs: 0, size: 0, target: '' })
  header.write('3', 156)
  header.write(' '.repeat(8), 148)
  const sum = header.reduce((total, byte) => total + byte, 0)
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return header
}

async function copyHonestly(place: Place, id: string): Promise<void> {
  const here = await temporaryFolder('copies')
  await writeFiles(here, { 'my folder/sub folder/ein Maß.txt': 'one\n', 'my folder/-rf': 'two\n' })
  const copy = (...paths: string[]) => place.run('vm', 'cp', ...paths)
  expect(await copy(path.join(here, 'my folder'), `${id}:in the VM`)).toMatchObject({ code: 0 })
  expect(await copy(path.join(here, 'my folder/-rf'), 'last:/tmp/one file')).toMatchObject({ code: 0 })
  expect(await copy(`${id}:/tmp/one file`, path.join(here, 'file back'))).toMatchObject({ code: 0 })
  expect(await readFile(path.join(here, 'file back'), 'utf8')).toBe('two\n')
  expect(await copy(`${id}:in the VM`, path.join(here, 'back'))).toMatchObject({ code: 0 })
  expect(await readFile(path.join(here, 'back/sub folder/ein Maß.txt'), 'utf8')).toBe('one\n')
  expect(await readFile(path.join(here, 'back/-rf'), 'utf8')).toBe('two\n')
  // The workspace that the agent works in.
  expect(await copy(`${id}:a.txt`, path.join(here, 'a.txt'))).toMatchObject({ code: 0 })
  expect(await readFile(path.join(here, 'a.txt'), 'utf8')).toBe('of the run\n')
}

async function copyForged(place: Place, id: string): Promise<void> {
  const [here, outside] = [await temporaryFolder('forged'), await temporaryFolder('outside')]
  const archives: Record<string, Buffer> = {
    parents: archive(
      { path: 'parents', type: 'directory' },
      { path: 'parents/good.txt', content: 'good' },
      { path: 'parents/../../escaped', content: 'x' },
    ),
    absolute: archive({ path: 'absolute', type: 'directory' }, { path: `${outside}/escaped`, content: 'x' }),
    other: archive({ path: 'elsewhere', type: 'directory' }, { path: 'elsewhere/x', content: 'x' }),
    through: archive(
      { path: 'through', type: 'directory' },
      { path: 'through/out', type: 'link', target: outside },
      { path: 'through/out/escaped', content: 'x' },
    ),
    device: Buffer.concat([
      archive({ path: 'device', type: 'directory' }).subarray(0, 512),
      deviceEntry('device/null'),
      archive({ path: 'device/good.txt', content: 'good' }),
    ]),
    huge: archive({ path: 'huge', type: 'directory' }, { path: 'huge/file', size: 2 ** 47, content: 'x' }),
    bound: archive({ path: 'bound', type: 'directory' }, { path: 'bound/file', content: 'x'.repeat(5_000) }),
    noise: Buffer.alloc(4_096, 'noise'),
  }
  await mkdir(path.join(here, 'forged'))
  for (const [name, bytes] of Object.entries(archives))
    await writeFile(path.join(here, 'forged', name), bytes)
  expect((await place.run('vm', 'cp', path.join(here, 'forged'), `${id}:/tmp/`)).code).toBe(0)
  expect((await place.run('vm', 'shell', id, '--', 'sh', '-c', forger)).code).toBe(0)
  const take = async (name: string, ...options: string[]): Promise<CliEnd> =>
    await place.run('vm', 'cp', ...options, `${id}:/tmp/forged/${name}`, path.join(here, name))
  expect(await take('parents')).toMatchObject({ code: 1, stderr: expect.stringContaining('leads out of') })
  expect(await take('absolute')).toMatchObject({ code: 1, stderr: expect.stringContaining('leads out of') })
  expect(await take('other')).toMatchObject({ code: 1, stderr: expect.stringContaining('asked for') })
  expect((await take('through')).code).not.toBe(0)
  expect(await take('device')).toMatchObject({ code: 1, stderr: expect.stringContaining('device/null') })
  expect((await take('huge')).stderr).toContain('the VM sent more than')
  expect((await take('bound', '--max-size', '4K')).stderr).toContain('the VM sent more than 4')
  expect((await take('noise')).code).not.toBe(0)
  expect(await readdir(outside)).toEqual([])
  expect((await readdir(here)).filter((name) => name.startsWith('escaped'))).toEqual([])
  expect(await readdir(path.join(here, 'device'))).toEqual(['good.txt'])
  const link = await readlink(path.join(here, 'through/out')).catch(() => null)
  if (link !== null) expect(link).toBe(outside)
}

describe('the VM of a run under way', { timeout: 400_000 }, () => {
  it('gives and takes files, shows what it uses and what holds for it, and forges no path on this machine [V.13 V.06]', async () => {
    const [begun, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    await using model = await startModelServer(async () => {
      begun.resolve()
      await released.promise
      return reply({ text: 'a.txt is there.' })
    })
    const place = await cliPlace(
      { 'a.txt': 'of the run\n' },
      { CAISSON_LLM_URL: model.baseUrl, CAISSON_LLM_KEY: 'sk-of-a-test', CAISSON_MODEL: 'test/model' },
    )
    const run = place.start('run', '--ram', '512M', '--allow-host', 'example.com', 'Is a.txt there?')
    await Promise.race([begun.promise, run.ended.then(({ stderr }) => Promise.reject(new Error(stderr)))])
    const [{ id, runId }] = [JSON.parse((await place.run('vm', 'list', '--json')).stdout)]
    await copyHonestly(place, id)
    await copyForged(place, id)

    const reading = JSON.parse((await place.run('vm', 'stats', runId, '--no-stream', '--json')).stdout)
    expect(reading).toMatchObject({ id, runId, state: 'running', memoryMaxBytes: 2 ** 29 })
    for (const name of ['memoryBytes', 'diskBytes', 'threads']) expect(reading[name], name).toBeGreaterThan(0)
    const details = JSON.parse((await place.run('vm', 'inspect', runId)).stdout)
    expect(details).toMatchObject({ id, runId, directory: place.workspace, egress: { otherwise: 'deny' } })
    expect(JSON.stringify(details.egress)).toContain('example.com')
    expect(JSON.stringify(details)).not.toContain('sk-of-a-test')

    released.resolve()
    await run.ended
    // The journal has what a person did in the VM, and the run continues to its end.
    const events = (await place.journal()).map(({ event }) => event)
    const commands = events.flatMap((event) => (event.type === 'vm-access' ? [event.detail] : []))
    expect(commands.some((detail) => detail.startsWith('tar '))).toBe(true)
    expect(events.find(({ type }) => type === 'run-end')).toMatchObject({ outcome: 'completed' })
    expect(await place.leftovers()).toEqual([])
  })
})
