import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { cliPlace, runArguments } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'

describe('caisson run that is ended from outside', () => {
  it('leaves nothing that the next command does not clear when it is killed [V.06]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    const killed = place.start(...runArguments(place, 'Run the command `sleep 300`'))
    await killed.sees('run_bash')
    expect((await place.run('runs', 'list')).stdout).toMatch(/ running /)
    expect(await place.run('runs', 'rm', 'last')).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('is in use by'),
    })
    killed.child.kill('SIGKILL')
    await killed.ended
    const [killedRun = ''] =
      /^run-\w+(?=.* interrupted )/m.exec((await place.run('runs', 'list')).stdout) ?? []
    const { stdout } = await place.run('runs', 'show', 'last')
    expect(stdout).toContain('no damaged lines, but the process did not close the journal')
    expect(stdout).toMatch(/under way at that time:\n.*\n {4}call run_bash command: sleep 300 /)
    const next = await place.run(...runArguments(place, 'Run the command `cat a.txt > b.txt`', '--apply'))
    expect(next.code).toBe(0)
    expect(await readFiles(place.workspace)).toEqual({ 'a.txt': 'a\n', 'b.txt': 'a\n' })
    // Until it is resumed or removed, it can be resumed.
    expect((await place.run('runs', 'rm', killedRun)).code).toBe(0)
    expect(await place.leftovers()).toEqual([])
  })

  it('is continued by another process, to the same end, and leaves nothing [R.01 S3.08 V.06]', async () => {
    const place = await cliPlace({ 'log.txt': '' })
    const task = 'Run the command `echo begun >> log.txt; sleep 3; echo ended >> log.txt`'
    const killed = place.start(...runArguments(place, task))
    await killed.sees('run_bash')
    killed.child.kill('SIGKILL')
    await killed.ended
    expect((await place.run('runs', 'show', 'last')).stdout).toMatch(/continue .*: caisson runs resume run-/)
    const resumed = await place.run('runs', 'resume', '--all', '--apply')
    expect(resumed).toMatchObject({ code: 0, stdout: expect.stringContaining('in a new VM') })
    expect(await readFiles(place.workspace)).toEqual({ 'log.txt': 'begun\nended\n' })
    expect(await place.leftovers()).toEqual([])
    expect((await place.run('runs', 'resume', '--all')).stderr).toContain('no run can be continued')
    expect((await place.run('runs', 'resume', 'last')).stderr).toContain('it has ended as completed')
  })

  it('cancels cleanly at SIGTERM during work and at SIGHUP during the start of the VM [S1.03 V.06]', async () => {
    const place = await cliPlace({})
    for (const [signal, moment] of [
      ['SIGTERM', 'run_bash'],
      ['SIGHUP', 'Workspace:'],
    ] as const) {
      const cli = place.start(...runArguments(place, 'Run the command `sleep 300`'))
      await cli.sees(moment)
      await sleep(500)
      cli.child.kill(signal)
      const { code, stdout } = await cli.ended
      expect(stdout).toContain(`cancelled by ${signal}`)
      expect(code).toBe(3)
      const ends = (await place.journal()).filter(({ event }) => event.type === 'run-end')
      expect(ends).toMatchObject([{ event: { outcome: 'cancelled', reason: 'cancelled' } }])
      expect(await place.leftovers()).toEqual([])
    }
  })
})
