import path from 'node:path'
import { execa } from 'execa'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { chooseTasks, suite } from './suite.ts'
import { hiddenFolder } from './task.ts'
import { checkResult, type RunTest } from './verdict.ts'
import { writeFiles, writeWorkspace } from './workspace.ts'

/** On this machine: what it executes here is of the suite alone. */
const runTest: RunTest = async (folder, { files, command }) => {
  await writeFiles(path.join(folder, hiddenFolder), files)
  const { exitCode, stdout, stderr } = await execa('bash', ['-c', command], { cwd: folder, reject: false })
  return { exitCode: exitCode ?? null, stdout, stderr }
}

describe('tasks of the evaluation', () => {
  it('are at least 40, with names of their own and each difficulty [T.04]', () => {
    expect(suite.length).toBeGreaterThanOrEqual(40)
    expect(new Set(suite.map(({ name }) => name)).size).toBe(suite.length)
    for (const { name } of suite) expect(name).toMatch(/^[a-z0-9]+(-[a-z0-9]+)*$/)
    expect(new Set(suite.map(({ difficulty }) => difficulty))).toEqual(new Set(['easy', 'medium', 'hard']))
  })

  it.each(suite)(
    '$name: the check refuses the workspace as it is, and accepts the solution [T.04]',
    async (task) => {
      const untouched = await temporaryFolder('eval')
      await writeWorkspace(task, untouched)
      expect((await checkResult(task, untouched, runTest)).passed).toBe(false)

      const solved = await temporaryFolder('eval')
      await writeWorkspace(task, solved)
      await writeFiles(solved, task.solution)
      expect(await checkResult(task, solved, runTest)).toEqual({ passed: true, problems: [] })
    },
  )

  it('a test that ends early with code 0 is not passed [T.04]', async () => {
    const [task] = chooseTasks({ only: ['python-pages'], tags: [] })
    if (task === undefined) throw new Error('no task')
    const folder = await temporaryFolder('eval')
    await writeWorkspace(task, folder)
    await writeFiles(folder, { 'pages.py': 'import os\nos._exit(0)\n' })
    expect(await checkResult(task, folder, runTest)).toMatchObject({ passed: false })
  })

  it('are chosen by name and tag; unknown ones are refused', () => {
    expect(chooseTasks({ only: [], tags: [] })).toEqual(suite)
    expect(chooseTasks({ only: ['sql-query', 'git-patch'], tags: ['sql'] }).map(({ name }) => name)).toEqual([
      'sql-query',
    ])
    expect(() => chooseTasks({ only: ['none'], tags: [] })).toThrow('no task none')
    expect(() => chooseTasks({ only: [], tags: ['none'] })).toThrow('no task has the tag none')
    expect(() => chooseTasks({ only: ['sql-query'], tags: ['git'] })).toThrow('both')
  })
})
