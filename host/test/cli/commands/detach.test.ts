// `caisson run --detach` where there is no run to leave: real background processes, no VM.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { cliPlace } from '../../support/cli.ts'

describe('caisson run --detach', () => {
  it('says why there is no run, with its exit code, and leaves nothing [R.10]', async () => {
    const place = await cliPlace({})
    const refused = await place.run('run', 'do it', '--detach', '-w', '/')
    const plain = await place.run('run', 'do it', '-w', '/')
    expect([refused.code, refused.stderr]).toEqual([plain.code, plain.stderr])
    expect(refused.stdout).toBe('')
    expect(await readdir(path.join(place.home, 'runs'))).toEqual([])
  })

  it('takes no option that needs its output [R.10]', async () => {
    const place = await cliPlace({})
    for (const option of ['--json', '--quiet']) {
      const { code, stderr } = await place.run('run', 'do it', '--detach', option)
      expect([code, stderr]).toEqual([2, expect.stringContaining('--detach')])
    }
  })

  it('continues no run that it cannot find or that has ended [R.10]', async () => {
    const place = await cliPlace({})
    const { code, stderr } = await place.run('runs', 'resume', 'run-0123456789abcdef0123', '--detach')
    expect([code, stderr]).toEqual([2, expect.stringContaining('no run has the ID')])
  })
})
