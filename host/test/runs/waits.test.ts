// What a watcher learns while a run has no VM yet.
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { RunRecord } from '../../journal/run-record.ts'
import type { PlannedRun } from '../../runs/resolved-run.ts'
import { Run } from '../../runs/run.ts'
import { plannedRun } from '../support/planned-run.ts'
import { runId, runStart, task } from '../support/run-values.ts'

async function startWith(prepareMachine: PlannedRun['prepareMachine']) {
  const { plan, runs } = await plannedRun()
  const told: string[] = []
  const onProgress = (text: string) => void told.push(text)
  const run = new Run({ ...plan, prepareMachine, onProgress }, await RunRecord.open(await runs.create(runId)))
  return { run, told }
}

describe('a run whose image is built', () => {
  it('shows each step to its watchers and the application, and why there is no image [S1.10 H.01]', async () => {
    const steps = ['image: download packages', `image: pack ${'x'.repeat(1_000)}`]
    const { run, told } = await startWith(async ({ onProgress }) => {
      for (const step of steps) onProgress(step)
      throw new CaissonError('image_unavailable', 'the mirror does not answer')
    })
    const seen: unknown[] = []
    for await (const item of run.watch()) seen.push(item.source === 'delta' ? item.delta : item.event.type)
    expect(seen).toEqual([
      'run-start',
      { type: 'prepare', what: 'image', text: steps[0] },
      { type: 'prepare', what: 'image', text: steps[1]?.slice(0, 500) },
      'run-end',
    ])
    expect(told).toEqual(steps)
    const { outcome, reason, message } = await run.result()
    expect([outcome, reason, message]).toEqual(['failed', 'environment', 'the mirror does not answer'])
  })

  it('can be cancelled meanwhile, which ends the build [S1.10]', async () => {
    const building = Promise.withResolvers<void>()
    const { run } = await startWith(async ({ signal }) => {
      building.resolve()
      await sleep(60_000, undefined, { signal })
      throw new Error('it was not ended')
    })
    await building.promise
    await run.cancel({ by: 'a test' })
    expect(await run.result()).toMatchObject({ outcome: 'cancelled', message: 'cancelled by a test' })
  })

  it('has one end where a person cancels it after another process has resumed it [S1.03 S1.10 R.01]', async () => {
    const { plan, runs } = await plannedRun()
    const paths = await runs.create(runId)
    await writeFile(paths.options, '{}')
    {
      await using record = await RunRecord.open(paths)
      await record.host(runStart)
    }
    const prepareMachine: PlannedRun['prepareMachine'] = async ({ signal }) => {
      await sleep(60_000, undefined, { signal })
      throw new Error('it was not ended')
    }
    const resumed = { task: { ...task, runId }, fromBeginning: false, importedLines: 0 }
    const run = new Run({ ...plan, resumed, prepareMachine }, await RunRecord.open(paths))
    await run.cancel({ by: 'a test' })
    expect(await run.result()).toMatchObject({ outcome: 'cancelled', message: 'cancelled by a test' })
    const types = (await runs.read(runId)).map(({ event }) => event.type)
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    expect(types.at(-1)).toBe('run-end')
    expect(await runs.summary(runId)).toMatchObject({ status: 'cancelled' })
    // Nobody resumes it again.
    expect(existsSync(paths.options)).toBe(false)
  })
})
