import { readdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { findVms, testBench } from '../support/runs.ts'

const vm = { memoryBytes: 512 * 1024 ** 2 }

describe('a run that continues another', () => {
  it('works on in its VM, with the directory as it is now, and learns what was done [V.04]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    const first = await bench.run('Run the command `echo here >~/note; echo made >new.txt`', {
      vm: { ...vm, keep: true },
    })
    expect(first.state.end?.outcome).toBe('completed')
    expect(first.events).toContainEqual({ type: 'vm-kept' })
    expect(await findVms(bench.home)).toEqual([])
    // The change was not applied, and the person continues too.
    await writeFile(path.join(bench.workspace, 'b.txt'), 'b\n')
    const second = await bench.run('Run the command `cat ~/note; ls`', { continue: 'last', vm })
    expect(second.events).toContainEqual(expect.objectContaining({ type: 'vm-ready', start: 'saved' }))
    const [start] = second.events
    expect(start).toMatchObject({ type: 'run-start', continues: first.run.id })
    const output = second.events.flatMap((event) => (event.type === 'tool-end' ? [event.output] : [])).join()
    expect(output).toContain('here')
    expect(output).toContain('a.txt')
    expect(output).toContain('b.txt')
    expect(output).not.toContain('new.txt')
    expect(await (await bench.host.changes(second.run.id)).review()).toEqual([])
    // Its own VM is kept in turn, and the first run's is used up.
    expect(await readdir(path.join(bench.home, 'runs', first.run.id))).not.toContain('kept')
    expect(await readdir(path.join(bench.home, 'runs', second.run.id))).toContain('kept')
    // One that ends before it takes that VM says that it is still there.
    const refused = await bench.run('List the files', {
      continue: 'last',
      vm,
      extensions: {
        hooks: [{ point: 'before-run', run: async () => ({ decision: 'deny', reason: 'not now' }) }],
      },
    })
    expect(refused.state.end?.message).toMatch(/a hook refused the run: not now\nThe VM of run-\w+ is kept\./)
    expect(refused.state.end?.message).toContain(`caisson runs rm ${second.run.id}`)
    const kept = (await bench.host.runs.list()).map(({ id, keepsVm }) => [id, keepsVm])
    expect(new Map(kept as [string, boolean][])).toEqual(
      new Map([
        [first.run.id, false],
        [second.run.id, true],
        [refused.run.id, false],
      ]),
    )
  })

  it('begins with a new VM when none was kept, says so, and refuses another directory [V.04]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n' })
    await expect(bench.start('List the files', { continue: 'last' })).rejects.toThrow('no run has worked on')
    const first = await bench.run('List the files')
    const second = await bench.run('List the files', { continue: first.run.id, vm: { keep: false } })
    expect(second.state.end?.outcome).toBe('completed')
    const ready = second.events.find(({ type }) => type === 'vm-ready')
    expect(ready).toMatchObject({ coldReason: expect.stringContaining('kept no VM') })
    const elsewhere = await testBench({ 'c.txt': 'c\n' }, { CAISSON_HOME: bench.home })
    await expect(elsewhere.start('List the files', { continue: first.run.id })).rejects.toThrow('worked on')
  })
})
