// Hunks of a file at the command line: shown with their numbers, named, chosen by a person.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { ownChanges } from '../../../cli/commands/changes-of-run.ts'
import { reviewAndApply } from '../../../cli/commands/review-changes.ts'
import { runCli } from '../../../cli/main.ts'
import { changedRunId, runThatChanged } from '../../support/changed-run.ts'
import { Person } from '../support/person.ts'

const lines = (...changed: number[]) =>
  Array.from({ length: 40 }, (_, at) => `line ${at}${changed.includes(at) ? ' of the run' : ''}\n`).join('')

async function place() {
  const run = await runThatChanged(
    { 'a.txt': lines(), 'b:2': 'b\n' },
    { 'a.txt': lines(2, 20, 38), 'b:2': 'B\n' },
  )
  const file = (name: string) => readFileSync(path.join(run.directory, name), 'utf8')
  const io = () => ({ env: run.env, version: '0', directory: run.directory })
  const caisson = async (...argv: string[]) => await cli('workspace', ...argv)
  const cli = async (...argv: string[]) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    const code = await runCli(argv, { ...io(), stdin, stdout, stderr })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { ...run, file, io, caisson, cli }
}

describe('hunks at the command line', () => {
  it('are shown with numbers, applied by number, range and ID, journaled and undone [W.01 H.01]', async () => {
    const { caisson, cli, file, host } = await place()
    const shown = (await caisson('diff', 'last', 'a.txt')).stdout
    expect(shown.match(/@@.* hunk \d/g)).toHaveLength(3)
    const applied = await caisson('apply', 'last', './a.txt:2-3')
    expect(applied.code).toBe(0)
    expect(applied.stdout).toContain('Applied 1 change (2 of 3 hunks of a.txt).')
    expect(file('a.txt')).toBe(lines(20, 38))
    const rest = (await caisson('diff', 'last', 'a.txt', '--json')).stdout
    const { hunks } = JSON.parse(rest)
    expect(hunks).toMatchObject([{ oldStart: 1, oldLines: 6, newStart: 1, newLines: 6 }])
    expect(await caisson('apply', 'last', `a.txt:${hunks[0].id}`)).toMatchObject({ code: 0 })
    expect(file('a.txt')).toBe(lines(2, 20, 38))
    const events = (await host.runs.read(changedRunId)).map(({ event }) => event)
    expect(events.filter(({ type }) => type === 'apply-end')).toMatchObject([
      { paths: ['a.txt'], parts: [{ path: 'a.txt', hunks: 2, of: 3 }] },
      { paths: ['a.txt'] },
    ])
    const told = await cli('runs', 'show', 'last')
    expect(told.stdout).toContain('Applied 1 path (2 of 3 hunks of a.txt)')
    expect(await caisson('undo', 'last')).toMatchObject({ code: 0 })
    expect(file('a.txt')).toBe(lines())
  })

  it('are not taken from a path that looks like a file with hunks [W.01]', async () => {
    const { caisson, file } = await place()
    expect(await caisson('apply', 'last', 'b:2')).toMatchObject({ code: 0 })
    expect(file('b:2')).toBe('B\n')
    expect(file('a.txt')).toBe(lines())
  })

  it.each<[string[], number, string]>([
    [['a.txt:4'], 1, 'has no hunk 4 now; it has 3 hunks'],
    [['a.txt:0'], 2, '"0" names no hunks'],
    [['a.txt:3-2'], 2, '"3-2" names no hunks'],
    [['a.txt:1-99999'], 2, '"1-99999" names no hunks'],
    [['a.txt', 'a.txt:1'], 2, 'is in paths and in hunks'],
    [['c.txt:1'], 2, 'no change of'],
    [['a.txt:0123456789ab'], 1, 'has no hunk "0123456789ab" now'],
    [['__proto__:1'], 2, 'no change of'],
  ])('are refused as %j, and nothing is applied [W.01]', async (words, code, why) => {
    const { caisson, file } = await place()
    const refused = await caisson('apply', 'last', ...words)
    expect(refused).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(why) })
    expect(file('a.txt')).toBe(lines())
  })

  it('are chosen by a person, after the run or later [W.01 H.01]', async () => {
    const { file, io, host } = await place()
    const person = new Person({ columns: 100, rows: 40 })
    const terminal = {
      ...io(),
      stdin: Object.assign(person.input, { isTTY: true }),
      stdout: Object.assign(person.output, { isTTY: true }),
      stderr: person.output,
    }
    const state = {
      end: { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const,
      heldBack: null,
    }
    const done = reviewAndApply(terminal, await ownChanges(host, changedRunId), {
      choice: 'ask',
      state,
      quietMs: 1,
    })
    await person.sees('2 · some; choose paths and hunks')
    person.type('2\r')
    await person.sees('Apply which?')
    person.type('1\r')
    await person.sees('2 · line 18, +1 -1: -line 20')
    person.type('2\r')
    await person.sees('Applied 1 change (1 of 3 hunks of a.txt).')
    expect(await done).toBe(0)
    expect(file('a.txt')).toBe(lines(20))
    const later = runCli(['workspace', 'apply', 'last'], terminal)
    await person.sees('Apply the changes to your files?')
    // A question takes no answer in its first second.
    await new Promise((resolve) => setTimeout(resolve, 1_200))
    person.type('n\r')
    await person.sees('Nothing was applied.')
    expect(await later).toBe(0)
    expect(file('a.txt')).toBe(lines(20))
  })
})
