// Hostile code of workflow functions in real programs of Node and Python. What only a VM bounds is in test/vm.
import { readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { callFunction } from '../../support/code-functions.ts'
import { hostileCode } from '../../support/hostile-code.ts'
import { TestPrograms } from '../../support/programs.ts'

let programs: TestPrograms
beforeAll(async () => {
  programs = await TestPrograms.open()
})
afterAll(() => programs[Symbol.asyncDispose]())

const here = hostileCode.filter(({ needsVm }) => needsVm === undefined)

describe.each(['javascript', 'python'] as const)('hostile code in %s', (language) => {
  const rows = here.filter((row) => row.language === language)
  it.concurrent.each(rows)(
    'that $what gives a typed result and leaves nothing [S3.05 S3.10]',
    async (row) => {
      const before = Object.getOwnPropertyNames(Object.prototype)
      expect(await callFunction(row, programs)).toMatch(row.gives)
      expect(Object.getOwnPropertyNames(Object.prototype)).toEqual(before)
    },
  )
})

describe('after hostile code', () => {
  it('no program and no file is left, and the next call works [S3.10]', async () => {
    await expect.poll(() => programs.running).toBe(0)
    expect(readdirSync(programs.workspace)).toEqual([])
    for (const language of ['javascript', 'python'] as const) {
      const code = language === 'python' ? 'def work(a): return a' : 'function work(a) { return a }'
      expect(await callFunction({ language, code }, programs)).toBe('1')
    }
  })

  it('modules of the workspace do not stand in for those that the call needs [S3.10]', async () => {
    for (const name of ['json', 'os', 'linecache', 'traceback'])
      writeFileSync(path.join(programs.workspace, `${name}.py`), 'raise SystemExit("taken over")')
    writeFileSync(path.join(programs.workspace, 'helpers.py'), 'answer = 42')
    const code = 'import helpers\ndef work(a): return helpers.answer'
    expect(await callFunction({ language: 'python', code }, programs)).toBe('42')
  })
})
