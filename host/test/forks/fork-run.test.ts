import { existsSync } from 'node:fs'
import { readFile, rm, stat } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { forkRun } from '../../forks/fork-run.ts'
import { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import type { RunPaths } from '../../journal/run-store.ts'
import { Recording } from '../../recording/replay.ts'
import { Past } from '../../runs/past.ts'
import { readStoredRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { runWithMoments } from '../support/run-with-moments.ts'

async function place(options: Parameters<typeof runWithMoments>[2] = {}) {
  const home = await temporaryFolder('forks')
  const env = { HOME: home, CAISSON_HOME: `${home}/state`, CAISSON_CACHE: `${home}/cache` }
  const host = new Host({ env })
  const paths = await runWithMoments(host, home, options)
  return { host, paths, before: await host.runs.read(paths.runId) }
}

const forkOf = (host: Host, runId: string | undefined): RunPaths => host.runs.paths(runId ?? '')

describe.each([false, true])('a fork of a run (ended: %s)', (isOver) => {
  it('has the lines until the moment with their times, in a chain of its own, and what was said to it [V.05 S0.12]', async () => {
    const { host, paths, before } = await place({ isOver })
    const { step, checkpointId, runIds } = await host.fork(paths.runId, {
      ...{ at: 'second', count: 2, prompts: ['use tabs'], by: 'a test' },
    })
    expect([step, checkpointId, runIds.length]).toEqual(['second', 'cp-3', 2])
    const [told, plain] = await Promise.all(runIds.map((id) => host.runs.read(id)))
    expect(plain?.map(({ at, event }) => [at, event.type])).toEqual(
      before.slice(0, 7).map(({ at, event }) => [at, event.type]),
    )
    expect(plain?.[0]?.event).toMatchObject({
      forkedFrom: { runId: paths.runId, checkpointId: 'cp-3', step: 'second' },
    })
    expect(plain?.every(({ runId }) => runId === runIds[1])).toBe(true)
    expect(told?.at(-1)?.event).toMatchObject({ type: 'steer-request', text: 'use tabs', by: 'a test' })
    expect(told).toHaveLength(8)
    expect(await host.runs.summary(runIds[0] ?? '')).toMatchObject({
      status: 'interrupted',
      forkedFrom: paths.runId,
    })
    // The other run is as it was.
    expect(await host.runs.read(paths.runId)).toEqual(before)
  })

  it('has the disk, the recording and the task as they were there, and ids of calls that follow from the first run [V.05]', async () => {
    const { host, paths } = await place({ isOver })
    const { runIds } = await host.fork(paths.runId, { at: 'second' })
    const fork = forkOf(host, runIds[0])
    expect((await CheckpointDisk.open(fork.scratch)).sealed.at(-1)?.checkpoint).toBe('cp-3')
    expect(await readFile(fork.disk, 'utf8')).toBe('the workspace')
    expect((await Recording.read(fork.exchanges)).calls).toHaveLength(3)
    const { task, options } = await readStoredRun(fork)
    expect(task).toMatchObject({ runId: fork.runId, idSeed: paths.runId, prompt: 'do it' })
    expect(options.prompt).toBe('do it')
    for (const file of [fork.options, fork.exchanges]) expect((await stat(file)).mode & 0o777).toBe(0o600)
    // The same seed in a fork of the fork.
    const again = await host.fork(fork.runId, { at: 'end' })
    expect((await readStoredRun(forkOf(host, again.runIds[0]))).task.idSeed).toBe(paths.runId)
  })

  it('begins at the beginning without a disk, and at the last checkpoint with all until there [V.05]', async () => {
    const { host, paths } = await place({ isOver })
    const start = await host.fork(paths.runId, { at: 'start' })
    const fork = forkOf(host, start.runIds[0])
    expect(existsSync(fork.scratch)).toBe(false)
    expect((await host.runs.read(fork.runId)).map(({ event }) => event.type)).toEqual(['run-start'])
    const end = await host.fork(paths.runId, { at: 'end' })
    expect([end.step, end.checkpointId, end.notNow]).toEqual(['end', 'cp-4', undefined])
    const now = await host.fork(paths.runId, { at: 'now' })
    const notNow = isOver ? 'the run has ended' : 'no process works on the run'
    expect([now.step, now.checkpointId, now.notNow]).toEqual(['end', 'cp-4', notNow])
  })
})

it('an agent of a fork has what was said to it from its first moment, and why it continues [V.05]', async () => {
  const { host, paths } = await place()
  const { runIds } = await host.fork(paths.runId, { at: 'second', prompts: ['use tabs'] })
  const past = new Past('cp-3')
  for (const line of await host.runs.read(runIds[0] ?? '')) past.next(line)
  expect(past.newMessages).toMatchObject([{ text: 'use tabs' }])
  expect(past.origin).toBe(`forked from ${paths.runId} at second`)
  past.next({ event: { type: 'run-resume', epoch: 2, checkpointId: 'cp-3', message: 'x' } })
  expect(past.origin).toBeUndefined()
})

it('what cannot be forked is refused with the moments that there are, and leaves no folder [V.05]', async () => {
  const { host, paths } = await place()
  const { runId } = paths
  await expect(host.fork(runId, { at: 'third' })).rejects.toThrow(/no moment "third".*no such step/)
  await expect(host.fork(runId, { at: 'third' })).rejects.toMatchObject({
    remedy: 'name one of these: start, first, second, end',
  })
  await expect(host.fork(runId, { at: 'end', count: 17 })).rejects.toMatchObject({ code: 'invalid_options' })
  const twice = host.fork(runId, { at: 'end', count: 1, prompts: ['a', 'b'] })
  await expect(twice).rejects.toThrow('2 prompts for 1 forks')
  {
    await using _ = await RunLock.take(paths.locks, runId)
    await expect(host.fork(runId, { at: 'end' })).rejects.toMatchObject({ code: 'run_busy' })
  }
  await rm(`${paths.scratch}/disk.json`)
  await expect(host.fork(runId, { at: 'second', count: 3 })).rejects.toMatchObject({
    code: 'state_corrupted',
  })
  await rm(paths.options)
  await expect(host.fork(runId, { at: 'second' })).rejects.toThrow('does not keep its disk')
  expect(await host.runs.ids()).toEqual([runId])
})

it('forks that fail are removed, except one that another process has resumed by then [V.05]', async () => {
  const { host, paths } = await place()
  const { runId, scratch } = paths
  const taken: RunRecord[] = []
  const live = {
    copyDisk: async (to: string, checkpointId: string) => {
      const [first] = (await host.runs.ids()).filter(
        (id) => id !== runId && existsSync(forkOf(host, id).options),
      )
      if (first === undefined) return void (await CheckpointDisk.fork(scratch, to, checkpointId))
      taken.push(await RunRecord.open(forkOf(host, first)))
      throw new Error('no space')
    },
    flushRecording: async () => undefined,
  }
  const request = { at: 'end', count: 2, prompts: [], by: 'a test' }
  await expect(forkRun({ store: host.runs, runId, live }, request)).rejects.toThrow('no space')
  const [fork] = taken
  expect(await host.runs.ids()).toEqual([runId, fork?.paths.runId].sort())
  await fork?.[Symbol.asyncDispose]()
})
