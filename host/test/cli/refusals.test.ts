import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace } from '../support/cli.ts'

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
      const place = await cliPlace({}, { CAISSON_HOME: home })
      const { code, stderr } = await place.run('run', 'List the files', '-w', place.workspace)
      expect([home, code, stderr]).toEqual([home, 4, expect.stringContaining(words)])
    }
  })

  it('refuses a workspace that cannot be one before there is a run, and exits with 2 [H.01]', async () => {
    const place = await cliPlace({ 'file.txt': '' })
    await mkdir(path.join(place.home, 'within'))
    for (const [workspace, words] of [
      ['/', 'root of the file system'],
      [homedir(), 'home directory'],
      ['/nowhere/at/all', 'does not exist'],
      [path.join(place.workspace, 'file.txt'), 'not a directory'],
      [path.join(place.home, 'within'), 'keeps its own files'],
    ] as const) {
      const { code, stderr } = await place.run('run', 'List the files', '-w', workspace)
      expect([workspace, code, stderr]).toEqual([workspace, 2, expect.stringContaining(words)])
    }
    expect((await place.run('runs', 'list')).stdout).toContain('no runs yet')
  })

  it('refuses tools that no run can have, with those there are, before anything starts [H.01]', async () => {
    const place = await cliPlace({})
    const { code, stderr } = await place.run('run', 'x', '-w', place.workspace, '--tool', 'nope_*')
    expect([code, stderr]).toEqual([2, expect.stringMatching(/no tool is named "nope_\*".*list_files/)])
    expect((await place.run('runs', 'list')).stdout).toContain('no runs yet')
  })

  it('refuses a limit of cost that nothing could be counted by, before anything starts [G.05]', async () => {
    const place = await cliPlace({}, { CAISSON_LLM_URL: 'http://127.0.0.1:9/v1', CAISSON_MODEL: 'm' })
    const { code, stderr } = await place.run('run', '-w', place.workspace, '--max-cost', '1', 'x')
    expect([code, stderr]).toEqual([2, expect.stringContaining('price of m is not known')])
  })

  it('refuses a model address that is none, with the variable to set, and exits with 4 [S0.09]', async () => {
    const place = await cliPlace({}, { CAISSON_LLM_URL: 'ftp://example.org', CAISSON_MODEL: 'm' })
    const { code, stderr } = await place.run('run', 'List the files', '-w', place.workspace)
    expect([code, stderr]).toEqual([4, expect.stringContaining('CAISSON_LLM_URL')])
  })
})
