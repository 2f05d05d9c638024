import { existsSync } from 'node:fs'
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import * as z from 'zod'
import { RunLimits, Task } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host, type ResumeOptions, type RunOptions } from '../host.ts'
import { RunRecord } from '../journal/run-record.ts'
import { Run } from '../runs/run.ts'
import { readStoredRun, resumedOptions, storeRun, withinLimits } from '../stored-run.ts'
import { plannedRun } from './support/planned-run.ts'

const runId = `run-${'0'.repeat(20)}`
const tool = { description: 'x', inputSchema: z.strictObject({}), readOnly: true, execute: () => 'x' }
const task = Task.parse({ runId, prompt: 'do it', model: 'm', limits: RunLimits.parse({}) })

async function place() {
  const home = await temporaryFolder('stored')
  const host = new Host({ env: { HOME: home, CAISSON_HOME: path.join(home, 'state') } })
  const paths = host.runs.paths(runId)
  await mkdir(paths.directory, { recursive: true, mode: 0o700 })
  return { host, paths }
}

it('an unfinished run is stored without functions, for the user alone, and asks for the same functions again [R.01]', async () => {
  const { paths } = await place()
  const options: RunOptions = {
    prompt: 'do it',
    continue: 'last',
    plan: { from: 'last', approve: true },
    approvals: { mode: 'all', rules: [{ effect: 'deny', tool: 'delete_file' }] },
    onProgress: () => undefined,
    extensions: { hostTools: { order_part: tool } },
  }
  await storeRun(paths, options, task)
  expect((await stat(paths.options)).mode & 0o777).toBe(0o600)
  const stored = await readStoredRun(paths)
  expect(stored).toMatchObject({ task, functions: { hostTools: ['order_part'], hooks: 0 } })
  expect(() => resumedOptions(stored, {})).toThrow('started with the host tools order_part and 0 hooks')
  const resumed = resumedOptions(stored, {
    interactive: true,
    extensions: { hostTools: { order_part: tool } },
  })
  expect(resumed).toMatchObject({
    prompt: 'do it',
    plan: { approve: true },
    approvals: { mode: 'all', interactive: true, rules: [{ effect: 'deny', tool: 'delete_file' }] },
  })
  expect(resumed).not.toHaveProperty('continue')
  expect(resumed.plan).not.toHaveProperty('from')
})

it('sections with functions of each turn are given again by whoever continues the run; texts are stored [R.01 S0.05]', async () => {
  const { host, paths } = await place()
  const context = {
    branch: 'main',
    rule: { text: 'be brief', per: 'turn' },
    time: { text: () => 'noon', per: 'turn' },
    prices: { text: () => '1' },
  } as const
  await storeRun(paths, { prompt: 'do it', context }, task)
  const stored = await readStoredRun(paths)
  const kept = { branch: 'main', rule: { text: 'be brief', per: 'turn' } }
  expect(resumedOptions(stored, {}).context).toEqual(kept)
  const again = { time: { text: () => 'later', per: 'turn' } } as const
  expect(resumedOptions(stored, { context: again }).context).toEqual({ ...kept, ...again })
  for (const wrong of [{ time: { text: 'x' } }, { time: 'x' }, { '<x>': { text: 'x', per: 'turn' } }])
    await expect(
      host.resume(paths.runId, { context: wrong } as unknown as ResumeOptions),
    ).rejects.toMatchObject({ code: 'invalid_options', message: expect.stringContaining('context') })
})

it('a run that was started for nobody to answer continues so where the host asks for what is stored [R.01]', async () => {
  const { host, paths } = await place()
  const continued = async (
    approvals: RunOptions['approvals'],
    interactive: NonNullable<ResumeOptions['interactive']>,
  ) => {
    await storeRun(paths, { prompt: 'do it', ...(approvals === undefined ? {} : { approvals }) }, task)
    return resumedOptions(await readStoredRun(paths), { interactive }).approvals?.interactive
  }
  expect(await continued({ interactive: false }, 'stored')).toBe(false)
  expect(await continued({ interactive: true }, 'stored')).toBe(true)
  expect(await continued(undefined, 'stored')).toBe(true)
  expect(await continued({ interactive: false }, true)).toBe(true)
  const wrong = host.resume(runId, { interactive: 'always' as 'stored' })
  await expect(wrong).rejects.toMatchObject({ code: 'invalid_options' })
})

it('a run continues with lower limits where they are given, and never with higher ones [R.01]', async () => {
  const { host, paths } = await place()
  await storeRun(
    paths,
    { prompt: 'do it', limits: { maxTokens: 500, maxToolCalls: 7 } },
    {
      ...task,
      limits: { ...task.limits, maxTokens: 500 },
    },
  )
  const stored = await readStoredRun(paths)
  const limitsOf = (limits: NonNullable<ResumeOptions['limits']>) => {
    const within = withinLimits(stored, limits)
    expect(within.task.limits.maxTokens).toBe(within.options.limits?.maxTokens)
    return resumedOptions(within, { limits }).limits
  }
  expect(limitsOf({ maxTokens: 100, maxCostUsd: 0.5 })).toEqual({
    ...{ maxTokens: 100, maxToolCalls: 7, maxCostUsd: 0.5 },
  })
  expect(limitsOf({ maxTokens: 501 })).toEqual({ maxTokens: 500, maxToolCalls: 7 })
  expect(limitsOf({})).toEqual({ maxTokens: 500, maxToolCalls: 7 })
  const wrong = host.resume(runId, { limits: { maxTokens: 0 } })
  await expect(wrong).rejects.toMatchObject({ code: 'invalid_options' })
})

it('what cannot be resumed is refused, with the reason and what to do: ended, removed, damaged, in use [R.01]', async () => {
  const { host, paths } = await place()
  await expect(host.resume(runId)).rejects.toMatchObject({ code: 'not_possible_now' })
  await writeFile(paths.options, '{"version":2}')
  await expect(host.resume(runId)).rejects.toMatchObject({ code: 'state_corrupted' })
  await storeRun(paths, { prompt: 'do it' }, task)
  const stored = await readFile(paths.options, 'utf8')
  await writeFile(paths.options, stored.replace('"options":{', '"options":{"nope":1,'))
  await expect(host.resume(runId)).rejects.toThrow(/run\.json.*nope/)
  {
    await using record = await RunRecord.open(paths)
    await expect(host.resume(runId)).rejects.toMatchObject({ code: 'run_busy' })
    await record.conclude({
      type: 'run-end',
      ...{ outcome: 'completed', reason: 'completed', message: '', summary: '', durationMs: 1 },
      usage: record.state.usage,
    })
  }
  await expect(host.resume(runId)).rejects.toThrow('has ended (completed)')
})

it('a run that could not be continued, for want of a VM, can be continued later [R.01]', async () => {
  const { plan, runs } = await plannedRun()
  const paths = await runs.create(plan.runId)
  {
    await using record = await RunRecord.open(paths)
    const { prompt, directory, limits, provider } = plan
    const { model, name } = provider
    await record.host({ type: 'run-start', ...{ prompt, directory, limits, model, provider: name } })
  }
  await storeRun(paths, { prompt: 'x' }, task)
  for (const _time of [1, 2]) {
    const run = new Run({ ...plan, resumed: { task } }, await RunRecord.open(paths))
    expect((await run.ended).end).toMatchObject({
      outcome: 'failed',
      message: expect.stringMatching(/there is no VM here\n.*caisson runs resume run-/),
    })
    expect(existsSync(paths.options)).toBe(true)
    const state = (await runs.fold(plan.runId)).state
    expect([state.end, state.epoch]).toEqual([null, 1])
  }
})
