// What a person does to the agent from terminals: its plan alone, its plan changed in an editor, a message, a hold, a cancel.
import { chmod, readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace, runArguments } from '../support/cli.ts'
import { readFiles } from '../support/runs.ts'
import { getTestImage } from '../support/vm.ts'

beforeAll(async () => void (await getTestImage()))

describe('caisson run with a plan of its own', () => {
  it('makes it, changes nothing, says how to carry it out, and does when told [H.01 S0.10 A.11]', async () => {
    const place = await cliPlace({ 'a.txt': 'a\n' })
    const planned = await place.run(...runArguments(place, 'Run the command `echo x > x.txt`', '--plan-only'))
    expect(planned).toMatchObject({ code: 0, stdout: expect.stringContaining('plan only, no changes') })
    const [, hint = ''] = /Run the plan: caisson (run .*)\n/.exec(planned.stdout) ?? []
    expect(hint).toMatch(/^run --plan-from run-[0-9a-f]{20}$/)
    expect(planned.stdout).not.toContain('run_bash')
    expect(await readFiles(place.workspace)).toEqual({ 'a.txt': 'a\n' })
    const done = await place.run(...hint.split(' '), '--ram', '512M', '--apply')
    expect(done).toMatchObject({ code: 0, stdout: expect.stringContaining('with the plan of run-') })
    expect(await readFiles(place.workspace)).toEqual({ 'a.txt': 'a\n', 'x.txt': 'x\n' })
    expect(await place.leftovers()).toEqual([])
  })

  it('asks about it, takes what the person made of it in their editor, and without anybody denies it [S1.11 A.11]', async () => {
    const editor = path.join(await temporaryFolder('editor'), 'my-editor')
    await writeFile(editor, '#!/bin/sh\nsed -i "s/\\"goal\\": \\"/&My way: /" "$1"\n')
    await chmod(editor, 0o700)
    const place = await cliPlace({ 'old.txt': 'old\n' }, { VISUAL: editor })
    const cli = place.startInTerminal(...runArguments(place, 'Delete old.txt', '--approve-plan'))
    await cli.sees('Run this plan?')
    expect(cli.output()).toContain('Plan: the agent asks for approval')
    cli.type('3\r')
    await cli.sees('Run the edited plan?')
    expect(cli.output()).toContain('the goal: My way: ')
    cli.type('1\r')
    await cli.sees('Allow it?')
    cli.type('n\r')
    const { code, stdout } = await cli.ended
    expect(stdout).toMatch(/Allowed\S* by you, with changes/)
    expect(stdout).toMatch(/Plan.*: My way: /)
    expect(code).toBe(3)
    const events = (await place.journal()).map(({ event }) => event)
    expect(events).toContainEqual(
      expect.objectContaining({
        type: 'approval-decision',
        by: 'person',
        plan: expect.objectContaining({ goal: expect.stringContaining('My way: ') as string }) as object,
      }),
    )
    const runs = path.join(place.home, 'runs')
    for (const run of await readdir(runs))
      expect((await readdir(path.join(runs, run))).filter((name) => name.startsWith('plan-'))).toEqual([])

    const alone = await place.run(...runArguments(place, 'Delete old.txt', '--approve-plan'))
    expect(alone).toMatchObject({ code: 3, stdout: expect.stringMatching(/Denied.*--approve all/) })
    expect(await readFiles(place.workspace)).toEqual({ 'old.txt': 'old\n' })
  })
})

describe('an agent at work', () => {
  it('gets a message by Enter, and is paused, resumed and cancelled from other terminals [A.08 V.08]', async () => {
    const place = await cliPlace({})
    const task = 'Run the command `echo done > done.txt; sleep 300`'
    const run = place.startInTerminal(...runArguments(place, task))
    await run.sees('run_bash')
    run.type('\r')
    await run.sees('What now?')
    run.type('\r')
    await run.sees('What should the agent know?')
    run.type('be quick\r')
    await run.sees('Message by the person at the terminal')
    // What was typed before stands there, and Esc sends none of it.
    run.type('never mind\r')
    await run.sees('What should the agent know?')
    run.type('\u001b')
    expect(await place.run('runs', 'steer', 'last', 'use tabs')).toMatchObject({ code: 0 })
    await run.sees('Message by caisson runs steer')
    expect(await place.run('runs', 'pause', 'last')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/: caisson runs resume run-[0-9a-f]{20}\n$/),
    })
    await run.sees('Pause requested by caisson runs pause')
    expect(await place.run('runs', 'resume', 'last')).toMatchObject({ code: 0 })
    await run.sees('Resume requested by caisson runs resume')
    expect(await place.run('runs', 'cancel', 'last')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^run-[0-9a-f]{20}: cancelled\n$/),
    })
    const { code, stdout } = await run.ended
    expect(stdout).toContain('Run cancelled')
    expect(code).toBe(3)
    const said = (await place.journal()).flatMap(({ event }) =>
      event.type === 'steer-request' ? [event.text] : [],
    )
    expect(said).toEqual(['be quick', 'use tabs'])
    expect(await place.run('runs', 'pause', 'last')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is not active: it has ended as cancelled'),
    })
    expect(await place.leftovers()).toEqual([])
  })

  it('gets messages and is paused by JSON lines too [A.08 S1.11]', async () => {
    const place = await cliPlace({})
    const run = place.start(...runArguments(place, 'Run the command `sleep 300`', '--json'))
    await run.sees('"tool-start"')
    run.type('{"steer":"be quick"}\n{"pause":true}\n{"pause":false}\n')
    await run.sees('"resume-request"')
    run.type('{"cancel":true}\n')
    const { code, stdout } = await run.ended
    expect(code).toBe(3)
    for (const type of ['steer-request', 'pause-request', 'cancel-request'])
      expect(stdout).toContain(`"type":"${type}"`)
  })
})
