// The handle of a run of another process, whose process is gone by now: it forks the run from its folder.
import { rm } from 'node:fs/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { initialRunState, type RunState } from '#specs/protocol/run-state.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { RunClient } from '../../control/run-client.ts'
import { ControlServer } from '../../control/server.ts'
import type { RunService } from '../../control/services.ts'
import { Host } from '../../host.ts'
import { Feed } from '../../journal/run-feed.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { runWithMoments } from '../support/run-with-moments.ts'

const request = { at: 'second', count: 1, prompts: [], by: 'a test' }

/** A handle of the run; `end` ends what answers at its socket, as the end of its process does. */
async function attached({ isOver = false }: { readonly isOver?: boolean } = {}) {
  const home = await temporaryFolder('forks')
  const env = { HOME: home, CAISSON_HOME: `${home}/state`, CAISSON_CACHE: `${home}/cache` }
  const host = new Host({ env })
  const paths = await runWithMoments(host, home, { isOver })
  const feed = new Feed()
  const ended = Promise.withResolvers<RunState>()
  const run = {
    watch: () => feed.watch(),
    hasPendingApproval: () => false,
    ended: ended.promise,
    journalHead: '',
  } as Partial<RunService> as RunService
  const server = await ControlServer.open(paths.control, { run })
  onTestFinished(() => feed.end())
  const client = await host.attach(paths.runId)
  if (client === null) throw new Error('nobody answered')
  const end = async (): Promise<void> => {
    feed.end()
    ended.resolve(initialRunState)
    await server[Symbol.asyncDispose]()
    await rm(paths.control, { force: true })
    await client.ended
  }
  return { host, paths, client, end }
}

const others = async (host: Host, runId: string) => (await host.runs.ids()).filter((id) => id !== runId)

describe('a handle whose process is gone', () => {
  it.each([false, true])('forks the run from its folder (ended: %s) [V.05 R.11]', async (isOver) => {
    const { host, paths, client, end } = await attached({ isOver })
    await end()
    const { step, checkpointId, runIds } = await client.fork(request)
    expect([step, checkpointId, runIds]).toEqual(['second', 'cp-3', await others(host, paths.runId)])
    expect((await host.runs.read(runIds[0] ?? ''))[0]?.event).toMatchObject({
      forkedFrom: { runId: paths.runId, step: 'second', by: 'a test' },
    })
    const now = await client.fork({ ...request, at: 'now' })
    expect(now).toMatchObject({
      ...{ step: 'end', checkpointId: 'cp-4' },
      notNow: isOver ? 'the run has ended' : 'no process works on the run',
    })
  })

  it('forks nothing while another process has the run, and names that process [V.05 R.11]', async () => {
    const { host, paths, client, end } = await attached()
    await end()
    await using _ = await RunLock.take(paths.locks, paths.runId)
    await expect(client.fork(request)).rejects.toMatchObject({
      ...{ code: 'run_busy', message: expect.stringContaining(`${process.pid}`) },
    })
    expect(await others(host, paths.runId)).toEqual([])
  })

  it('that knows no folder says how to fork the run [V.05]', async () => {
    const { paths, end } = await attached()
    const client = await RunClient.connect(paths.runId, paths.control)
    await end()
    await expect(client.fork(request)).rejects.toMatchObject({
      ...{ code: 'connection_lost', remedy: expect.stringContaining(`caisson runs fork ${paths.runId}`) },
    })
  })
})

it('the error of a process that ends while it forks says that its forks may be there [V.05]', async () => {
  const { host, paths, client, end } = await attached()
  await end()
  const fork = () => {
    void server[Symbol.asyncDispose]()
    return new Promise<never>(() => undefined)
  }
  const run = { fork } as Partial<RunService> as RunService
  const server: ControlServer = await ControlServer.open(paths.control, { run })
  await expect(client.fork(request)).rejects.toMatchObject({
    ...{ code: 'connection_lost', message: expect.stringContaining('it may have made forks before') },
    remedy: expect.stringContaining('caisson runs list'),
  })
  expect(await others(host, paths.runId)).toEqual([])
})
