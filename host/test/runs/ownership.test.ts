// Who may write a run's journal: real processes that are stopped, killed and continued.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { endHolder } from '../../locks/lock-holder.ts'
import { prepareFolders } from '../../state/folders.ts'
import { commandsIn } from '../support/run-command.ts'
import { runId, runStart } from '../support/run-values.ts'

const PROGRAM = fileURLToPath(new URL('../support/owning-process.ts', import.meta.url))

async function ownedRun() {
  const home = await temporaryFolder('owned')
  const host = new Host({ env: { ...process.env, CAISSON_HOME: home } })
  await prepareFolders(host.folders)
  const paths = await host.runs.create(runId)
  {
    await using record = await RunRecord.open(paths)
    await record.host(runStart)
  }
  const child = spawn(process.execPath, ['--conditions=caisson-source', PROGRAM, runId], {
    env: { ...process.env, CAISSON_HOME: home },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const owner = linesOf(child)
  expect(await owner.next()).toBe('open')
  const write = async (by: string) => {
    child.stdin.write(`${by}\n`)
    return await owner.next()
  }
  const lockFile = path.join(host.folders.locks, `${runId}.lock`)
  const writers = async () =>
    (await host.runs.read(runId)).flatMap(({ event }) => (event.type === 'cancel-request' ? [event.by] : []))
  return { host, home, paths, child, write, lockFile, writers }
}

function linesOf(child: ChildProcess) {
  let said = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  return {
    next: async () => {
      await expect.poll(() => said.includes('\n'), { timeout: 20_000 }).toBe(true)
      const at = said.indexOf('\n')
      const line = said.slice(0, at)
      said = said.slice(at + 1)
      return line
    },
  }
}

describe('the process that has a run', () => {
  it('keeps it while it is stopped, and continues it: nobody else can write [R.11 R.06]', async () => {
    const { paths, child, write, writers } = await ownedRun()
    expect(await write('first')).toBe('written')
    child.kill('SIGSTOP')
    await expect(RunRecord.open(paths)).rejects.toMatchObject({
      code: 'run_busy',
      message: new RegExp(`${child.pid}`),
    })
    child.kill('SIGCONT')
    expect(await write('second')).toBe('written')
    expect(await writers()).toEqual(['first', 'second'])
  })

  it('is ended by a take-over, also while it is stopped, and the run is free [R.11]', async () => {
    const { paths, child, write, lockFile, writers } = await ownedRun()
    await write('first')
    child.kill('SIGSTOP')
    const ended = once(child, 'close')
    expect(await endHolder(lockFile)).toBe(child.pid)
    expect(await ended).toEqual([null, 'SIGKILL'])
    {
      await using record = await RunRecord.open(paths)
      await record.host({ type: 'cancel-request', by: 'second' })
    }
    expect(await writers()).toEqual(['first', 'second'])
    expect(await endHolder(lockFile)).toBeUndefined()
  })

  it('is ended by `runs resume --take-over` and by no other resume; the command then has the run [R.11 H.01]', async () => {
    const { host, child, write, writers, home } = await ownedRun()
    const caisson = commandsIn({ ...process.env, CAISSON_HOME: home }, home)
    await write('first')
    expect((await caisson('runs', 'resume', runId)).code).not.toBe(0)
    expect(await write('second')).toBe('written')
    child.kill('SIGSTOP')
    const ended = once(child, 'close')
    // The folder has no options, so the run cannot be continued; the command learns that once the run is free.
    const { code, stderr } = await caisson('runs', 'resume', runId, '--take-over')
    expect(await ended).toEqual([null, 'SIGKILL'])
    expect([code, stderr]).toEqual([expect.any(Number), expect.stringContaining(runId)])
    expect(code).not.toBe(0)
    expect([(await host.runs.summary(runId)).isLive, await writers()]).toEqual([false, ['first', 'second']])
  })

  it('is not touched by a take-over of a run that has ended [R.11 H.01]', async () => {
    const { paths, child, write, home } = await ownedRun()
    await write('end')
    const caisson = commandsIn({ ...process.env, CAISSON_HOME: home }, home)
    const { code, stderr } = await caisson('runs', 'resume', runId, '--take-over')
    expect([code, stderr]).toEqual([expect.any(Number), expect.stringContaining('ended as cancelled')])
    expect([child.exitCode, child.signalCode]).toEqual([null, null])
    await expect(RunRecord.open(paths)).rejects.toMatchObject({ code: 'run_busy' })
  })

  it('is not mistaken for another by what the lock file says [R.11]', async () => {
    const { child, lockFile } = await ownedRun()
    const innocent = spawn('sleep', ['60'])
    onTestFinished(() => void innocent.kill('SIGKILL'))
    await once(innocent, 'spawn')
    for (const pid of [innocent.pid, 1, process.pid, 'x']) {
      await writeFile(lockFile, JSON.stringify({ pid }))
      await expect(endHolder(lockFile)).rejects.toMatchObject({ code: 'not_possible_now' })
    }
    expect([innocent.exitCode, innocent.signalCode, child.exitCode, child.signalCode]).toEqual([
      null,
      null,
      null,
      null,
    ])
  })

  it('writes nothing more once its lock is another, whoever removed the file [R.11]', async () => {
    const { paths, child, write, lockFile, writers, host } = await ownedRun()
    await write('first')
    child.kill('SIGSTOP')
    await rm(lockFile)
    {
      await using record = await RunRecord.open(paths)
      await record.host({ type: 'cancel-request', by: 'second' })
      child.kill('SIGCONT')
      expect(await write('third')).toMatch(/^refused: .*another process/)
      await record.host({ type: 'cancel-request', by: 'fourth' })
    }
    // Also when the other has ended by now.
    expect(await write('fifth')).toMatch(/^refused: /)
    child.stdin?.end()
    await once(child, 'close')
    expect(await writers()).toEqual(['first', 'second', 'fourth'])
    expect((await host.runs.visit(runId, () => undefined)).length).toBe('closed')
  })
})
