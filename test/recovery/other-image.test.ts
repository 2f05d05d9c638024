// Runs whose image this machine does not have, resumed by the library: one of this machine, and an imported one.
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Host } from '../../host/host.ts'
import { RunRecord } from '../../host/journal/run-record.ts'
import { elsewhere, exported, imported, interruptedRun, runId } from '../../host/test/archive/support.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { accompany, resumeRun } from './scenario.ts'

let folder: string
let cache: string
let worlds: Worlds

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-other-image-'))
  const machine = await installMachine(folder)
  cache = machine.cache
  worlds = await Worlds.open(machine, folder)
}, 120_000)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

const ready = { type: 'vm-ready', accelerator: 'tcg', confinement: 'none', phasesMs: {} } as const

/** The archive of an interrupted run whose last VM had this image. */
async function archiveOf(image: { imageKey: string; agentDigest: string }): Promise<Buffer> {
  const { host, paths } = await interruptedRun()
  {
    await using record = await RunRecord.open(paths)
    await record.host({ ...ready, ...image })
  }
  return await exported(host)
}

/** What is there of the run to continue it with. */
async function keptOf(host: Host, id: string) {
  const paths = host.runs.paths(id)
  const files = [paths.options, paths.disk, path.join(paths.scratch, 'disk.json')]
  return { lines: (await host.runs.read(id)).length, files: files.map((file) => existsSync(file)) }
}

it('an imported run of another image is refused, and stays as it is [R.09 R.11]', async () => {
  const there = await elsewhere({ CAISSON_CACHE: cache })
  const { key, agentDigest } = await there.host.image()
  const other = await archiveOf({ imageKey: 'f'.repeat(64), agentDigest })
  await imported(there.host, other, there.directory)
  const before = await keptOf(there.host, runId)
  await expect(there.host.resume(runId)).rejects.toMatchObject({
    code: 'version_mismatch',
    message: expect.stringContaining(`the image ${'f'.repeat(64)}, and here is ${key}`),
    remedy: 'continue it with the version of Caisson that exported it',
  })
  expect(await keptOf(there.host, runId)).toEqual(before)
  expect((await there.host.runs.summary(runId)).status).toBe('interrupted')

  const same = await elsewhere({ CAISSON_CACHE: cache })
  await imported(same.host, await archiveOf({ imageKey: key, agentDigest }), same.directory)
  // The next thing that this machine lacks for it.
  await expect(same.host.resume(runId)).rejects.toMatchObject({
    code: 'invalid_options',
    message: expect.stringContaining('No model server is set for the model'),
  })
}, 120_000)

it('a run of this machine is refused with another image, stays as it is, and is completed with its own [R.11]', async () => {
  await using world = await worlds.openWorld()
  const { host, scene } = world
  const killed = await worlds.killHost(world, { victim: 'host', seq: 40, cut: 'after' })
  expect((await host.runs.summary(killed.runId)).status).toBe('interrupted')
  await world.keepCopy()
  {
    await using record = await RunRecord.open(host.runs.paths(killed.runId))
    expect(record.state.checkpoint).not.toBeNull()
    await record.host({ ...ready, imageKey: 'f'.repeat(64) })
  }
  const before = await keptOf(host, killed.runId)
  const refused = await (await resumeRun(host, killed.runId, scene)).result()
  expect(refused).toMatchObject({ outcome: 'failed', reason: 'environment' })
  expect(refused.message).toContain(
    'the run was started with the image ffffffffffff, and this version of Caisson has',
  )
  expect(await keptOf(host, killed.runId)).toEqual(before)
  expect((await host.runs.summary(killed.runId)).status).toBe('interrupted')

  await world.restoreCopy()
  const run = await resumeRun(host, killed.runId, scene)
  await accompany(host, run, scene)
  expect(await run.result()).toMatchObject({ outcome: 'completed' })
}, 120_000)
