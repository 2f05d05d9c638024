import { describe, expect, it } from 'vitest'
import { finish, readFiles, testBench } from '../support/runs.ts'

describe('two runs at once on one directory', () => {
  it('each work on a copy of their own, are both applied and undone, and say where both changed a path [W.06]', async () => {
    const bench = await testBench({ 'a.txt': 'a\n', 'both.txt': 'b\n' })
    const first = await bench.start('Run the command `sleep 8; ls > seen.txt; echo 1 > both.txt`')
    const second = await bench.start('Run the command `echo 2 > two.txt; echo 2 > both.txt; sleep 8`')
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
    expect(await changes.apply('all')).toMatchObject({ applied: ['both.txt', 'seen.txt'], conflicts: [] })
    expect(await others.apply('all')).toMatchObject({
      applied: ['two.txt'],
      conflicts: [{ path: 'both.txt', reason: expect.stringContaining(`also changed by ${first.id}`) }],
    })
    const files = { 'a.txt': 'a\n', 'both.txt': '1\n', 'two.txt': '2\n' }
    expect(await readFiles(bench.workspace)).toEqual({ ...files, 'seen.txt': 'a.txt\nboth.txt\nseen.txt\n' })
    expect(await bench.host.undo(first.id)).toMatchObject({ conflicts: [] })
    expect(await others.apply('all')).toMatchObject({ applied: ['both.txt'], already: ['two.txt'] })
    expect(await bench.host.undo(second.id)).toMatchObject({ conflicts: [] })
    expect(await readFiles(bench.workspace)).toEqual({ 'a.txt': 'a\n', 'both.txt': 'b\n' })
  }, 400_000)
})
