import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { readJournal } from '../../journal/journal.ts'
import { RunStore } from '../../journal/run-store.ts'
import { isRunLocked, lockedRuns, RunLock } from '../../workspace/run-lock.ts'
import { unwrap } from './support.ts'

const first = 'run-00000000000000000001'
const second = 'run-00000000000000000002'

function start(...argv: string[]): ChildProcess {
  const child = fork(path.join(import.meta.dirname, 'run-holder.ts'), argv, {
    execArgv: ['--conditions=caisson-source'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

/** A process that holds the run, and the directory if one is given. */
async function holder(locks: string, runId: string, ...root: string[]): Promise<ChildProcess> {
  const child = start('hold', locks, runId, ...root)
  expect((await once(child, 'message'))[0]).toBe('holds')
  return child
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

/** A workspace with a folder in it, and two state folders. */
async function places() {
  const home = await temporaryFolder('run-lock')
  const [root, locks, otherLocks] = ['project', 'locks', 'other-locks'].map((name) => path.join(home, name))
  for (const folder of [root, locks, otherLocks]) await mkdir(folder ?? '')
  await mkdir(path.join(home, 'project/sub'))
  return {
    home,
    root: root ?? '',
    sub: path.join(home, 'project/sub'),
    locks: locks ?? '',
    otherLocks: otherLocks ?? '',
  }
}

describe('a run', () => {
  it('is held by one process, which others see until it died, also while it is stopped [R.06]', async () => {
    const { locks } = await places()
    const child = await holder(locks, first)
    child.kill('SIGSTOP')
    await expect(RunLock.take(locks, first)).rejects.toMatchObject({
      code: 'run_busy',
      message: expect.stringContaining(`${first} is in use by process ${child.pid}`),
    })
    expect([...(await lockedRuns(locks))]).toEqual([first])
    await kill(child)
    expect([...(await lockedRuns(locks))]).toEqual([])
    expect(await isRunLocked(locks, first)).toBe(false)
    await (await RunLock.take(locks, first))[Symbol.asyncDispose]()
    expect(await readdir(locks)).toEqual([])
  })

  it('is neither removed nor cleared of what it needs while it is held, however long it has not been written to [R.06]', async () => {
    const { home, locks } = await places()
    const runs = path.join(home, 'runs')
    await mkdir(runs)
    const store = new RunStore({ runs, locks })
    const paths = await store.create(first)
    const scratch = [paths.disk, paths.hibernated, paths.control]
    for (const file of scratch) await writeFile(file, '')
    const child = await holder(locks, first)
    await expect(store.remove(first)).rejects.toThrow('in use by process')
    await store.clearScratch()
    expect(await readdir(paths.directory)).toHaveLength(scratch.length)
    await kill(child)
    await store.clearScratch()
    expect(await readdir(paths.directory)).toEqual([])
    await store.remove(first)
    expect([...(await readdir(runs)), ...(await readdir(locks))]).toEqual([])
  })
})

describe('the folder of a run that never began', () => {
  it('is removed when it is old, has no line of a journal and only what a start writes [R.06]', async () => {
    const { home, locks } = await places()
    const runs = path.join(home, 'runs')
    await mkdir(runs)
    const store = new RunStore({ runs, locks })
    const long = new Date(Date.now() - 11 * 60_000)
    const make = async (digit: string, names: readonly string[], { text = '', at = long } = {}) => {
      const { directory } = await store.create(`run-${digit.repeat(20)}`)
      for (const name of names) await writeFile(path.join(directory, name), text)
      await utimes(directory, at, at)
    }
    await make('1', [])
    await make('2', ['journal.jsonl', 'run.json', 'replay.json', 'host.log'])
    await make('3', ['journal.jsonl'], { text: '{' })
    await make('4', ['run.json', 'changes.tar'])
    await make('5', ['run.json'], { at: new Date() })
    await make('6', ['run.json'])
    const child = await holder(locks, `run-${'6'.repeat(20)}`)
    await store.clearScratch()
    const digits = async () => (await readdir(runs)).map((name) => name.at(-1)).sort()
    expect(await digits()).toEqual(['3', '4', '5', '6'])
    await kill(child)
    await store.clearScratch()
    expect(await digits()).toEqual(['3', '4', '5'])
  })
})

describe('the directory of a run', () => {
  it('is held by one run at a time, which is named to others, and is free afterwards [R.06 W.06]', async () => {
    const { root, locks } = await places()
    await using one = await RunLock.take(locks, first)
    await using two = await RunLock.take(locks, second)
    const held = unwrap(await one.holdDirectory(root))
    expect(await two.holdDirectory(root, undefined, { waitMs: 0 })).toMatchObject({
      ok: false,
      error: {
        code: 'in_use',
        message: expect.stringContaining(`is being copied or changed by ${first} (process ${process.pid})`),
      },
    })
    const { signal } = new AbortController()
    const onWait = vi.fn()
    const waiting = two.holdDirectory(root, undefined, { signal, onWait })
    const cancelled = two.holdDirectory(root, undefined, { signal: AbortSignal.timeout(10) })
    expect(await cancelled).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    // Nobody hears of a directory that is busy for a moment.
    await expect.poll(() => onWait.mock.calls.length).toBe(1)
    await held[Symbol.asyncDispose]()
    await unwrap(await waiting)[Symbol.asyncDispose]()
    expect(onWait).toHaveBeenCalledTimes(1)
    await unwrap(await two.holdDirectory(root, undefined, { onWait }))[Symbol.asyncDispose]()
    expect(onWait).toHaveBeenCalledTimes(1)
    expect((await readdir(locks)).toSorted()).toEqual([`${first}.lock`, `${second}.lock`])
  })

  it('is known under any path, with what lies in it and above it [R.06]', async () => {
    const { home, root, sub, locks } = await places()
    const alias = path.join(home, 'alias')
    await symlink(root, alias)
    const inside = path.join(sub, 'inside')
    await mkdir(inside)
    await using one = await RunLock.take(locks, first)
    await using two = await RunLock.take(locks, second)
    await using _ = unwrap(await one.holdDirectory(sub))
    for (const other of [root, path.join(alias, 'sub'), inside])
      expect(await two.holdDirectory(other, undefined, { waitMs: 0 })).toMatchObject({
        ok: false,
        error: { code: 'in_use' },
      })
    const beside = path.join(root, 'beside')
    await mkdir(beside)
    await unwrap(await two.holdDirectory(beside))[Symbol.asyncDispose]()
  })

  it('is held whichever state folder asks, in it and above it too, and under another name [R.06]', async () => {
    const { home, root, sub, locks, otherLocks } = await places()
    const child = await holder(locks, first, sub)
    await using other = await RunLock.take(otherLocks, first)
    for (const place of [sub, root]) {
      expect(await other.holdDirectory(place, undefined, { waitMs: 0 })).toMatchObject({
        ok: false,
        error: { code: 'in_use', message: expect.stringContaining('CAISSON_HOME') },
      })
    }
    const moved = path.join(home, 'project/moved')
    await rename(sub, moved)
    expect(await other.holdDirectory(moved, undefined, { waitMs: 0 })).toMatchObject({
      ok: false,
      error: { code: 'in_use' },
    })
    await kill(child)
    await using _ = unwrap(await other.holdDirectory(moved))
    expect(await readdir(root)).toEqual(['moved'])
  })

  it('is free again once its process was killed, after what that left was settled [R.06 R.07]', async () => {
    const { root, sub, locks } = await places()
    await kill(await holder(locks, first, sub))
    await using two = await RunLock.take(locks, second)
    const settled: unknown[] = []
    await using _ = unwrap(await two.holdDirectory(root, (killed) => settled.push(killed)))
    expect(settled).toEqual([{ runId: first, directory: sub }])
    expect(await readdir(locks)).toEqual([`${second}.lock`])
  })

  it('that is gone is an error and leaves nothing held [R.06]', async () => {
    const { root, sub, locks } = await places()
    await rm(sub, { recursive: true })
    await using one = await RunLock.take(locks, first)
    expect(await one.holdDirectory(sub)).toMatchObject({
      ok: false,
      error: { message: expect.stringContaining('ENOENT') },
    })
    await using _ = unwrap(await one.holdDirectory(root))
  })
})

// Continuous integration is root on Linux and always runs this; elsewhere namespaces cannot be made.
describe.skipIf(process.platform !== 'linux' || process.getuid?.() !== 0)(
  'a run in another container',
  () => {
    it('that shares the state folder is alive: its disk, socket and saved VM stay, and its directory is in use [R.06]', async () => {
      const { home, root, locks } = await places()
      const runs = path.join(home, 'runs')
      await mkdir(runs)
      const store = new RunStore({ runs, locks })
      const paths = await store.create(first)
      for (const file of [paths.disk, paths.hibernated, paths.control]) await writeFile(file, '')
      const program = path.join(import.meta.dirname, 'run-holder.ts')
      const words = [
        '--fork',
        '--pid',
        '--mount-proc',
        '--kill-child',
        process.execPath,
        '--conditions=caisson-source',
      ]
      const child = fork(program, ['hold', locks, first, root], {
        execPath: '/usr/bin/unshare',
        execArgv: words,
      })
      onTestFinished(() => void child.kill('SIGKILL'))
      expect((await once(child, 'message'))[0]).toBe('holds')
      await store.clearScratch()
      expect(await readdir(paths.directory)).toHaveLength(3)
      expect((await store.list()).map(({ isLive }) => isLive)).toEqual([true])
      await using two = await RunLock.take(locks, second)
      expect(await two.holdDirectory(root, undefined, { waitMs: 0 })).toMatchObject({
        ok: false,
        error: { code: 'in_use' },
      })
    })
  },
)

describe('a journal', () => {
  it('that many processes want to write, some of them killed, is one whole chain [R.06 S0.12]', async () => {
    const { home, locks } = await places()
    const file = path.join(home, 'journal.jsonl')
    const count = 6
    const processes = perTier(5, 20)
    const writers = Array.from({ length: processes }, (_, at) =>
      start('write', locks, first, file, String(count), at % 5 === 0 ? 'dies' : 'lives'),
    )
    const codes = await Promise.all(writers.map(async (child) => (await once(child, 'exit'))[0]))
    expect(codes.filter((code) => code === 0)).toHaveLength((processes * 4) / 5)
    const events = await readJournal(file, first)
    // Those that are killed have written three lines each.
    expect(events).toHaveLength((processes / 5) * (4 * count + 3))
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, at) => at + 1))
    expect([...(await lockedRuns(locks))]).toEqual([])
  }, 120_000)
})
