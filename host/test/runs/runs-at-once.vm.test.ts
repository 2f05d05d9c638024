import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { cliPlace } from '../support/cli.ts'
import { finish, readFiles, testBench } from '../support/runs.ts'

const lines = (second = 'line2', ninth = 'line9') =>
  ['line1', second, 'line3', 'line4', 'line5', 'line6', 'line7', 'line8', ninth, ''].join('\n')

describe('two runs at once on one directory', () => {
  it('each work on a copy of their own, are both applied and undone, and say where both changed a path, which is merged [W.06 W.07]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n', 'both.txt': 'b\n', 'lines.txt': lines() })
    const first = await bench.start(
      'Run the command `sleep 8; ls > seen.txt; echo 1 > both.txt; sed -i s/line2/first/ lines.txt`',
    )
    const second = await bench.start(
      'Run the command `echo 2 > two.txt; echo 2 > both.txt; sed -i s/line9/second/ lines.txt; sleep 8`',
    )
    const [one, two] = await Promise.all([finish(first), finish(second)])
    for (const { state } of [one, two]) expect(state.end?.outcome).toBe('completed')
    const times = [one, two].map(({ items }) =>
      items.flatMap((item) => (item.source === 'delta' ? [] : [item])),
    )
    const atOf = (at: number, type: string) => times[at]?.find(({ event }) => event.type === type)?.at ?? 0
    // Both had a VM and worked at the same time.
    expect(atOf(1, 'vm-ready')).toBeLessThan(atOf(0, 'run-end'))
    expect(atOf(0, 'vm-ready')).toBeLessThan(atOf(1, 'run-end'))
    const [changes, others] = [await bench.host.changes(first.id), await bench.host.changes(second.id)]
    expect(await changes.apply('all')).toMatchObject({
      applied: ['both.txt', 'lines.txt', 'seen.txt'],
      conflicts: [],
    })
    expect(await others.apply('all')).toMatchObject({
      applied: ['two.txt'],
      conflicts: ['both.txt', 'lines.txt'].map((file) => ({
        path: file,
        reason: expect.stringContaining(`also changed by ${first.id}`),
      })),
    })
    // What both changed in different lines is merged from what went in; in the same line the markers say it.
    const place = await cliPlace({}, { CAISSON_HOME: bench.home })
    const beside = (file: string) => path.join(bench.workspace, `${file}.caisson-${second.id}`)
    const merges = {
      'lines.txt': [0, lines('first', 'second')],
      'both.txt': [5, '<<<<<<< yours\n1\n'],
    } as const
    for (const [file, [code, text]] of Object.entries(merges)) {
      expect(await place.run('workspace', 'merge', second.id, file), file).toMatchObject({ code })
      expect(await readFile(beside(file), 'utf8')).toContain(text)
      await rm(beside(file))
    }
    const files = { 'a.txt': 'a\n', 'both.txt': '1\n', 'two.txt': '2\n', 'lines.txt': lines('first') }
    expect(await readFiles(bench.workspace)).toEqual({
      ...files,
      'seen.txt': 'a.txt\nboth.txt\nlines.txt\nseen.txt\n',
    })
    expect(await bench.host.undo(first.id)).toMatchObject({ conflicts: [] })
    expect(await others.apply('all')).toMatchObject({
      applied: ['both.txt', 'lines.txt'],
      already: ['two.txt'],
    })
    expect(await bench.host.undo(second.id)).toMatchObject({ conflicts: [] })
    expect(await readFiles(bench.workspace)).toEqual({
      'a.txt': 'a\n',
      'both.txt': 'b\n',
      'lines.txt': lines(),
    })
  }, 400_000)
})
