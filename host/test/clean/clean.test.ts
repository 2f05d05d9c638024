import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { freeKept } from '../../clean/free.ts'
import { listKept } from '../../clean/inventory.ts'
import { isFreed, type Kept, measure } from '../../clean/kept.ts'
import { runCli } from '../../cli/main.ts'
import { ensureImage } from '../../image/image.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { RunStore } from '../../journal/run-store.ts'
import { takeLock } from '../../locks/file-lock.ts'
import { ownIdentity } from '../../processes/process-identity.ts'
import { type Folders, prepareFolders, resolveFolders } from '../../state/folders.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { makeAgent, makeRecipe } from '../image/support.ts'
import { runStart } from '../support/run-values.ts'

const HOUR_MS = 60 * 60 * 1000
const oldKey = 'a'.repeat(64)
const oldDigest = 'b'.repeat(64)

interface Place {
  readonly folders: Folders
  readonly env: Record<string, string>
  readonly list: () => Promise<Kept[]>
  readonly image: Awaited<ReturnType<typeof ensureImage>>
}

/** State and cache with a current image and agent, and an old one of each. */
async function makePlace(): Promise<Place> {
  const root = await temporaryFolder('clean')
  const env = { HOME: root, CAISSON_HOME: path.join(root, 'home'), CAISSON_CACHE: path.join(root, 'cache') }
  const folders = resolveFolders(env)
  await prepareFolders(folders)
  const sources = { recipe: await makeRecipe(root), agent: await makeAgent(root) }
  const image = await ensureImage({ cacheDir: folders.cache, sources })
  await write(path.join(folders.cache, 'images', oldKey, 'root.erofs'), 'x'.repeat(10_000))
  await write(path.join(folders.cache, 'agents', oldDigest, 'agent.erofs'), 'x')
  await write(
    path.join(folders.cache, 'agents', `${'c'.repeat(64)}.json`),
    JSON.stringify({ digest: oldDigest }),
  )
  return { folders, env, image, list: () => listKept({ folders, sources, now: Date.now() }) }
}

async function write(file: string, content: string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 })
  await writeFile(file, content)
}

const find = (entries: readonly Kept[], name: string) => entries.find((entry) => entry.name === name)
const dry = { all: false, now: Date.now() }

async function clean(place: Place, ...flags: string[]) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const io = { stdin: new PassThrough(), stdout, stderr, env: place.env, version: '0' }
  const code = await runCli(['clean', ...flags], io)
  stdout.end()
  stderr.end()
  return { code, stdout: await text(stdout), stderr: await text(stderr) }
}

/** A process that has a file open and the name of a VM among its arguments, as QEMU has. */
function startHolder(file: string): ChildProcess {
  const script = `exec 3<'${file}'; echo open; read -r _`
  const child = spawn('sh', ['-c', script, 'caisson-vm-0123456789ab'], { stdio: ['pipe', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

describe('what a cleaning frees', () => {
  it('is what is old, current things by --all alone, runs by age alone, and nothing that is in use [V.07]', () => {
    const entry = (state: Kept['state'], usedAt = 0) =>
      ({ kind: 'run', name: 'x', path: '/x', bytes: 1, usedAt, state }) as const
    const of = (options: Parameters<typeof isFreed>[1]) =>
      (['busy', 'current', 'old', 'ended', 'unknown'] as const).filter((state) =>
        isFreed(entry(state), options),
      )
    expect(of({ all: false, now: 100 })).toEqual(['old'])
    expect(of({ all: true, now: 100 })).toEqual(['current', 'old'])
    expect(of({ all: false, runsOlderThanMs: 100, now: 100 })).toEqual(['old', 'ended'])
    expect(isFreed(entry('ended', 1), { all: true, runsOlderThanMs: 100, now: 100 })).toBe(false)
  })

  it('is removed with its notes, and the current image stays whole [V.07]', async () => {
    const place = await makePlace()
    const entries = await place.list()
    expect(find(entries, oldKey)).toMatchObject({ kind: 'image', state: 'old' })
    expect(find(entries, place.image.key)).toMatchObject({ kind: 'image', state: 'current' })
    expect(find(entries, place.image.agentDigest)).toMatchObject({ kind: 'agent', state: 'current' })
    const chosen = entries.filter((entry) => isFreed(entry, dry))
    expect(await freeKept(place.folders, chosen)).toMatchObject({ failed: [] })
    const { cache } = place.folders
    expect(await readdir(path.join(cache, 'images'))).toEqual([place.image.key])
    const agents = await readdir(path.join(cache, 'agents'))
    expect(agents.filter((name) => !name.endsWith('.json'))).toEqual([place.image.agentDigest])
    expect(agents).not.toContain(`${'c'.repeat(64)}.json`)
    expect((await readdir(cache)).filter((name) => name.startsWith('build-'))).toEqual([])
  })

  it('leaves what a running VM has open, and frees it once that ended [V.06]', async () => {
    const place = await makePlace()
    const holder = startHolder(path.join(place.folders.cache, 'images', oldKey, 'root.erofs'))
    await new Promise((resolve) => holder.stdout?.once('data', resolve))
    const during = await place.list()
    expect(find(during, oldKey)?.state).toBe('busy')
    expect(find(during, oldDigest)?.state).toBe('old')
    const closed = new Promise((resolve) => holder.once('close', resolve))
    holder.stdin?.end()
    await closed
    expect(find(await place.list(), oldKey)?.state).toBe('old')
  })

  it('leaves what the record of a saved VM names, of a run that waits for a person or of one that kept it [V.06]', async () => {
    const place = await makePlace()
    const image = [path.join(place.folders.cache, 'images', oldKey, 'root.erofs')]
    for (const name of ['hibernated', 'kept'] as const) {
      const { [name]: folder } = new RunStore(place.folders).paths('run-00000000000000000001')
      expect(find(await place.list(), oldKey)?.state).toBe('old')
      await write(path.join(folder, 'saved.json'), JSON.stringify({ image }))
      expect(find(await place.list(), oldKey)?.state).toBe('busy')
      await rm(folder, { recursive: true })
    }
  })

  it('is no folder that this version did not make, which is listed with its place, a run’s with the run [V.07]', async () => {
    const place = await makePlace()
    const { home, runs, vms } = place.folders
    const unknown = [path.join(home, 'older'), path.join(runs, 'drafts'), path.join(vms, 'saved')]
    for (const folder of unknown) await write(path.join(folder, 'memory'), 'x'.repeat(10_000))
    const run = new RunStore(place.folders).paths('run-00000000000000000001')
    await write(path.join(run.directory, 'older/memory'), 'x'.repeat(10_000))
    const entries = await place.list()
    const found = entries.filter(({ kind }) => kind === 'unknown')
    expect(found.map((entry) => entry.path).toSorted()).toEqual(unknown.toSorted())
    for (const { bytes, state } of found) expect([bytes >= 10_000, state]).toEqual([true, 'unknown'])
    expect(find(entries, run.runId)).toMatchObject({ note: expect.stringContaining('folder older') })
    const { code, stdout } = await clean(place, '--yes', '--all')
    expect([code, stdout]).toEqual([0, expect.stringContaining('did not make')])
    for (const folder of unknown) expect(await readdir(folder)).toEqual(['memory'])
    expect((await clean(place, '--yes', '--runs', '--older-than', '0h')).code).toBe(0)
    expect(await readdir(runs)).toEqual(['drafts'])
  })

  it('is no run that sleeps, however old, and no fork that is newer than its first run [V.07 R.01 V.05]', async () => {
    const place = await makePlace()
    const runs = new RunStore(place.folders)
    const make = async (digit: string, start: Partial<typeof runStart>, ...events: HostEvent[]) => {
      const runId = `run-${digit.repeat(20)}`
      await using record = await RunRecord.open(await runs.create(runId), { now: () => 1_000 })
      for (const event of [{ ...runStart, ...start }, ...events]) await record.host(event)
      return runId
    }
    const sleeping = await make('1', {}, { type: 'run-sleep', checkpointId: 'cp-1' })
    const fork = { runId: sleeping, checkpointId: null, step: 'start', at: Date.now() }
    const forked = await make('2', { forkedFrom: fork })
    await make('3', {})
    const { stdout } = await clean(place, '--yes', '--runs', '--older-than', '1h')
    expect(stdout).toMatch(/1{12} .* in use +sleeping: /)
    expect((await runs.ids()).toSorted()).toEqual([sleeping, forked])
  })

  it('leaves what another process builds right now, and says so [V.07]', async () => {
    const place = await makePlace()
    const old = find(await place.list(), oldKey) as Kept
    await using _lock = await takeLock(`${old.path}.lock`)
    expect(await freeKept(place.folders, [old])).toMatchObject({
      freed: [],
      failed: [{ reason: `process ${process.pid} is at work on it` }],
    })
    expect(await readdir(path.dirname(old.path))).toContain(oldKey)
  })

  it('is a template that nobody started from for a week [V.07]', async () => {
    const place = await makePlace()
    const [fresh, stale] = ['d'.repeat(32), 'e'.repeat(32)]
    for (const key of [fresh, stale])
      await write(path.join(place.folders.cache, 'templates', key, 'template.json'), '{}')
    const long = new Date(Date.now() - 8 * 24 * HOUR_MS)
    await utimes(path.join(place.folders.cache, 'templates', stale, 'template.json'), long, long)
    const entries = await place.list()
    expect([find(entries, fresh)?.state, find(entries, stale)?.state]).toEqual(['current', 'old'])
  })

  it('is a download that the lock does not name, and work that nobody is at [V.07]', async () => {
    const place = await makePlace()
    const { cache } = place.folders
    await write(path.join(cache, 'downloads', `${'0'.repeat(64)}.deb`), 'x')
    await write(path.join(cache, 'build-new', 'x'), 'x')
    await write(path.join(cache, 'build-old', 'x'), 'x')
    const long = new Date(Date.now() - 2 * HOUR_MS)
    await utimes(path.join(cache, 'build-old'), long, long)
    const draft = `.${'d'.repeat(64)}-AbC123`
    await write(path.join(cache, 'templates', draft, 'memory'), 'x')
    await utimes(path.join(cache, 'templates', draft), long, long)
    const entries = await place.list()
    const states = [`${'0'.repeat(64)}.deb`, 'build-new', 'build-old', draft].map(
      (name) => find(entries, name)?.state,
    )
    expect(states).toEqual(['old', 'busy', 'old', 'old'])
  })

  it('is the folder of a VM whose process is dead, and not that of a living one [V.06]', async () => {
    const place = await makePlace()
    const own = await ownIdentity()
    const dead = { ...own, pid: spawnSync('true').pid }
    const ids = ['vm-000000000001', 'vm-000000000002', 'vm-000000000003'] as const
    for (const [id, host] of [
      [ids[0], dead],
      [ids[1], dead],
      [ids[2], own],
    ] as const)
      await write(path.join(place.folders.vms, id, 'vm.json'), JSON.stringify({ id, createdAtMs: 1, host }))
    const entries = await place.list()
    // It may be opened at any moment while a VM of this state folder lives.
    expect(find(entries, place.image.key)?.state).toBe('busy')
    const leftovers = entries.filter(({ kind }) => kind === 'leftover')
    expect(leftovers.map(({ name }) => name).sort()).toEqual([ids[0], ids[1]])
    expect(await freeKept(place.folders, leftovers)).toMatchObject({ failed: [] })
    expect(await readdir(place.folders.vms)).toEqual([ids[2]])
  })

  it('is nothing that it does not know: unknown files are neither shown nor touched [V.07]', async () => {
    const place = await makePlace()
    const { cache } = place.folders
    for (const name of ['notes.txt', 'images/mine/x', 'agents/README', 'downloads/thesis.deb', 'build-x y/z'])
      await write(path.join(cache, name), 'x')
    const entries = await place.list()
    expect(entries.filter(({ name }) => !/^[0-9a-f]{16,64}(\.\w+)?$/.test(name))).toEqual([])
  })
})

describe('the size of a file', () => {
  it('is what it takes on disk [V.07]', async () => {
    const folder = await temporaryFolder('measure')
    await writeFile(path.join(folder, 'full'), Buffer.alloc(100_000, 1))
    const { bytes, inodes } = await measure(folder)
    expect(bytes).toBeGreaterThanOrEqual(100_000)
    expect(inodes).toHaveLength(2)
    expect(await measure(path.join(folder, 'none'))).toEqual({ bytes: 0, inodes: [] })
  })
})

describe('caisson clean', () => {
  it('shows what is there and removes nothing without --yes [H.01]', async () => {
    const place = await makePlace()
    const { code, stdout } = await clean(place)
    expect(code).toBe(0)
    expect(stdout).toMatch(/Images .*\n(?:.*\n)?.*a{16} +\d.* remove/)
    expect(stdout).toMatch(/can be removed\. Nothing was removed\.\nTo remove it: caisson clean --yes\n$/)
    expect(await readdir(path.join(place.folders.cache, 'images'))).toContain(oldKey)
  })

  it('frees with --yes, then finds nothing more to free [H.01]', async () => {
    const place = await makePlace()
    expect(await clean(place, '--yes')).toMatchObject({ code: 0, stdout: expect.stringContaining('Freed ') })
    expect(await readdir(path.join(place.folders.cache, 'images'))).not.toContain(oldKey)
    expect((await clean(place, '--yes', '--all')).code).toBe(0)
    expect(await readdir(path.join(place.folders.cache, 'images'))).toEqual([])
  })

  it('removes runs by age, never one that is at work, and shows untrusted words harmlessly [H.01]', async () => {
    const place = await makePlace()
    const [ended, live] = ['run-00000000000000000001', 'run-00000000000000000002']
    for (const run of [ended, live])
      await write(path.join(place.folders.runs, run, 'journal.jsonl'), '{"\u001b[2J":1}\n')
    await using _ = await RunLock.take(place.folders.locks, live)
    expect(await clean(place, '--older-than', '0h')).toMatchObject({ code: 2 })
    const shown = await clean(place)
    expect(shown.stdout).toContain('damaged journal')
    expect(shown.stdout).not.toContain('\u001b[2J')
    await clean(place, '--yes')
    expect(await readdir(place.folders.runs)).toHaveLength(2)
    const { stdout } = await clean(place, '--yes', '--runs', '--older-than', '0h', '--json')
    expect(JSON.parse(stdout)).toMatchObject({ failed: [], freedBytes: expect.any(Number) })
    expect(await readdir(place.folders.runs)).toEqual([live])
  })

  it('gives one JSON object that says what would go [H.01]', async () => {
    const place = await makePlace()
    const told = JSON.parse((await clean(place, '--json')).stdout) as {
      entries: (Kept & { isChosen: boolean })[]
      freedBytes: null
    }
    expect(told.freedBytes).toBeNull()
    expect(find(told.entries, oldKey)).toMatchObject({ isChosen: true, state: 'old', kind: 'image' })
  })
})
