// What a process that was killed while it applied left: staged files in the workspace and the lock file of its run.
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { runCli } from '../../cli/main.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { isLocked, takeLock } from '../../locks/file-lock.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { changedRunId, runThatChanged } from '../support/changed-run.ts'
import { unwrap } from '../workspace/support.ts'

const names = Array.from({ length: 20 }, (_, at) => `f${String(at).padStart(2, '0')}`)
const others = '.caisson-0123456789ab-7'
const lockName = `${changedRunId}.lock`

/** A run with changes whose apply was killed when the first of its files was in place. */
async function killedApply() {
  const run = await runThatChanged({}, Object.fromEntries(names.map((name) => [name, name])))
  const child = fork(path.join(import.meta.dirname, 'staging-apply.ts'), [changedRunId], {
    execArgv: ['--conditions=caisson-source'],
    env: { PATH: process.env.PATH, ...run.env },
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const [, signal] = await once(child, 'exit')
  expect(signal).toBe('SIGKILL')
  await writeFile(path.join(run.directory, others), 'mine')
  const staged = async () =>
    (await readdir(run.directory, { recursive: true })).filter((name) => /\.caisson-/.test(name)).toSorted()
  // All files but the first, and that of the user.
  expect(await staged()).toHaveLength(names.length)
  const { locks, home, cache } = run.host.folders
  expect(await readdir(locks)).toContain(lockName)
  const say = async (...argv: string[]) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    const { env, directory } = run
    const code = await runCli(argv, { stdin, stdout, stderr, env, version: '0', directory })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { ...run, staged, say, locks, home, cache }
}

describe('an apply that was killed half way', () => {
  it('leaves neither staged files nor a lock file once its run is removed, and what was applied stays [R.07 H.01]', async () => {
    const { say, staged, locks, host, directory } = await killedApply()
    expect(await say('runs', 'rm', 'last')).toMatchObject({ code: 0, stdout: `removed ${changedRunId}\n` })
    expect(await staged()).toEqual([others])
    expect(await readdir(directory)).toEqual([others, 'f00'])
    expect(await readdir(locks)).toEqual([])
    expect(await readdir(host.folders.runs)).toEqual([])
  })

  it('is shown by caisson clean as a lock file, which --yes removes with the staged files; the run can continue [R.07 V.07]', async () => {
    const { say, staged, locks } = await killedApply()
    const before = await staged()
    const shown = JSON.parse((await say('clean', '--json')).stdout) as { entries: Record<string, unknown>[] }
    expect(shown.entries.filter(({ kind }) => kind === 'leftover')).toEqual([
      expect.objectContaining({ name: lockName, state: 'old', isChosen: true }),
    ])
    expect(await staged()).toEqual(before)
    expect(await say('clean', '--yes')).toMatchObject({ code: 0, stderr: '' })
    expect(await staged()).toEqual([others])
    expect(await readdir(locks)).toEqual([])
    expect((await say('workspace', 'apply', 'last', '--all')).stdout).toContain('Applied 19 changes.')
    expect(await staged()).toEqual([others])
  })

  it('leaves nothing staged after a later run, which clears what the killed process needed [R.07]', async () => {
    const { host, staged, locks } = await killedApply()
    await writeFile(host.runs.paths(changedRunId).control, '')
    await host.runs.clearScratch()
    expect(await staged()).toEqual([others])
    expect(await readdir(locks)).toEqual([])
  })

  it('leaves nothing staged once another process held the run and its directory [R.07]', async () => {
    const { host, staged, directory } = await killedApply()
    await using record = await RunRecord.open(host.runs.paths(changedRunId))
    await using _ = unwrap(await record.holdDirectory(directory))
    expect(await staged()).toEqual([others])
  })

  it('keeps nobody from removing the run when its directory is gone [R.07]', async () => {
    const { say, directory, locks } = await killedApply()
    await rm(directory, { recursive: true })
    expect(await say('runs', 'rm', 'last')).toMatchObject({ code: 0 })
    expect(await readdir(locks)).toEqual([])
  })
})

/** A process that is killed while it holds the lock files. */
async function killHolderOf(...files: string[]): Promise<void> {
  const module = path.join(import.meta.dirname, '../../locks/file-lock.ts')
  const code = `const { takeLock } = await import(${JSON.stringify(module)})
    for (const file of ${JSON.stringify(files)}) await takeLock(file)
    process.kill(process.pid, 'SIGKILL')`
  const argv = ['--conditions=caisson-source', '--input-type=module', '-e', code]
  const [, signal] = await once(spawn(process.execPath, argv), 'exit')
  expect(signal).toBe('SIGKILL')
}

describe('a cleaning of lock files', () => {
  it('removes those that killed processes left in state and cache, and no other file [R.05 V.07]', async () => {
    const { say, locks, cache } = await killedApply()
    const images = path.join(cache, 'images')
    await mkdir(images, { recursive: true })
    await killHolderOf(path.join(locks, 'notes.lock'), path.join(images, `${'a'.repeat(64)}.lock`))
    const others = [path.join(locks, 'notes.txt'), path.join(images, 'mine.lock')]
    for (const file of others) await writeFile(file, 'mine')
    const held = path.join(images, `${'b'.repeat(64)}.lock`)
    await using _ = await takeLock(held)
    const live = 'run-00000000000000000009'
    await using _run = await RunLock.take(locks, live)
    const { stdout } = await say('clean', '--yes', '--json')
    expect(JSON.parse(stdout)).toMatchObject({ failed: [] })
    expect((await readdir(locks)).toSorted()).toEqual(['notes.txt', `${live}.lock`])
    expect((await readdir(images)).toSorted()).toEqual([path.basename(held), 'mine.lock'])
    expect(await isLocked(held)).toBe(true)
  })
})
