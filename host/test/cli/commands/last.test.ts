// `last` as every command that names a run takes it.
import { mkdir, realpath } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../../cli/main.ts'
import { Host } from '../../../host.ts'
import { beginRun } from '../../support/begun-run.ts'

const runIds = ['1', '2', '3'].map((digit) => `run-${digit.repeat(20)}`) as [string, string, string]

/** Two runs of the directory `a` and then one of the directory `b`. */
async function place() {
  const home = await realpath(await temporaryFolder('last'))
  const [a, b, c] = ['a', 'b', 'c'].map((name) => path.join(home, name)) as [string, string, string]
  for (const folder of [a, b, c]) await mkdir(folder)
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home }
  const host = new Host({ env })
  for (const [at, directory] of [a, a, b].entries()) {
    const { record } = await beginRun(host, runIds[at] ?? '', directory)
    await record[Symbol.asyncDispose]()
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
  const caisson = async (directory: string, ...argv: string[]) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { stdin, stdout, stderr, env, version: '0', directory })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { host, a, b, c, caisson }
}

const commands = [
  'runs show',
  'runs show --json',
  'runs steer last hello',
  'runs pause',
  'runs resume',
  'runs cancel',
  'workspace diff',
  'workspace apply last --all',
  'workspace undo',
  'approvals list',
  'memory keep',
  'attach',
  'vm logs',
]

describe('last', () => {
  it('is the most recently started run of the current directory in every command, which says so first [H.01]', async () => {
    const { a, b, caisson } = await place()
    for (const command of commands) {
      const words = command.split(' ')
      const argv = words.includes('last') ? words : [...words.slice(0, 2), 'last', ...words.slice(2)]
      if (command === 'attach') argv.splice(0, 3, 'attach', 'last')
      for (const [directory, runId] of [
        [a, runIds[1]],
        [b, runIds[2]],
      ] as const) {
        const { stdout, stderr } = await caisson(directory, ...argv)
        expect([command, stderr.split('\n')[0]]).toEqual([command, `caisson: last is ${runId}: p`])
        expect(stdout).not.toContain('last is')
      }
    }
    expect((await caisson(a, 'runs', 'show', runIds[0])).stderr).toBe('')
    expect(await caisson(a, 'runs', 'rm', 'last')).toMatchObject({
      code: 0,
      stdout: `removed ${runIds[1]}\n`,
    })
    expect((await caisson(a, 'runs', 'show', 'last')).stderr).toContain(`last is ${runIds[0]}`)
  })

  it('is no run of another directory: the error names the newest [H.01]', async () => {
    const { host, b, c, caisson } = await place()
    const { code, stderr } = await caisson(c, 'workspace', 'apply', 'last', '--all')
    expect([code, stderr]).toEqual([2, expect.stringContaining(`no run has worked on ${c} yet`)])
    expect(stderr).toContain(`the newest is ${runIds[2]} on ${b}`)
    await expect(host.runs.find('last', c)).rejects.toMatchObject({ code: 'run_not_found' })
    expect(await host.runs.find('last', path.join(c, '../b'))).toMatchObject({ runId: runIds[2] })
  })
})

it('a misspelled ID is answered with the run that it resembles, and with none where none is near [H.01]', async () => {
  const { a, caisson } = await place()
  const near = await caisson(a, 'runs', 'show', 'run-2222232222222')
  expect(near).toMatchObject({ code: 2, stderr: expect.stringContaining(`did you mean ${runIds[1]}?`) })
  for (const name of ['run-23', 'run-98765432109876543210'])
    expect((await caisson(a, 'runs', 'show', name)).stderr).not.toContain('did you mean')
})
