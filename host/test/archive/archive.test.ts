import { hash } from 'node:crypto'
import { appendFile, readFile, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { RunLimits, Task } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { encodeManifest } from '../../archive/format.ts'
import type { RunOptions } from '../../run-options.ts'
import { ReplaySetup } from '../../runs/replay/setup.ts'
import { writeEmptyQcow2 } from '../../vm/checkpoints/qcow2.ts'
import { runThatChanged } from '../support/changed-run.ts'
import { readFiles } from '../support/runs.ts'
import {
  elsewhere,
  exported,
  imported,
  interruptedRun,
  left,
  membersOf,
  runId,
  tarOf,
  unzipped,
  writeConfig,
  zipped,
} from './support.ts'

const before = { 'a.txt': 'one\n', 'b.txt': 'two\n' }

describe('a run as a file', () => {
  it('an ended run is shown, reviewed and applied where it was imported, to the directory that was named [R.09]', async () => {
    const { host, head } = await runThatChanged(before, { 'a.txt': 'changed\n', 'b.txt': 'two\n' })
    const archive = await exported(host)
    const there = await elsewhere()
    await writeFile(path.join(there.directory, 'a.txt'), 'one\n')
    await writeFile(path.join(there.directory, 'b.txt'), 'two\n')
    expect(await imported(there.host, archive, there.directory)).toEqual({
      runId,
      isNew: true,
      canContinue: false,
      withheld: {},
    })
    expect((await there.host.runs.read(runId)).at(-1)?.hash).toBe(head)
    const listed = { status: 'completed', prompt: 'p', workspace: there.directory }
    expect(await there.host.runs.summary(runId)).toMatchObject(listed)
    expect(await there.host.runs.list()).toMatchObject([listed])
    expect(await there.host.runs.find('last', there.directory)).toMatchObject({ runId })
    const changes = await there.host.changes(runId)
    expect((await changes.review()).map(({ path: name, state }) => [name, state.kind])).toEqual([
      ['a.txt', 'clear'],
    ])
    await changes.apply('all')
    expect(await readFiles(there.directory)).toEqual({ 'a.txt': 'changed\n', 'b.txt': 'two\n' })
    expect(await left(there.host)).toEqual([runId])
    expect(await exported(host)).toEqual(archive)
  })

  it('the same run is imported once; another with its ID is refused and left as it is [R.09]', async () => {
    const { host } = await runThatChanged(before, { 'a.txt': 'changed\n', 'b.txt': 'two\n' })
    const archive = await exported(host)
    const there = await elsewhere()
    await imported(there.host, archive, there.directory)
    expect(await imported(there.host, archive, there.directory)).toMatchObject({ isNew: false })
    const other = await runThatChanged(before, { 'b.txt': 'two\n' })
    await expect(imported(there.host, await exported(other.host), there.directory)).rejects.toMatchObject({
      code: 'not_possible_now',
    })
    expect(await left(there.host)).toEqual([runId])
  })

  it('an interrupted run has its disk and its options, without a key and without what was permitted [R.09, G.04]', async () => {
    const place = await interruptedRun({
      approvals: { mode: 'all' },
      egress: { rules: [{ effect: 'allow', host: 'example.com' }] },
    })
    const archive = await exported(place.host)
    const there = await elsewhere({ CAISSON_LLM_URL: 'http://127.0.0.1:9/v1' })
    const result = await imported(there.host, archive, there.directory)
    expect(result).toEqual({
      runId,
      isNew: true,
      canContinue: true,
      withheld: { notes: { env: ['NOTES_TOKEN', 'LANG'], headers: [] } },
    })
    const paths = there.host.runs.paths(runId)
    const stored = JSON.parse(await readFile(paths.options, 'utf8'))
    expect(stored.options).toEqual({
      prompt: 'p',
      model: 'm',
      workspace: there.directory,
      plan: {},
      vm: {},
      extensions: { mcpServers: { notes: { command: 'notes', args: ['--stdio'] } } },
    })
    for (const name of ['workspace.erofs', 'scratch/base.raw', 'scratch/layer-0.qcow2', 'exchanges.jsonl']) {
      const [here, copy] = [place.paths.directory, paths.directory].map((folder) => path.join(folder, name))
      expect((await readFile(copy ?? '')).equals(await readFile(here ?? ''))).toBe(true)
      expect((await stat(copy ?? '')).mode & 0o777).toBe(0o600)
    }
    await expect(there.host.resume(runId)).rejects.toMatchObject({
      code: 'invalid_options',
      message: expect.stringContaining(
        'MCP server notes needs values that no archive has: NOTES_TOKEN, LANG',
      ),
    })
  })

  it('whose MCP server has the name of another one here gets none of its values [R.09 A.09]', async () => {
    const resumed = async (command: string, more: Partial<RunOptions>) => {
      const archive = await exported((await interruptedRun(more)).host)
      const there = await elsewhere({ CAISSON_LLM_URL: 'http://127.0.0.1:9/v1' })
      const server = `command = "${command}"\nargs = ["--stdio"]\nenv = { NOTES_TOKEN = "here" }`
      await writeConfig(there.home, `[mcpServers.notes]\n${server}\n`)
      await imported(there.host, archive, there.directory)
      return await there.host.resume(runId).catch((error: unknown) => error)
    }
    // The run's own server, and one that its configuration had.
    for (const more of [{}, { extensions: {} }]) {
      expect(await resumed('my-notes', more)).toMatchObject({
        code: 'invalid_options',
        message: expect.stringContaining('another program or address than your notes'),
      })
      // The same server gets them: only the second value is missing.
      expect(await resumed('notes', more)).toMatchObject({ message: expect.stringMatching(/has: LANG/) })
    }
  })

  it('no key of the configuration, the environment or an MCP server is in the file, raw or unpacked [R.09, G.04]', async () => {
    const place = await interruptedRun()
    const file = path.join(place.env.HOME ?? '', 'key')
    await writeFile(file, 'config-secret-0123456789\n', { mode: 0o600 })
    await writeConfig(
      place.env.HOME ?? '',
      `[secrets.TOKEN]\nfrom = { file = "${file}" }\nhosts = ["example.com"]\n`,
    )
    const keys = ['config-secret-0123456789', 'env-key-0123456789abc', 'tok-0123456789abcdef']
    const { Host } = await import('../../host.ts')
    const host = new Host({ env: { ...place.env, SOME_API_KEY: keys[1] ?? '' } })
    for (const key of keys) {
      await appendFile(place.paths.agentLog, `${JSON.stringify({ said: `it is ${key}` })}\n`)
      await appendFile(place.paths.console, `console ${key}\n`)
    }
    const archive = await exported(host)
    const tar = unzipped(archive)
    for (const key of keys) {
      expect(archive.includes(key)).toBe(false)
      expect(tar.includes(key)).toBe(false)
      expect(tar.includes(Buffer.from(key).toString('base64').slice(2, -4))).toBe(false)
    }
    expect((await membersOf(tar)).get('console.txt')?.toString()).toBe('console [redacted]\n'.repeat(3))
    await appendFile(path.join(place.paths.scratch, 'layer-0.qcow2'), keys[1] ?? '')
    await expect(exported(host)).rejects.toMatchObject({
      code: 'denied',
      message: expect.stringContaining('scratch/layer-0.qcow2 holds a key'),
    })
  })
})

describe('a hostile file', () => {
  it('names no directories of this machine that a replay or the next export would copy [R.09 W.08]', async () => {
    const place = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'b' })
    const paths = place.host.runs.paths(runId)
    const secret = await temporaryFolder('private')
    await writeFile(path.join(secret, 'private.txt'), 'only-on-this-machine')
    const setup = ReplaySetup.parse({
      version: 1,
      task: Task.parse({ runId, prompt: 'p', model: 'm', limits: RunLimits.parse({}) }),
      approvals: { mode: 'ask', rules: [], interactive: false },
      egress: { rules: [], otherwise: 'deny' },
      include: [],
      vm: {},
      hooks: [],
      askingTools: [],
      folders: [{ name: 'private', root: secret }],
    })
    await writeFile(paths.setup, JSON.stringify(setup))
    await rm(paths.disk)
    // Not in the archive, since the directory has other files then.
    await writeFile(path.join(place.directory, 'a.txt'), 'other')
    const archive = await exported(place.host)
    await writeFile(path.join(place.directory, 'a.txt'), 'a')
    const there = await elsewhere()
    await imported(there.host, archive, there.directory)
    const notes: string[] = []
    const tar = unzipped(await exported(there.host, runId, notes))
    expect(tar.includes('only-on-this-machine')).toBe(false)
    expect([...(await membersOf(tar)).keys()]).not.toContain('workspace.erofs')
    expect(notes.join()).toContain('it was imported without it')
  })

  const there = async (archive: Buffer) => {
    const place = await elsewhere()
    const error = await imported(place.host, archive, place.directory).catch((thrown: unknown) => thrown)
    expect(await left(place.host)).toEqual([])
    return error
  }
  const refused = (text: string) => ({ code: 'invalid_archive', message: expect.stringContaining(text) })

  it('with other files, links, sizes or names than its manifest says is refused whole [R.09]', async () => {
    const { host } = await runThatChanged(before, { 'a.txt': 'changed\n', 'b.txt': 'two\n' })
    const archive = await exported(host)
    const members = await membersOf(unzipped(archive))
    const { sha256: _, ...manifest } = JSON.parse(members.get('manifest.json')?.toString() ?? '')
    const named = (changes: object) =>
      zipped(
        tarOf([['manifest.json', encodeManifest({ ...manifest, ...changes })], ...[...members].slice(1)]),
      )
    expect(await there(Buffer.from('no archive'))).toMatchObject({ code: 'invalid_archive' })
    expect(await there(Buffer.alloc(0))).toMatchObject({ code: 'invalid_archive' })
    expect(await there(archive.subarray(0, archive.length / 2))).toMatchObject({ code: 'invalid_archive' })
    expect(await there(zipped(tarOf(members, 'link')))).toMatchObject(
      refused('is not where its manifest says'),
    )
    expect(await there(zipped(tarOf([...members, ['x', Buffer.alloc(1)]])))).toMatchObject(
      refused('more files'),
    )
    const [first, ...rest] = manifest.members
    for (const name of ['../journal.jsonl', '/etc/passwd', 'base/../../x', 'journal.jsonl/x', 'kept/state'])
      expect(await there(named({ members: [{ ...first, name }, ...rest] }))).toMatchObject(
        refused('which no run has'),
      )
    expect(await there(named({ members: [...manifest.members, first] }))).toMatchObject(
      refused('named twice'),
    )
    expect(await there(named({ members: [{ ...first, bytes: 2 ** 40 }, ...rest] }))).toMatchObject(
      refused('at most'),
    )
    expect(await there(named({ runId: `run-${'0'.repeat(20)}` }))).toMatchObject(refused('the run is'))
    expect(await there(named({ journal: { ...manifest.journal, head: '0'.repeat(64) } }))).toMatchObject(
      refused('its journal is another'),
    )
    expect(await there(named({ canContinue: true }))).toMatchObject(refused('has ended'))
    expect(await there(named({ more: 1 }))).toMatchObject(refused('not of this format'))
  }, 60_000)

  it('with a disk that could lead QEMU to another file is refused [R.09, D3]', async () => {
    const place = await interruptedRun()
    const layer = path.join(place.paths.scratch, 'layer-0.qcow2')
    const whole = await readFile(layer)
    const changed = async (change: (bytes: Buffer) => void): Promise<unknown> => {
      const bytes = Buffer.from(whole)
      change(bytes)
      await writeFile(layer, bytes)
      return await there(await exported(place.host))
    }
    const bad = refused('scratch/layer-0.qcow2 is no layer')
    // The file below, its length, its format, another version, encryption, snapshots, an external file, other features.
    expect(await changed((b) => b.writeBigUInt64BE(300n, 8))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(11, 16))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(0xe2792aca, 104))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(0x44415441, 104))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(2, 4))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(1, 32))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(1, 60))).toMatchObject(bad)
    expect(await changed((b) => b.writeBigUInt64BE(4n, 72))).toMatchObject(bad)
    expect(await changed((b) => b.writeBigUInt64BE(8n, 72))).toMatchObject(bad)
    expect(await changed((b) => b.writeBigUInt64BE(2n ** 40n, 24))).toMatchObject(bad)
    // Tables and clusters behind the end.
    expect(await changed((b) => b.writeBigUInt64BE(2n ** 40n, 40))).toMatchObject(bad)
    expect(await changed((b) => b.writeBigUInt64BE(2n ** 40n, 48))).toMatchObject(bad)
    expect(await changed((b) => b.writeBigUInt64BE(2n ** 50n, 3 * 65_536))).toMatchObject(bad)
    expect(await changed((b) => b.writeUInt32BE(0, 0))).toMatchObject(bad)
    await writeEmptyQcow2(layer, 4 * 1024 * 1024)
    expect(await there(await exported(place.host))).toMatchObject(bad)
  }, 60_000)

  it('whatever byte of it is another is refused, or makes the same run; nothing is left behind [R.09]', async () => {
    const place = await interruptedRun()
    const archive = await exported(place.host)
    const tar = unzipped(archive)
    const target = await elsewhere()
    const random = seeded(20_261_124)
    const rounds = perTier(60, 1_500)
    let same = 0
    for (let round = 0; round < rounds; round += 1) {
      const bytes = Buffer.from(round % 2 === 0 ? archive : tar)
      const at = Math.floor(random() * bytes.length)
      const kind = Math.floor(random() * 3)
      const value = Math.floor(random() * 255) + 1
      if (kind === 0) bytes[at] = (bytes[at] ?? 0) ^ value
      else bytes.fill(value, at, Math.min(bytes.length, at + Math.floor(random() * 64) + 1))
      const cut = kind === 2 ? bytes.subarray(0, Math.max(1, at)) : bytes
      const given = round % 2 === 0 ? cut : zipped(cut)
      const error = await imported(target.host, given, target.directory).then(
        () => undefined,
        (thrown: unknown) => thrown,
      )
      if (error === undefined) {
        same += 1
        expect(await partsOf(unzipped(await exported(target.host)))).toEqual(await partsOf(tar))
        await target.host.runs.remove(runId)
      } else expect(error).toMatchObject({ code: 'invalid_archive' })
      expect(await left(target.host)).toEqual([])
    }
    expect(same).toBeLessThan(rounds)
  }, 600_000)
})

/** What of an archive does not depend on the machine. */
async function partsOf(tar: Buffer): Promise<Record<string, string>> {
  const members = [...(await membersOf(tar))].filter(
    ([name]) => !['manifest.json', 'run.json'].includes(name),
  )
  return Object.fromEntries(members.map(([name, content]) => [name, hash('sha256', content)]))
}

/** Numbers from 0 to below 1, the same each time. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296
    return state / 4_294_967_296
  }
}
