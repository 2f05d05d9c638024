import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { runCli } from '../../cli/main.ts'
import { cliPlace } from '../support/cli.ts'

/** The same place with the command line in this process, which takes no time to start. */
async function place(files: Readonly<Record<string, string>>, env: Record<string, string> = {}) {
  const made = await cliPlace(files, env)
  const run = async (...argv: string[]) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    stdin.end()
    const code = await runCli(argv, { stdin, stdout, stderr, env: made.env, version: '0' })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { ...made, run }
}
describe('caisson run that cannot start', () => {
  it('refuses a state folder that cannot be made or is not the user’s, with what to set, and exits with 4 [H.01]', async () => {
    const open = await temporaryFolder('open')
    await chmod(open, 0o777)
    const file = path.join(await temporaryFolder('file'), 'file')
    await writeFile(file, '')
    for (const [home, words] of [
      ['/proc/x', 'set CAISSON_HOME'],
      [file, 'is not a folder'],
      [path.join(file, 'below'), 'set CAISSON_HOME'],
      [open, `chmod 700 ${open}`],
    ] as const) {
      const at = await place({}, { CAISSON_HOME: home })
      const { code, stderr } = await at.run('run', 'List the files', '-w', at.workspace)
      expect([home, code, stderr]).toEqual([home, 4, expect.stringContaining(words)])
    }
  })

  it('refuses a workspace that cannot be one before there is a run, and exits with 2 [H.01]', async () => {
    const at = await place({ 'file.txt': '' })
    await mkdir(path.join(at.home, 'within'))
    for (const [workspace, words] of [
      ['/', 'root of the file system'],
      [homedir(), 'home directory'],
      ['/nowhere/at/all', 'does not exist'],
      [path.join(at.workspace, 'file.txt'), 'not a directory'],
      [path.join(at.home, 'within'), 'keeps its own files'],
    ] as const) {
      const { code, stdout, stderr } = await at.run('run', 'List the files', '-w', workspace)
      expect([workspace, code, stderr]).toEqual([workspace, 2, expect.stringContaining(words)])
      // Of the model that would be asked nothing is said before the options are checked.
      expect([stdout, stderr].join()).not.toContain('offline model')
    }
    expect((await at.run('runs', 'list')).stdout).toContain('no runs yet')
  })

  it('refuses one name for two models of steps, and a name that is none, and exits with 2 [S3.06]', async () => {
    const at = await place({})
    const refused = async (...models: string[]) => {
      const named = models.flatMap((model) => ['--step-model', model])
      return await at.run('run', 'x', '-w', at.workspace, ...named)
    }
    expect(await refused('fast=a', 'fast=b')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('gives the name "fast" to two models, a and b'),
    })
    for (const name of ['=a', 'fa st=a'])
      expect(await refused(name)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('a name has no spaces'),
      })
  })

  it('refuses folders that cannot be added, by path or by name, and exits with 2 [W.08 H.01]', async () => {
    const at = await place({ 'file.txt': '', 'a/x': '', 'b/x': '', 'c=d/x': '' })
    const inside = (name: string) => path.join(at.workspace, name)
    for (const [given, words] of [
      [['/nowhere'], 'the folder "/nowhere" cannot be added: "/nowhere" does not exist'],
      [[inside('file.txt')], 'not a directory'],
      [['name=/nowhere'], 'the folder "/nowhere"'],
      [['./no=where'], 'the folder "./no=where"'],
      [[`..=${inside('a')}`], 'folders.0.name: expected 1 to 64 letters'],
      [[inside('c=d'), at.workspace], 'is the workspace itself'],
      [[`one=${inside('a')}`, `one=${inside('b')}`], 'two of them are named one'],
      [[`one=${inside('a')}`, inside('a')], 'is already added as one'],
    ] as const) {
      const flags = given.flatMap((folder) => ['--add-dir', folder])
      const { code, stderr } = await at.run('run', 'List the files', '-w', at.workspace, ...flags)
      expect([given, code, stderr]).toEqual([given, 2, expect.stringContaining(words)])
    }
    expect((await at.run('runs', 'list')).stdout).toContain('no runs yet')
  })

  it('refuses tools that no run can have, with those there are, before anything starts [H.01]', async () => {
    const at = await place({})
    const { code, stdout, stderr } = await at.run('run', 'x', '-w', at.workspace, '--tool', 'nope_*')
    expect(stdout).toBe('')
    expect([code, stderr]).toEqual([2, expect.stringMatching(/no tool is named "nope_\*".*list_files/)])
    expect((await at.run('runs', 'list')).stdout).toContain('no runs yet')
  })

  it('refuses a limit of cost that nothing could be counted by, before anything starts [G.05]', async () => {
    const at = await place({}, { CAISSON_LLM_URL: 'http://127.0.0.1:9/v1', CAISSON_MODEL: 'm' })
    const { code, stderr } = await at.run('run', '-w', at.workspace, '--max-cost', '1', 'x')
    expect([code, stderr]).toEqual([2, expect.stringContaining('price of m is not known')])
  })

  it('refuses a model address that is none, with the variable to set, and exits with 4 [S0.09]', async () => {
    const at = await place({}, { CAISSON_LLM_URL: 'ftp://example.org', CAISSON_MODEL: 'm' })
    const { code, stderr } = await at.run('run', 'List the files', '-w', at.workspace)
    expect([code, stderr]).toEqual([4, expect.stringContaining('CAISSON_LLM_URL')])
  })
})
