// A run that another version of the agent began: its log means nothing to this one.
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import type { Image } from '../../image/image.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { Run } from '../../runs/run.ts'
import { plannedRun } from '../support/planned-run.ts'
import { runId, runStart, task } from '../support/run-values.ts'

const checkpointId = 'cp-0d4f1a8be2c6937f'

/** Continues a run of the agent `agent`, with a checkpoint, by another one. */
async function continueWith(agentDigest: string, fromBeginning: boolean) {
  const { plan, runs } = await plannedRun()
  const paths = await runs.create(runId)
  await writeFile(paths.options, '{}')
  {
    await using record = await RunRecord.open(paths)
    await record.host({ ...runStart, agentDigest: 'the-first-agent' })
    await record.host({ type: 'checkpoint', checkpointId, durationMs: 1, elapsedMs: 1, exchanges: 0 })
  }
  const image = { agentDigest, key: 'k' } as Image
  const resumed = { task: { ...task, runId }, fromBeginning }
  const run = new Run(
    { ...plan, resumed, prepareMachine: async () => ({ image }) },
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
    expect(events.map(({ type }) => type)).toEqual(['run-start', 'checkpoint'])
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
