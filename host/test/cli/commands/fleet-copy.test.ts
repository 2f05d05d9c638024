// Commands on a run in the state folder that is a copy of a run of a fleet, while no service of the fleet runs here.
import { readFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { noUsage, RunLimits, Task } from '#specs/protocol/task.ts'
import { markFleet } from '../../../journal/fleet-mark.ts'
import { storeRun } from '../../../stored-run.ts'
import { changedRunId, runThatChanged } from '../../support/changed-run.ts'
import { runAtWork, someCall } from '../../support/run-at-work.ts'
import { commandsIn } from '../../support/run-command.ts'
import { runId } from '../../support/run-values.ts'

const fleet = 'postgres://db.example.com/caisson'
const belongs = `caisson: ${runId} belongs to the fleet at ${fleet}, whose hosts share its journal; `
const howToReach =
  'start caisson serve for the fleet on this host, then repeat the command; ' +
  'or use the page or HTTP of another host, as caisson fleet hosts lists them\n'

/** With a question that waits. */
async function copiedRun() {
  const { caisson, die, queue, record } = await runAtWork()
  void queue.ask({ ...someCall, approvalId: 'ap-1', tool: 'delete_file', arguments: '{}' })
  await expect.poll(() => queue.pending).toEqual(['ap-1'])
  await markFleet(record.paths.journal, fleet)
  return { caisson, die, record, queue }
}

describe('a copy of a run of a fleet', () => {
  it.each([
    ['runs', 'steer', runId, 'Use tabs.'],
    ['runs', 'pause', runId],
    ['runs', 'resume', runId],
    ['runs', 'resume', runId, '--detach'],
    ['runs', 'resume', runId, '--take-over'],
    ['runs', 'cancel', runId],
    ['runs', 'cancel', runId, '--agent', 'tests'],
    ['runs', 'rm', runId],
    ['approvals', 'allow', runId, 'ap-1'],
    ['approvals', 'deny', runId, 'ap-1'],
    ['approvals', 'answer', runId, 'ap-1', 'yes'],
    ['approvals', 'revoke', runId, 'ap-1'],
    ['attach', runId],
    ['runs', 'fork', runId, '--at', 'start'],
    ['runs', 'rewind', runId, '--to', 'start'],
  ])('is left as it is by caisson %s %s, which says how to reach the run [H.02]', async (...words) => {
    const { caisson, die, record } = await copiedRun()
    await die()
    const task = Task.parse({ runId, prompt: 'do it', model: 'm', limits: RunLimits.parse({}) })
    await storeRun(record.paths, { prompt: 'do it' }, task)
    const before = await readFile(record.paths.journal, 'utf8')
    const { code, stdout, stderr } = await caisson(...words)
    expect({ code, stdout, stderr }).toEqual({ code: 1, stdout: '', stderr: belongs + howToReach })
    expect(await readFile(record.paths.journal, 'utf8')).toBe(before)
  })

  it('is shown as one, is not continued by resume --all, and is not called interrupted [H.02]', async () => {
    const { caisson, die, record } = await copiedRun()
    await die()
    const task = Task.parse({ runId, prompt: 'do it', model: 'm', limits: RunLimits.parse({}) })
    await storeRun(record.paths, { prompt: 'do it' }, task)
    const { stdout } = await caisson('runs', 'show', runId)
    expect(stdout).toContain(`it is a run of the fleet at ${fleet}`)
    expect(stdout).not.toMatch(/Interrupted|runs resume/)
    expect(await caisson('runs', 'resume', '--all', '--detach')).toMatchObject({
      ...{ code: 0, stdout: '' },
      stderr: 'no run can be continued; list all: caisson runs list\n',
    })
  })

  it('that this host carries out is acted on and answered here, whatever service runs [S1.11]', async () => {
    const { caisson, queue } = await copiedRun()
    expect((await caisson('runs', 'pause', runId)).code).toBe(0)
    expect((await caisson('approvals', 'allow', runId, 'ap-1')).stdout).toBe(`${runId}: ap-1 answered\n`)
    expect(queue.pending).toEqual([])
  })

  it.each([
    ['workspace', 'apply', changedRunId, '--all'],
    ['workspace', 'undo', changedRunId],
  ])('that has ended is shown, and left as it is by caisson %s %s [H.02]', async (...words) => {
    const { host, env } = await runThatChanged({ 'a.txt': 'a\n' }, { 'a.txt': 'b\n' })
    const { journal } = host.runs.paths(changedRunId)
    await markFleet(journal, fleet)
    const caisson = commandsIn(env)
    expect((await caisson('workspace', 'diff', changedRunId)).stdout).toContain('M a.txt')
    const before = await readFile(journal, 'utf8')
    expect(await caisson(...words)).toEqual({
      ...{ code: 1, stdout: '' },
      stderr: `${belongs.replace(runId, changedRunId)}${howToReach}`,
    })
    expect(await readFile(journal, 'utf8')).toBe(before)
  })

  it('that has ended is removed as a copy, which its fleet keeps [H.02]', async () => {
    const { caisson, end, record } = await runAtWork()
    await markFleet(record.paths.journal, fleet)
    await end({
      ...{ type: 'run-end', outcome: 'completed', reason: 'completed', message: '', summary: '' },
      ...{ usage: noUsage, durationMs: 1 },
    })
    expect(await caisson('runs', 'rm', runId)).toEqual({
      ...{ code: 0, stderr: '' },
      stdout: `removed the copy of ${runId}; its fleet still has the run\n`,
    })
  })
})
