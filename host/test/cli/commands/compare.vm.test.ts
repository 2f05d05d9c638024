// `caisson runs compare --test`: a command over the results of runs, each in a VM of its own.
import { mkdir, rename } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { momentPaths } from '../../../journal/kept-moments.ts'
import type { RunPaths } from '../../../journal/run-store.ts'
import { resolveFolders } from '../../../state/folders.ts'
import { beginChanging, placeOfRuns } from '../../support/changed-run.ts'
import { commandsIn } from '../../support/run-command.ts'
import { findVms } from '../../support/runs.ts'
import { type Sketch, treeOf } from '../../workspace/support.ts'

const before: Sketch = { 'greeting.txt': 'hello\n', 'old.txt': 'old\n' }

/** As a run with checkpoints does at its end. */
async function keepBeginning(paths: RunPaths): Promise<void> {
  const kept = momentPaths(paths, true)
  await mkdir(paths.moments, { mode: 0o700 })
  await rename(paths.disk, kept.disk)
  await rename(paths.diskFiles, kept.diskFiles)
}

it('has the exit code and the time of the command over each result, and exits with 1 when one failed [V.05 H.01]', async () => {
  const { host, directory, env: own } = await placeOfRuns(before)
  const runIds = ['1', '2'].map((digit) => `run-${digit.padStart(20, '0')}`)
  for (const [index, runId] of runIds.entries()) {
    const end = await beginChanging(host, directory, runId)
    await end(treeOf(before), treeOf({ 'greeting.txt': index === 0 ? 'hallo\n' : 'bonjour\n' }))
    await keepBeginning(host.runs.paths(runId))
  }
  // The image of all tests.
  const env = { ...own, PATH: process.env.PATH, CAISSON_CACHE: resolveFolders().cache }
  const caisson = commandsIn(env, directory)

  const passed = 'test ! -e old.txt && cat greeting.txt && ! getent hosts example.com'
  const json = await caisson('runs', 'compare', ...runIds, '--test', passed, '--json')
  expect([json.code, json.stderr]).toEqual([0, ''])
  expect(JSON.parse(json.stdout)).toMatchObject({
    paths: [
      { path: 'greeting.txt', isSame: false },
      { path: 'old.txt', isSame: true },
    ],
    tests: [
      { runId: runIds[0], exitCode: 0, timedOut: false, stdout: 'hallo\n' },
      { runId: runIds[1], exitCode: 0, timedOut: false, stdout: 'bonjour\n' },
    ],
  })

  const failing = 'grep -q hallo greeting.txt || { echo no hallo >&2; exit 3; }'
  const { code, stdout } = await caisson('runs', 'compare', ...runIds, '--test', failing)
  expect(code).toBe(1)
  expect(stdout).toMatch(/^test +passed [\d.]+ s +exit 3 [\d.]+ s$/m)
  expect(stdout).toMatch(new RegExp(`^${runIds[1]}: no hallo$`, 'm'))
  expect(await findVms(own.CAISSON_HOME)).toEqual([])
}, 300_000)
