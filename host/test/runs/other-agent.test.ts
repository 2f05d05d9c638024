// A run that another version of the agent, or another image, began: its log or its disk means nothing here.
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import type { Image } from '../../image/image.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { Run } from '../../runs/run.ts'
import { plannedRun } from '../support/planned-run.ts'
import { runId, runStart, task } from '../support/run-values.ts'

const checkpointId = 'cp-0d4f1a8be2c6937f'
const ready = { type: 'vm-ready', accelerator: 'tcg', confinement: 'none', phasesMs: {} } as const

/** Continues a run of the agent `agent`, with a checkpoint, by another one. */
async function continueWith(
  agentDigest: string,
  fromBeginning: boolean,
  { key = 'the-first-image', ownDisk = false }: { readonly key?: string; readonly ownDisk?: boolean } = {},
) {
  const { plan, runs } = await plannedRun()
  const paths = await runs.create(runId)
  await writeFile(paths.options, '{}')
  {
    await using record = await RunRecord.open(paths)
    const { imageKey: _, agentDigest: __, ...start } = runStart
    await record.host(start)
    await record.host({ ...ready, imageKey: 'the-first-image', agentDigest: 'the-first-agent' })
    await record.host({ type: 'checkpoint', checkpointId, durationMs: 1, elapsedMs: 1, exchanges: 0 })
  }
  const image = { agentDigest, key } as Image
  const vm = ownDisk ? { disk: { disk: '/a.qcow2', format: 'qcow2' } as const } : {}
  const resumed = { task: { ...task, runId }, fromBeginning }
  const run = new Run(
    { ...plan, vm, resumed, prepareMachine: async () => ({ image }) },
    await RunRecord.open(paths),
  )
  const { message } = await run.result()
  const events = (await runs.read(runId)).map(({ event }) => event)
  return { message, events, canBeContinued: existsSync(paths.options) }
}

describe('a run that another version of the agent began', () => {
  it('is refused with both versions, is not changed, and can be continued by its own [R.11]', async () => {
    const { message, events, canBeContinued } = await continueWith('the-second-agent', false)
    expect(message).toContain('the-first-ag')
    expect(message).toContain('the-second-a')
    expect(message).toContain('--restart')
    expect(events.map(({ type }) => type)).toEqual(['run-start', 'vm-ready', 'checkpoint'])
    expect(canBeContinued).toBe(true)
  })

  it('starts again from its beginning where the person wants that [R.11]', async () => {
    const { events, message } = await continueWith('the-second-agent', true)
    expect(message).not.toContain('the-first-ag')
    expect(events).toContainEqual(expect.objectContaining({ type: 'run-resume', checkpointId: null }))
  })

  it('is none where the agent is the same [R.11]', async () => {
    const { events } = await continueWith('the-first-agent', false)
    expect(events).toContainEqual(expect.objectContaining({ type: 'run-resume', checkpointId }))
  })
})

describe('a run that began in another image', () => {
  it('is refused with both images, is not changed, and can be continued with its own [R.11]', async () => {
    const { message, events, canBeContinued } = await continueWith('the-first-agent', false, {
      key: 'other-image',
    })
    expect(message).toContain(
      'with the image the-first-im, and this version of Caisson has the image other-image',
    )
    expect(message).not.toContain('agent')
    expect(message).toContain('--restart')
    expect(events.map(({ type }) => type)).toEqual(['run-start', 'vm-ready', 'checkpoint'])
    expect(canBeContinued).toBe(true)
    const both = await continueWith('the-second-agent', false, { key: 'other-image' })
    expect(both.message).toContain('the agent the-second-a and the image other-image')
  })

  it('starts again from its beginning where the person wants that [R.11]', async () => {
    const { events } = await continueWith('the-first-agent', true, { key: 'other-image' })
    expect(events).toContainEqual(expect.objectContaining({ type: 'run-resume', checkpointId: null }))
  })

  it('is none where its VM boots a disk of the user instead [R.11]', async () => {
    const { events } = await continueWith('the-first-agent', false, { key: 'other-image', ownDisk: true })
    expect(events).toContainEqual(expect.objectContaining({ type: 'run-resume', checkpointId }))
  })
})
