// `caisson runs compare` and `merge` of runs that ended with changes; no VM is started.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { comparisonLines } from '../../../cli/commands/compare.ts'
import { beginChanging, placeOfRuns } from '../../support/changed-run.ts'
import { commandsIn } from '../../support/run-command.ts'
import { type Sketch, treeOf } from '../../workspace/support.ts'

const lines = (changed: Readonly<Record<number, string>> = {}) =>
  Array.from({ length: 30 }, (_, index) => `${changed[index + 1] ?? `line ${index + 1}`}\n`).join('')
const before: Sketch = { 'long.txt': lines(), 'old.txt': 'old\n' }

/** Runs that began with the same files, and left these. */
async function runsThatLeft(...afters: Sketch[]) {
  const { host, directory, env } = await placeOfRuns(before)
  const runIds: string[] = []
  for (const [index, after] of afters.entries()) {
    const runId = `run-${String(index + 1).padStart(20, '0')}`
    const end = await beginChanging(host, directory, runId)
    await end(treeOf(before), treeOf(after))
    runIds.push(runId)
  }
  const caisson = commandsIn({ ...env, PATH: process.env.PATH }, directory)
  const text = (name: string) => readFile(path.join(directory, name), 'utf8')
  return { host, runIds, caisson, text }
}

describe('caisson runs compare', () => {
  it('shows nothing of a journal raw that a terminal would obey', () => {
    const raw = 'completed\u001b[2J'
    const run = { runId: 'run-1', outcome: raw, summary: raw, entries: 0, requests: 0, costUsd: null }
    expect(comparisonLines({ runs: [run], paths: [] }, undefined)[0]).toBe(
      '[1] run-1  completed\\e[2J: completed\\e[2J',
    )
  })

  it('has a row for each path and a column for each run; equal letters are equal contents [V.05 H.01]', async () => {
    const { runIds, caisson } = await runsThatLeft(
      { 'long.txt': lines({ 2: 'two' }), 'old.txt': 'old\n', 'new.txt': 'one\n' },
      { 'long.txt': lines({ 2: 'two' }), 'new.txt': 'two\n' },
    )
    const { code, stdout } = await caisson('runs', 'compare', ...runIds)
    expect(code).toBe(0)
    for (const row of [
      /^\[1\] run-0+1 {2}completed$/m,
      // The columns begin below one another, also below a cell that is wider than their least width.
      /^path {8}\[1\] {14}\[2\]$/m,
      /^long\.txt {4}A changed \+1 -1 {2}A changed \+1 -1$/m,
      /^new\.txt +A new \+1 -0 +B new \+1 -0$/m,
      /^old\.txt +- +A deleted \+0 -1$/m,
      /^1 of 3 paths are the same in all; equal letters are equal contents$/m,
    ])
      expect(stdout).toMatch(row)
    const json = JSON.parse((await caisson('runs', 'compare', ...runIds, '--json')).stdout) as {
      paths: { path: string; isSame: boolean }[]
    }
    expect(json.paths.map(({ path: name, isSame }) => [name, isSame])).toEqual([
      ['long.txt', true],
      ['new.txt', false],
      ['old.txt', false],
    ])
  })

  it('refuses one run, the same run twice and a run that does not exist [V.05]', async () => {
    const { runIds, caisson } = await runsThatLeft({ 'long.txt': 'x\n' })
    const [one = ''] = runIds
    for (const [names, expected] of [
      [[one], 'at least 2'],
      [[one, one], `${one} is named twice`],
      [[one, 'run-ffff'], 'no run has the ID'],
    ] as const) {
      const { code, stdout, stderr } = await caisson('runs', 'compare', ...names)
      expect([code, stdout, stderr]).toEqual([2, '', expect.stringContaining(expected)])
    }
  })
})

describe('caisson runs merge', () => {
  const afters = [
    { 'long.txt': lines({ 2: 'two', 20: 'XX' }), 'old.txt': 'old\n' },
    { 'long.txt': lines({ 2: 'TWO', 28: 'end' }), 'old.txt': 'old\n', 'new.txt': 'one\n' },
  ]

  it('makes a run to review and apply of what does not conflict [V.05 W.01]', async () => {
    const { runIds, caisson, text } = await runsThatLeft(
      { 'long.txt': lines({ 2: 'two' }), 'old.txt': 'old\n' },
      { 'long.txt': lines({ 20: 'twenty' }), 'old.txt': 'old\n', 'new.txt': 'one\n' },
    )
    const { code, stdout } = await caisson('runs', 'merge', ...runIds)
    const [, runId = ''] =
      /^(run-\w+) has 2 changes of 2 runs\n {2}merged line by line: long\.txt\n/.exec(stdout) ?? []
    expect([code, stdout]).toEqual([0, expect.stringContaining(`caisson workspace apply ${runId} --all`)])
    expect((await caisson('workspace', 'apply', runId, '--all')).code).toBe(0)
    expect([await text('long.txt'), await text('new.txt')]).toEqual([
      lines({ 2: 'two', 20: 'twenty' }),
      'one\n',
    ])
  })

  it('names conflicts and makes nothing, until --take decides them by path or by hunk [V.05 W.01]', async () => {
    const { host, runIds, caisson, text } = await runsThatLeft(...afters)
    const [one = '', two = ''] = runIds
    const refused = await caisson('runs', 'merge', one, two)
    expect(refused.code).not.toBe(0)
    expect(refused.stdout).toBe(
      `Nothing was merged: 1 conflict.\n  long.txt: the same lines differ in ${one}, ${two}\nDecide each with --take RUN:PATH, or --take RUN:PATH:HUNK,HUNK for some of its hunks.\n`,
    )
    expect(JSON.parse((await caisson('runs', 'merge', one, two, '--json')).stdout)).toMatchObject({
      conflicts: [{ path: 'long.txt' }],
    })
    expect(await host.runs.ids()).toHaveLength(2)
    for (const [take, words] of [
      ['long.txt', 'expected RUN:PATH'],
      [`${one}:none.txt`, 'no change of'],
      [`${one}:long.txt:9`, 'no hunk 9'],
    ] as const) {
      const wrong = await caisson('runs', 'merge', one, two, '--take', take)
      expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining(words)])
    }
    // Also by a prefix of the run's ID.
    const takes = ['--take', `${one.slice(4)}:long.txt:1`, '--take', `${two}:long.txt:2`]
    const { code, stdout } = await caisson('runs', 'merge', one, two, ...takes)
    expect([code, stdout]).toEqual([0, expect.stringContaining(' has 2 changes of 2 runs\n')])
    const [runId = ''] = stdout.split(' ')
    expect((await caisson('workspace', 'apply', runId, '--all')).code).toBe(0)
    expect(await text('long.txt')).toBe(lines({ 2: 'two', 28: 'end' }))
  })
})
