// `caisson attach` and `runs resume` of a run whose host process is stopped, as at Ctrl-Z.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { PassThrough, Writable } from 'node:stream'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { Host } from '../../../host.ts'
import { prepareFolders } from '../../../state/folders.ts'
import { runId } from '../../support/run-values.ts'

const program = `${import.meta.dirname}/../../support/serving-process.ts`

it('names a process that does not answer with what to do, and continues when it answers [V.08]', async () => {
  const home = await temporaryFolder('stopped')
  const env = { HOME: home, CAISSON_HOME: home, PATH: process.env.PATH }
  const { runs, folders } = new Host({ env })
  await prepareFolders(folders)
  await runs.create(runId)
  const child = spawn(process.execPath, ['--conditions=caisson-source', program, runId], {
    env,
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  child.kill('SIGSTOP')

  let said = ''
  const output = () =>
    new Writable({
      write: (piece, _, done) => {
        said += String(piece)
        done()
      },
    })
  const io = { stdin: new PassThrough(), stdout: output(), stderr: output(), env, version: '0' }
  const attached = runCli(['attach', runId], io)
  await expect
    .poll(() => said, { timeout: 30_000 })
    .toMatch(
      new RegExp(
        `process ${child.pid} has not answered since [\\d:]+\\. If it is stopped, continue it: kill -CONT ${child.pid}\\. To leave, press Ctrl-C`,
      ),
    )
  const waiting = new PassThrough()
  let heard = ''
  waiting.on('data', (piece) => {
    heard += String(piece)
  })
  const resumed = runCli(['runs', 'resume', runId], { ...io, stdin: new PassThrough(), stderr: waiting })
  await expect
    .poll(() => heard, { timeout: 30_000 })
    .toContain(`To continue the run in another process: caisson runs resume ${runId} --take-over`)
  child.kill('SIGCONT')
  await resumed
  await expect.poll(() => said, { timeout: 30_000 }).toContain(`process ${child.pid} answers again`)
  child.stdin.write('end\n')
  expect(await attached).toBe(0)
  expect(said.match(/has not answered/g)).toHaveLength(1)
  expect(said).toContain('journal head')
})
