import { type ChildProcess, spawn } from 'node:child_process'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { isLocked, removeLeftLock, takeLock } from '../../locks/file-lock.ts'
import { beginRun } from '../support/begun-run.ts'
import { placeOfRuns } from '../support/changed-run.ts'

const module = new URL('../../locks/file-lock.ts', import.meta.url).href

async function lockPlace(): Promise<string> {
  return path.join(await temporaryFolder('lock'), 'a.lock')
}

/** A process that takes the lock, says so, and lives on. @param before words of a command that starts it */
async function holder(file: string, before: readonly string[] = []): Promise<ChildProcess> {
  const code = `const { takeLock } = await import(${JSON.stringify(module)})
    await takeLock(${JSON.stringify(file)}); console.log('held'); setInterval(() => {}, 60_000)`
  const [command = '', ...words] = [...before, process.execPath]
  const child = spawn(command, [...words, '--conditions=caisson-source', '--input-type=module', '-e', code], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout as NonNullable<ChildProcess['stdout']>, 'data')
  return child
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit')
  child.kill('SIGKILL')
  await ended
}

/** How many programs the work starts. */
async function programsOf(work: () => Promise<unknown>): Promise<number> {
  let count = 0
  const onStart = () => {
    count += 1
  }
  subscribe('child_process', onStart)
  try {
    await work()
  } finally {
    unsubscribe('child_process', onStart)
  }
  return count
}

describe('a lock', () => {
  it('of this process is known without a program that asks the kernel, until somebody removes its file [R.05]', async () => {
    const file = await lockPlace()
    expect(await programsOf(() => isLocked(file))).toBe(0)
    await using lock = await takeLock(file)
    expect(await programsOf(async () => expect(await isLocked(file)).toBe(true))).toBe(0)
    await rm(file)
    expect(await isLocked(file)).toBe(false)
    const next = await takeLock(file)
    expect([lock.isOwn(), next.isOwn(), await isLocked(file)]).toEqual([false, true, true])
    await next[Symbol.asyncDispose]()
    expect(await isLocked(file)).toBe(false)
  })

  it('of a run at work is neither asked about nor waited for when another run starts [R.05 S4.12]', async () => {
    const { host } = await placeOfRuns({})
    await using held = new AsyncDisposableStack()
    for (let at = 0; at < 5; at += 1) {
      const { record, paths } = await beginRun(host, `run-${String(at).repeat(20)}`, '/nowhere')
      held.use(record)
      await writeFile(paths.control, '')
    }
    expect(await programsOf(() => host.runs.clearScratch())).toBe(0)
  })

  it('lets one in at a time, within one process too, and leaves nothing behind [R.05]', async () => {
    const file = await lockPlace()
    let inside = 0
    let most = 0
    const visit = async () => {
      await using _lock = await takeLock(file, { waitMs: 30_000 })
      most = Math.max(most, ++inside)
      await new Promise((resolve) => setTimeout(resolve, 5))
      inside -= 1
    }
    await Promise.all([visit(), visit(), visit(), visit()])
    expect(most).toBe(1)
    expect(await readdir(path.dirname(file))).toEqual([])
  })

  it('names its holder while others wait, and ends the wait at its bound or when asked [R.05]', async () => {
    const file = await lockPlace()
    await using lock = await takeLock(file)
    await lock.describe({ what: 'a test' })
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual({ pid: process.pid, what: 'a test' })
    await expect(takeLock(file)).rejects.toMatchObject({
      code: 'state_unavailable',
      holder: `process ${process.pid}`,
      message: expect.stringContaining('then try again'),
    })
    const stop = new AbortController()
    const holders: string[] = []
    const onWait = (holder: string) => {
      holders.push(holder)
      stop.abort()
    }
    await expect(takeLock(file, { waitMs: 60_000, signal: stop.signal, onWait })).rejects.toMatchObject({
      name: 'AbortError',
    })
    expect(holders).toEqual([`process ${process.pid}`])
    expect(await isLocked(file)).toBe(true)
  })

  it('is free once its holder was killed, whatever the file says, and stays held while it is stopped [R.05]', async () => {
    const file = await lockPlace()
    const child = await holder(file)
    child.kill('SIGSTOP')
    expect(await isLocked(file)).toBe(true)
    await expect(takeLock(file)).rejects.toThrow(`process ${child.pid} holds the lock`)
    await end(child)
    expect(await isLocked(file)).toBe(false)
    await writeFile(file, JSON.stringify({ pid: process.pid }))
    expect(await isLocked(file)).toBe(false)
    await using _lock = await takeLock(file)
    expect(await isLocked(file)).toBe(true)
  })

  it('passes to a waiter soon after its holder was killed [R.05]', async () => {
    const file = await lockPlace()
    const child = await holder(file)
    const waiting = takeLock(file, { waitMs: 60_000 })
    await end(child)
    await (await waiting)[Symbol.asyncDispose]()
    expect(await readdir(path.dirname(file))).toEqual([])
  })

  it('is not given away by a holder whose file somebody removed [R.05]', async () => {
    const file = await lockPlace()
    const lost = await takeLock(file)
    await rm(file)
    await using _lock = await takeLock(file)
    await lost[Symbol.asyncDispose]()
    expect(await isLocked(file)).toBe(true)
  })

  it('that a killed process left is removed, one that is held is not [R.05]', async () => {
    const file = await lockPlace()
    await writeFile(file, '')
    await removeLeftLock(file)
    expect(await readdir(path.dirname(file))).toEqual([])
    await using _lock = await takeLock(file)
    await expect(removeLeftLock(file)).rejects.toThrow('holds the lock')
    expect(await isLocked(file)).toBe(true)
  })

  it('that cannot be looked at is an error, never free [R.05]', async () => {
    const file = await lockPlace()
    await mkdir(file)
    await expect(takeLock(file)).rejects.toThrow('EISDIR')
    const held = path.join(path.dirname(file), 'held.lock')
    await holder(held)
    expect(await withoutDescriptors(`isLocked(${JSON.stringify(held)})`)).toContain('EMFILE')
    expect(await withoutDescriptors(`takeLock(${JSON.stringify(held)})`)).toContain('EMFILE')
    expect(await isLocked(held)).toBe(true)
  })
})

/** What the call gives in a process that has no file descriptor left. */
async function withoutDescriptors(call: string): Promise<string> {
  const code = `const { isLocked, takeLock } = await import(${JSON.stringify(module)})
    const { openSync } = await import('node:fs')
    const answer = () => ${call}.then((value) => 'gives ' + value, (error) => 'throws ' + error)
    try { for (;;) openSync('/dev/null') } catch {}
    const text = await answer()
    process.stdout.write(text, () => process.exit())`
  const child = spawn(
    '/bin/sh',
    [
      '-c',
      'ulimit -n 64; exec "$@"',
      'sh',
      process.execPath,
      '--conditions=caisson-source',
      '--input-type=module',
      '-e',
      code,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  let told = ''
  child.stdout.on('data', (piece) => {
    told += piece
  })
  await once(child, 'close')
  return told
}

// Continuous integration is root on Linux and always runs this; elsewhere namespaces cannot be made.
describe.skipIf(process.platform !== 'linux' || process.getuid?.() !== 0)('in another container', () => {
  it('a lock is held although its process cannot be seen from here, and nobody here has its number [R.05]', async () => {
    const file = await lockPlace()
    // There the process has a small number, which here is another's or nobody's.
    const child = await holder(file, ['unshare', '--fork', '--pid', '--mount-proc', '--kill-child'])
    const { pid } = JSON.parse(await readFile(file, 'utf8'))
    expect(pid).not.toBe(child.pid)
    expect(await isLocked(file)).toBe(true)
    await expect(takeLock(file)).rejects.toThrow('holds the lock')
    await end(child)
    await using _lock = await takeLock(file, { waitMs: 10_000 })
  })
})
