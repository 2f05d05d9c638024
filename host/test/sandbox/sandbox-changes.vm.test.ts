// The changes of a sandbox in a real VM: reviewed, applied and undone like those of a run.
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { writeFiles } from '../support/runs.ts'
import { getTestImage, makeTestFolders } from '../support/vm.ts'

beforeAll(async () => void (await getTestImage()))

describe('changes of a sandbox in a real VM', { timeout: 240_000 }, () => {
  it('are reviewed, applied by choice, undone, and outlive the sandbox [V.12 W.01 W.02]', async () => {
    using home = makeTestFolders()
    const workspace = await temporaryFolder('workspace')
    await writeFiles(workspace, { 'a.txt': 'old\n', 'b.txt': 'old\n', 'c.txt': 'old\n', 'run.sh': 'true\n' })
    const read = (name: string) => readFile(path.join(workspace, name), 'utf8')
    await using host = new Host({ env: { ...process.env, CAISSON_HOME: home.folders.home } })
    await using box = await host.sandbox({ workspace, vm: { memoryBytes: 512 * 1024 ** 2 } })

    await box.exec('echo new > a.txt; echo new > b.txt; rm c.txt; echo more > d.txt; echo x > .envrc')
    const first = await box.changes()
    const items = await first.review()
    expect(items.map(({ path: file, change }) => [file, change])).toEqual([
      ['.envrc', 'added'],
      ['a.txt', 'modified'],
      ['b.txt', 'modified'],
      ['c.txt', 'deleted'],
      ['d.txt', 'added'],
    ])
    expect(items[0]?.flagged).toBeDefined()
    const diffs = new Map<string, string | null>()
    for await (const item of first.reviewWithDiffs()) diffs.set(item.path, item.diff)
    expect(diffs.get('a.txt')).toContain('-old\n+new')

    // The user changes a file meanwhile: a conflict, and the file stays.
    await writeFile(path.join(workspace, 'b.txt'), 'mine\n')
    const applied = await first.apply('all')
    expect(applied.applied).toEqual(['a.txt', 'c.txt', 'd.txt'])
    expect(applied.conflicts.map(({ path: file }) => file)).toEqual(['b.txt'])
    expect([await read('a.txt'), await read('b.txt')]).toEqual(['new\n', 'mine\n'])
    const content = (text: string) => ({ content: Buffer.from(text) })
    const sides = { base: content('old\n'), run: content('new\n'), host: content('mine\n') }
    expect(await first.versions('b.txt')).toEqual(sides)
    expect([existsSync(path.join(workspace, 'c.txt')), existsSync(path.join(workspace, '.envrc'))]).toEqual([
      false,
      false,
    ])

    await box.exec('echo newer > d.txt; echo late > e.txt')
    const second = await box.changes()
    // Replaced by the next call: nothing of it is applied.
    expect(existsSync(path.join(home.folders.runs, second.runId))).toBe(true)
    const third = await box.changes()
    expect(existsSync(path.join(home.folders.runs, second.runId))).toBe(false)
    await expect(second.apply('all')).rejects.toMatchObject({ code: 'run_not_found' })

    await box.close()
    await expect(box.changes()).rejects.toMatchObject({ code: 'not_possible_now' })
    // What was applied before is no conflict with what changed there since.
    const states = new Map((await third.review()).map(({ path: file, state }) => [file, state.kind]))
    expect(Object.fromEntries(states)).toEqual({
      '.envrc': 'clear',
      'a.txt': 'applied',
      'b.txt': 'conflict',
      'c.txt': 'applied',
      'd.txt': 'clear',
      'e.txt': 'clear',
    })
    // The base of what was applied before is what was applied.
    await writeFile(path.join(workspace, 'd.txt'), 'mine\n')
    const later = { base: content('more\n'), run: content('newer\n'), host: content('mine\n') }
    expect(await third.versions('d.txt')).toEqual(later)
    await writeFile(path.join(workspace, 'd.txt'), 'more\n')
    expect((await third.apply({ paths: ['d.txt', 'e.txt'] })).applied).toEqual(['d.txt', 'e.txt'])
    expect([await read('d.txt'), await read('e.txt')]).toEqual(['newer\n', 'late\n'])
    const again = await host.changes(third.runId)
    expect((await again.undo()).restored).toEqual(['e.txt', 'd.txt'])
    expect(await read('d.txt')).toBe('more\n')
    expect((await host.undo(first.runId)).restored).toHaveLength(3)
    expect([await read('a.txt'), await read('b.txt'), await read('c.txt')]).toEqual([
      'old\n',
      'mine\n',
      'old\n',
    ])
    expect(existsSync(path.join(workspace, 'd.txt'))).toBe(false)
  })
})
