// A run at work is forked at the moment of the call: real host, real agent, with a program in the place of QEMU.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { Host } from '../../host/host.ts'
import type { Run } from '../../host/runs/run.ts'
import { Worlds } from './kills.ts'
import { installMachine } from './machine/install.ts'
import { accompany, resumeRun, startRun } from './scenario.ts'

let folder: string
let worlds: Worlds

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-fork-now-'))
  worlds = await Worlds.open(await installMachine(folder), folder)
}, 120_000)

afterAll(async () => {
  await worlds[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

it('has a checkpoint of its own there, continues from it, and does nothing again that was done; the run works on [V.05]', async () => {
  await using world = await worlds.openWorld()
  const { host, scene, env } = world
  const run = await startRun(host, scene)
  // The step `left` is over, and `right` waits for a person: the call of the step has changed nothing.
  await until(run, (event) => event.type === 'step-end' && event.stepId === 'left')
  const before = run.state.checkpoint?.checkpointId
  const other = new Host({ env: { ...process.env, ...env } })
  const fork = await other.fork(run.id, { at: 'now', by: 'a test' })
  expect(fork).toEqual({
    step: 'now',
    checkpointId: expect.stringMatching(/^cp-/),
    runIds: [expect.any(String)],
  })
  expect(fork.checkpointId).not.toBe(before)
  // A second one has a checkpoint of its own, too.
  const again = await run.fork({ at: 'now', count: 1, prompts: [], by: 'a test' })
  expect([again.step, again.checkpointId === fork.checkpointId]).toEqual(['now', false])

  await accompany(host, run, scene)
  expect(await run.result()).toMatchObject({ outcome: 'completed' })
  const [forkId = ''] = fork.runIds
  const prefix = await host.runs.read(forkId)
  expect(prefix.at(-1)?.event).toMatchObject({ type: 'checkpoint', checkpointId: fork.checkpointId })
  expect(prefix.some(({ event }) => event.type === 'step-end' && event.stepId === 'left')).toBe(true)
  expect(prefix[0]?.event).toMatchObject({ forkedFrom: { runId: run.id, step: 'now' } })

  const next = await resumeRun(host, forkId, scene)
  await accompany(host, next, scene)
  expect(await next.result()).toMatchObject({ outcome: 'completed' })
  const after = (await host.runs.read(forkId)).slice(prefix.length)
  expect(stepsOf(after)).not.toContain('left')
  expect(stepsOf(after).toSorted()).toEqual(
    stepsOf(await host.runs.read(run.id))
      .filter((id) => id !== 'left')
      .toSorted(),
  )
  expect(await changesOf(host, forkId)).toEqual(await changesOf(host, run.id))
}, 120_000)

it('begins at the last checkpoint once the run has ended, and says so [V.05]', async () => {
  await using world = await worlds.openWorld()
  const { host, scene } = world
  const run = await startRun(host, scene)
  await accompany(host, run, scene)
  await run.result()
  const last = (await host.runs.read(run.id)).findLast(({ event }) => event.type === 'checkpoint')?.event
  expect(await host.fork(run.id, { at: 'now' })).toMatchObject({
    ...{ step: 'end', notNow: 'the run has ended' },
    checkpointId: last?.type === 'checkpoint' ? last.checkpointId : '',
  })
}, 120_000)

async function until(run: Run, isIt: (event: JournalEvent['event']) => boolean): Promise<void> {
  for await (const item of run.watch()) if (item.source !== 'delta' && isIt(item.event)) return
  throw new Error('the run ended before')
}

/** Steps that ended, in their order. */
function stepsOf(lines: readonly JournalEvent[]): string[] {
  return lines.flatMap(({ event }) => (event.type === 'step-end' ? [event.stepId] : []))
}

async function changesOf(host: Host, runId: string): Promise<object[]> {
  const changes: object[] = []
  for await (const change of (await host.changes(runId)).reviewWithDiffs()) changes.push(change)
  return changes
}
