// The command as people call it, in a process of its own, with real VMs.
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { execa } from 'execa'
import { expect, it } from 'vitest'
import { startModelServer } from '../../specs/testing/model-server.ts'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { findQemus } from '../soak/faults.ts'
import { environmentFor, startSolvingModel } from './solving-model.ts'

const main = path.resolve(import.meta.dirname, 'main.ts')

/** `npm run eval` without npm. */
function startEval(argv: readonly string[], env: Readonly<Record<string, string | undefined>>) {
  return execa(process.execPath, ['--conditions=caisson-source', main, ...argv], {
    env,
    extendEnv: false,
    reject: false,
  })
}

const readLines = (file: string): string[] =>
  existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : []

it('a killed evaluation continues with the attempts that are missing [T.05]', async () => {
  const home = await temporaryFolder('eval-home')
  const folder = path.join(home, 'results')
  await using server = await startSolvingModel(['config-ini'])
  // The workspaces of the killed one stay.
  const env = { ...environmentFor(home, server), TMPDIR: await temporaryFolder('eval-killed') }
  const only = ['--only', 'config-ini,config-versions,git-conflict']
  const killed = startEval([...only, '--out', folder], env)
  const attempts = path.join(folder, 'attempts.jsonl')
  await expect.poll(() => readLines(attempts).length, { timeout: 200_000 }).toBeGreaterThan(0)
  killed.kill('SIGKILL')
  await killed
  const before = readLines(attempts)
  const resumed = await startEval(['--resume', folder], env)
  expect(resumed).toMatchObject({ exitCode: 0, stdout: expect.stringContaining('| passed | 2 of 3 ') })
  expect(resumed.stdout).toContain('| config-ini | 0 of 1 |')
  const after = readLines(attempts)
  expect(after.slice(0, before.length)).toEqual(before)
  expect(after.map((line) => JSON.parse(line).task).sort()).toEqual([
    'config-ini',
    'config-versions',
    'git-conflict',
  ])
})

it('the offline model does plain orders, and the report says that it is the offline model [T.04]', async () => {
  const home = await temporaryFolder('eval-home')
  const env = { ...process.env, CAISSON_HOME: home, XDG_CONFIG_HOME: `${home}/config` }
  const { exitCode, stdout, stderr } = await startEval(
    ['--only', 'basic-rename,basic-replace', '--parallel', '2', '--out', path.join(home, 'results')],
    env,
  )
  expect({ exitCode, stdout }, stderr).toMatchObject({
    exitCode: 0,
    stdout: expect.stringContaining('2 of 2'),
  })
  expect(stdout).toContain('The offline model answers')
})

it('an interruption cancels what is at work, leaves no VM, and says how to continue [T.05]', async () => {
  const home = await temporaryFolder('eval-home')
  const folder = path.join(home, 'results')
  await using server = await startModelServer([{ body: '', before: 'hang' }])
  const child = startEval(['--only', 'config-ini', '--out', folder], environmentFor(home, server))
  await expect.poll(() => server.asked.length, { timeout: 200_000 }).toBeGreaterThan(0)
  const qemus = findQemus(home)
  expect(qemus).toHaveLength(1)
  child.kill('SIGINT')
  const { exitCode, stderr } = await child
  expect({ exitCode, stderr }).toMatchObject({
    exitCode: 3,
    stderr: expect.stringContaining(`npm run eval -- --resume ${folder}`),
  })
  expect(readLines(path.join(folder, 'attempts.jsonl'))).toEqual([])
  expect(qemus.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([])
})
