import { existsSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { changedRunId, runThatChanged } from '../../host/test/support/changed-run.ts'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { applyResult, attemptTask } from './attempt.ts'
import { chooseTasks, suite } from './suite.ts'
import type { TaskFiles } from './task.ts'
import { resultReader } from './workspace.ts'

describe('an attempt at a task of the evaluation', () => {
  it('applies all of each solution, flagged files too, but none of a repository of git [T.04]', async () => {
    // A folder for each task: one run is quicker than forty.
    const below = (name: string, files: TaskFiles) =>
      Object.fromEntries(Object.entries(files).map(([file, text]) => [`${name}/${file}`, text]))
    const present = (files: TaskFiles) =>
      Object.fromEntries(
        Object.entries(files).flatMap(([file, text]) => (text === null ? [] : [[file, text] as const])),
      )
    const before = Object.assign({}, ...suite.map(({ name, files }) => below(name, files)))
    const solutions = Object.assign({}, ...suite.map(({ name, solution }) => below(name, solution)))
    const more = { '.envrc': 'export A=1\n', '.git/hooks/pre-commit': '#!/bin/sh\n' }
    const { host, directory } = await runThatChanged(before, present({ ...before, ...solutions, ...more }))
    await using _ = host
    const reviewed = await (await host.changes(changedRunId)).review()
    const flagged = reviewed.filter((item) => item.flagged !== undefined).map((item) => item.path)
    expect(flagged).toEqual(expect.arrayContaining(Object.keys(more)))

    await applyResult(host, changedRunId)
    const read = resultReader(directory)
    expect(read('.envrc')).toBe(more['.envrc'])
    expect(existsSync(path.join(directory, '.git/hooks/pre-commit'))).toBe(false)
    for (const [file, text] of Object.entries(solutions)) expect([file, read(file)]).toEqual([file, text])
  })

  it('is none when the run cannot start: the reason is kept, and its workspace removed [T.04]', async () => {
    const [task] = chooseTasks({ only: ['config-ini'], tags: [] })
    if (task === undefined) throw new Error('no task')
    const home = await temporaryFolder('eval-home')
    await using host = new Host({
      env: { HOME: home, CAISSON_HOME: `${home}/state`, XDG_CONFIG_HOME: home, CAISSON_MODEL: 'nobodys' },
    })
    const folder = path.join(home, 'workspace')
    const end = await attemptTask(host, task, { attempt: 1, folder, run: {} })
    expect(end).toMatchObject({ kind: 'lost', why: expect.stringContaining('nobodys') })
    expect(existsSync(folder)).toBe(false)
  })
})
