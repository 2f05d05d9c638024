// A run of one process, watched, answered and ended from others.
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { cliPlace, runArguments } from '../../support/cli.ts'
import { readFiles } from '../../support/runs.ts'
import { getTestImage } from '../../support/vm.ts'

const ctrlC = '\u0003'

beforeAll(async () => void (await getTestImage()))

describe('a run of another process', () => {
  it('is answered from a second one, which withdraws the question of the first; a shell in its VM is part of it [V.08 S1.11]', async () => {
    const place = await cliPlace({ 'old.txt': 'old\n' })
    const run = place.startInTerminal(...runArguments(place, 'Delete old.txt'))
    await run.sees('Allow it?')
    const vm = JSON.parse((await place.run('vm', 'list', '--json')).stdout)
    expect(vm).toMatchObject({ directory: place.workspace, state: 'running' })

    const attached = place.start('attach', '--json', 'last')
    await attached.sees('approval-request')
    const command = await place.run(
      'vm',
      'shell',
      vm.runId,
      '--',
      'sh',
      '-c',
      'cat old.txt; echo new > new.txt',
    )
    expect(command).toMatchObject({ code: 0, stdout: 'old\n' })
    const asked =
      attached
        .output()
        .split('\n')
        .find((line) => line.includes('"approval-request"')) ?? ''
    const { approvalId } = JSON.parse(asked).event.request
    attached.type(`${JSON.stringify({ approvalId, decision: 'deny', hint: 'keep it' })}\n`)

    await run.sees('Denied')
    await run.sees('Apply the changes')
    run.type('1\r')
    const { code } = await run.ended
    const watched = await attached.ended
    expect(watched.code).toBe(code)
    expect(watched.stdout).toContain('"type":"run-end"')
    expect(JSON.parse(watched.stdout.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({ source: 'summary' })
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n', 'new.txt': 'new\n' })
    const accesses = (await place.journal()).filter(({ event }) => event.type === 'vm-access')
    expect(accesses).toMatchObject([
      { event: { kind: 'command', detail: 'sh -c cat old.txt; echo new > new.txt' } },
    ])
    expect(await place.leftovers()).toEqual([])
  })

  it('is left by one Ctrl-C and cancelled by two; its end is shown later too [V.08 S1.03]', async () => {
    const place = await cliPlace({})
    const run = place.start(
      ...runArguments(place, 'Run the command `echo done > done.txt; sleep 300`', '--json'),
    )
    await run.sees('"tool-start"')
    const left = place.startInTerminal('attach', 'last')
    await left.sees('run_bash')
    left.type(ctrlC)
    expect(await left.ended).toMatchObject({
      code: 3,
      stdout: expect.stringMatching(/Leaving in 2 s[\s\S]*which continues/),
    })

    const ending = place.startInTerminal('attach', 'last')
    await ending.sees('run_bash')
    ending.type(ctrlC)
    await sleep(300)
    ending.type(ctrlC)
    expect(await ending.ended).toMatchObject({ code: 3, stdout: expect.stringContaining('Run cancelled') })
    expect((await run.ended).code).toBe(3)
    expect(await place.run('attach', 'last')).toMatchObject({
      code: 3,
      stdout: expect.stringContaining('Run cancelled'),
    })
    const [, second] = [
      await place.run('vm', 'logs', 'last'),
      await place.run('vm', 'logs', '--agent', 'last'),
    ]
    expect(second).toMatchObject({ code: 0, stdout: expect.stringContaining('"from":"agent"') })
    expect(await place.leftovers()).toEqual([])
  })

  it('ends in good order by vm stop, and brings its changes home [V.08 V.06]', async () => {
    const place = await cliPlace({})
    const task = 'Run the command `echo done > done.txt; sleep 300`'
    const run = place.start(...runArguments(place, task, '--json', '--apply'))
    await run.sees('"tool-start"')
    await sleep(1_500)
    const [runId = ''] = /run-[0-9a-f]{20}/.exec(run.output()) ?? []
    expect(await place.run('vm', 'stop', runId)).toMatchObject({ code: 0 })
    const { code, stdout } = await run.ended
    expect(code).toBe(3)
    expect(stdout).toContain('"changes-ready"')
    expect(stdout).toContain('caisson vm stop')
    expect(await place.leftovers()).toEqual([])
  })
})
