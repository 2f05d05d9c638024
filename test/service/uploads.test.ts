// Workspaces that callers upload as tar archives, and changes that they download as one. Real requests, no VM.
import { createHash } from 'node:crypto'
import { mkdir, readdir, stat, utimes, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import path from 'node:path'
import { Readable } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ServiceError } from '../../client/index.ts'
import { encodeEnd, encodeEntry, encodePadding, TarReader } from '../../host/control/tar.ts'
import {
  beginChanging,
  changedRunId,
  placeOfRuns,
  runThatChanged,
} from '../../host/test/support/changed-run.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'
import { readFiles } from '../../host/test/support/runs.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import { holderOf } from './keys-support.ts'
import { serveHost } from './support.ts'

function tarOf(files: Readonly<Record<string, string>>): Buffer<ArrayBuffer> {
  const entries = Object.entries(files).map(([name, content]) => {
    const size = Buffer.byteLength(content)
    const header = { path: name, type: 'file', mode: 0o644, mtimeMs: 0, target: '', size } as const
    return Buffer.concat([encodeEntry(header), Buffer.from(content), encodePadding(size)])
  })
  return Buffer.concat([...entries, encodeEnd()])
}

async function place() {
  const { host, env } = await placeOfRuns({})
  const folder = path.join(host.folders.home, 'service/workspaces')
  return { host, env, folder, ...(await serveHost(host)) }
}

const tar = { 'content-type': 'application/x-tar' }
const json = { 'content-type': 'application/json' }

describe('an uploaded workspace', () => {
  it('has the files of the archive, for its caller alone, and is one that a run may have [H.02 S4.11]', async () => {
    const { host, client, folder, send } = await place()
    const archive = tarOf({ 'a.txt': 'a\n', 'src/b.txt': 'b\n' })
    const made = await client.call('createWorkspace', { body: archive })
    expect(made).toMatchObject({ entries: 3, contentBytes: 4 })
    const directory = path.join(folder, made.id)
    expect(await readFiles(directory)).toEqual({ 'a.txt': 'a\n', 'src/b.txt': 'b\n' })
    expect((await stat(directory)).mode & 0o777).toBe(0o700)
    const stream = new Blob([archive]).stream() as ReadableStream<Uint8Array>
    expect((await client.call('createWorkspace', { body: stream })).id).not.toBe(made.id)

    // What comes after the workspace was found fails here.
    const body = { prompt: 'x', uploadedWorkspace: made.id, tools: ['no_such_tool'] }
    const start = (more: object = {}) =>
      send('POST', '/v1/runs', { headers: json, body: JSON.stringify({ ...body, ...more }) })
    expect((await start()).text).toContain('no_such_tool')
    expect((await start({ workspace: directory })).text).toContain('expected no workspace beside it')
    const unknown = await start({ uploadedWorkspace: `workspace-${'0'.repeat(32)}` })
    expect([unknown.status, unknown.text]).toEqual([
      404,
      expect.stringContaining('there is no uploaded workspace'),
    ])
    const key = await holderOf(host, { send }, 'ci')
    expect((await key.send('POST', '/v1/runs', body)).status).toBe(404)
    const mine = await send('POST', '/v1/workspaces', {
      headers: { ...tar, authorization: `Bearer ${key.secret}` },
      body: archive,
    })
    const { id } = mine.json as { id: string }
    expect((await key.send('POST', '/v1/runs', { ...body, uploadedWorkspace: id })).text).toContain(
      'no_such_tool',
    )
    const reader = await holderOf(host, { send }, 'reader', { scopes: ['read'] })
    const refused = await send('POST', '/v1/workspaces', {
      headers: { ...tar, authorization: `Bearer ${reader.secret}` },
      body: archive,
    })
    expect(refused.status).toBe(403)
  })

  it('is refused whole with a reason, and in bytes of another type; nothing is left [H.02 S1.08]', async () => {
    const { client, folder, send, host } = await place()
    const bad = tarOf({ 'good.txt': 'x', '../evil.txt': 'x' })
    const refused = await client.call('createWorkspace', { body: bad }).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(ServiceError)
    expect(refused).toMatchObject({
      status: 400,
      code: 'invalid_archive',
      message: expect.stringContaining('leads out'),
    })
    const post = async (path: string, headers: object, body: string | Buffer) => {
      const { status, json } = await send('POST', path, { headers: { ...headers }, body })
      return [status, (json as { code: string }).code]
    }
    expect(await post('/v1/workspaces', json, '{}')).toEqual([415, 'not_tar'])
    expect(await post('/v1/runs', tar, bad)).toEqual([415, 'not_json'])
    expect(await post('/v1/workspaces', {}, '')).toEqual([400, 'invalid_request'])
    expect(await readdir(folder)).toEqual([])

    const key = await holderOf(host, { send }, 'many')
    const mark = createHash('sha256').update(key.label).digest('hex').slice(0, 12)
    for (let count = 0; count < 100; count += 1)
      await mkdir(path.join(folder, `workspace-${String(count).padStart(20, '0')}${mark}`))
    const authorization = `Bearer ${key.secret}`
    expect(await post('/v1/workspaces', { ...tar, authorization }, tarOf({}))).toEqual([
      429,
      'too_many_requests',
    ])
  })

  it('of a caller with slow uploads keeps no other caller out [H.02 S4.11]', async () => {
    const { client, host, send, service } = await place()
    const { secret } = await holderOf(host, { send }, 'slow')
    const headers = { ...tar, authorization: `Bearer ${secret}` }
    const url = new URL('/v1/workspaces', service.url)
    const statuses: (number | undefined)[] = []
    for (let count = 0; count < 6; count += 1) {
      const asked = request(url, { method: 'POST', headers }).on('error', () => undefined)
      asked.once('response', ({ statusCode }) => statuses.push(statusCode))
      asked.write(tarOf({ 'a.txt': 'a' }).subarray(0, 512))
      onTestFinished(() => void asked.destroy())
    }
    // Two are under way.
    await expect.poll(() => statuses, { timeout: 10_000 }).toEqual([429, 429, 429, 429])
    expect(await client.call('createWorkspace', { body: tarOf({ 'a.txt': 'a\n' }) })).toMatchObject({
      entries: 1,
    })
  })

  it('goes with its last run, or by age with caisson clean [H.02]', async () => {
    const { host, env, client, folder } = await place()
    const [one, two] = ['run-00000000000000000001', 'run-00000000000000000002'] as const
    const upload = async () => (await client.call('createWorkspace', { body: tarOf({ 'a.txt': 'a\n' }) })).id
    const [used, left, fresh] = [await upload(), await upload(), await upload()]
    for (const id of [one, two]) {
      const end = await beginChanging(host, path.join(folder, used), id)
      await end(treeOf({}), treeOf({ 'new.txt': 'new\n' }))
    }
    await client.call('removeRun', { params: { run: one } })
    expect(await readFiles(path.join(folder, used))).toEqual({ 'a.txt': 'a\n' })
    const longAgo = new Date(Date.now() - 48 * 3_600_000)
    await mkdir(path.join(folder, '.upload-abcdef'))
    await writeFile(path.join(folder, '.upload-abcdef', 'part'), 'x')
    for (const name of [used, left, '.upload-abcdef']) await utimes(path.join(folder, name), longAgo, longAgo)
    const caisson = commandsIn(env)
    expect((await caisson('clean')).stdout).toContain('uploaded workspace that no run uses')
    expect((await caisson('clean', '--yes')).code).toBe(0)
    expect((await readdir(folder)).toSorted()).toEqual([used, fresh].toSorted())
    await client.call('removeRun', { params: { run: two } })
    expect(await readdir(folder)).toEqual([fresh])
  })
})

describe('the changes of a run as an archive', () => {
  it('are a list and the new files, with their modes; a damaged content breaks it off [H.02 W.01]', async () => {
    const { host } = await runThatChanged(
      { 'a.txt': 'one\n', 'gone.txt': 'x' },
      { 'a.txt': 'two\n', 'dir/new.txt': 'new\n' },
    )
    const { client } = await serveHost(host)
    const download = async () => {
      const stream = await client.call('getChangedFiles', { params: { run: changedRunId } })
      return await buffer(Readable.fromWeb(stream as never))
    }
    const reader = new TarReader(Readable.from([await download()]))
    const found: Record<string, unknown> = {}
    for (let entry = await reader.next(); entry !== null; entry = await reader.next()) {
      const content = await text(reader.content())
      found[entry.path] = entry.type === 'file' ? content : entry.type
    }
    await reader.end()
    const { changes } = JSON.parse(String(found['changes.json'])) as {
      changes: { path: string; kind: string }[]
    }
    expect(changes.map(({ path, kind }) => [path, kind])).toEqual([
      ['a.txt', 'file'],
      ['dir', 'directory'],
      ['dir/new.txt', 'file'],
      ['gone.txt', 'deleted'],
    ])
    expect(found).toMatchObject({
      'files/a.txt': 'two\n',
      'files/dir/': 'directory',
      'files/dir/new.txt': 'new\n',
    })
    await writeFile(path.join(host.runs.paths(changedRunId).directory, 'changes.bin'), 'XXXXXXXX')
    await expect(download()).rejects.toThrow()
  })
})
