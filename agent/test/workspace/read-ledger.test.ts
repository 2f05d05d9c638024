import {
  appendFileSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createFileTools } from '../../tools/file-tools.ts'
import { contents, envelope } from '../support/patches.ts'
import { callAsModel, runInFolder } from '../support/tools.ts'
import { temporaryFolder } from '../support/trees.ts'

/** The file tools of one workspace, as several conversations call them. */
function openTools(root: string) {
  const tools = createFileTools(runInFolder(root), { root })
  return (stepId: string, agentPath = 'root', runId = 'run-1') =>
    async (name: string, input: object): Promise<string> => {
      const { error } = await callAsModel(tools, name, input, { runId, stepId, agentPath })
      return error?.code ?? 'ok'
    }
}

describe('a file that another conversation changed', () => {
  it('is not written, edited, replaced or deleted by one that read it before, until it reads it again [A.06]', async () => {
    using folder = temporaryFolder()
    const tools = openTools(folder.path)
    const [one, other] = [tools('a'), tools('b')]
    writeFileSync(join(folder.path, 'f'), 'line 1\nline 2\n')
    writeFileSync(join(folder.path, 'g'), 'g')
    expect(await one('read_file', { path: 'f' })).toBe('ok')
    expect(await other('edit_file', { path: 'f', oldText: 'line 2', newText: 'line two' })).toBe('ok')
    const refused = [
      await one('write_file', { path: 'f', content: 'mine' }),
      await one('edit_file', { path: 'f', oldText: 'line 1', newText: 'line one' }),
      await one('move_file', { from: 'g', to: 'f', overwrite: true }),
      await one('delete_file', { path: 'f' }),
    ]
    expect(refused).toEqual(['stale', 'stale', 'stale', 'stale'])
    expect(readFileSync(join(folder.path, 'f'), 'utf8')).toBe('line 1\nline two\n')
    expect(readdirSync(folder.path)).toEqual(['f', 'g'])
    expect(await one('read_file', { path: 'f' })).toBe('ok')
    expect(await one('edit_file', { path: 'f', oldText: 'line 1', newText: 'line one' })).toBe('ok')
    expect(readFileSync(join(folder.path, 'f'), 'utf8')).toBe('line one\nline two\n')
  })

  it('keeps a patch from all of its files, whether it changes, renames or deletes the one [A.06]', async () => {
    using folder = temporaryFolder()
    const tools = openTools(folder.path)
    const [one, other] = [tools('a'), tools('b')]
    writeFileSync(join(folder.path, 'f'), 'line 1\n')
    writeFileSync(join(folder.path, 'g'), 'g\n')
    await one('read_file', { path: 'f' })
    await other('write_file', { path: 'f', content: 'line 1\nand theirs\n' })
    const too = ['*** Update File: g', '@@', '-g', '+G']
    for (const about of [
      ['*** Update File: f', '@@', '-line 1', '+line one'],
      ['*** Update File: f', '*** Move to: h', '@@', '-line 1', '+line one'],
      ['*** Update File: f', '*** Move to: h'],
      ['*** Delete File: f'],
    ]) {
      const patch = envelope(...too, ...about)
      expect([about, await one('apply_patch', { patch })]).toEqual([about, 'stale'])
    }
    expect(contents(folder.path)).toEqual({ f: 'line 1\nand theirs\n', g: 'g\n' })
    await one('read_file', { path: 'f' })
    expect(await one('apply_patch', { patch: envelope(...too, '*** Delete File: f') })).toBe('ok')
    expect(contents(folder.path)).toEqual({ g: 'G\n' })
  })

  it('is not missed where this conversation itself deleted the folder that it was in [A.06]', async () => {
    using folder = temporaryFolder()
    const one = openTools(folder.path)('a')
    await one('write_file', { path: 'd/f', content: '1' })
    expect(await one('delete_file', { path: 'd', recursive: true })).toBe('ok')
    expect(await one('write_file', { path: 'd/f', content: '2' })).toBe('ok')
  })

  it('is free to a conversation that never read it, to the next step and to the next run [A.06]', async () => {
    using folder = temporaryFolder()
    const tools = openTools(folder.path)
    writeFileSync(join(folder.path, 'f'), '1')
    await tools('a')('read_file', { path: 'f' })
    writeFileSync(join(folder.path, 'f'), '2')
    expect(await tools('a', 'root/child')('write_file', { path: 'f', content: '3' })).toBe('ok')
    expect(await tools('b')('write_file', { path: 'f', content: '4' })).toBe('ok')
    expect(await tools('a', 'root', 'run-2')('write_file', { path: 'f', content: '5' })).toBe('ok')
    expect(await tools('a')('write_file', { path: 'f', content: '6' })).toBe('stale')
  })

  it('is known by its content, so that writing the same again or a new date changes nothing [A.06]', async () => {
    using folder = temporaryFolder()
    const path = join(folder.path, 'f')
    const one = openTools(folder.path)('a')
    writeFileSync(path, 'same')
    await one('read_file', { path: 'f' })
    writeFileSync(path, 'same')
    utimesSync(path, 1, 1)
    expect(await one('write_file', { path: 'f', content: 'new' })).toBe('ok')
    expect(await one('edit_file', { path: 'f', oldText: 'new', newText: 'newer' })).toBe('ok')
  })

  it('is refused too when it is gone, came anew, or is too large to be hashed [A.06]', async () => {
    using folder = temporaryFolder()
    const tools = openTools(folder.path)
    const [one, other] = [tools('a'), tools('b')]
    const path = join(folder.path, 'f')
    expect(await one('read_file', { path: 'f' })).toBe('not_found')
    expect(await other('write_file', { path: 'f', content: 'theirs' })).toBe('ok')
    expect(await one('write_file', { path: 'f', content: 'mine' })).toBe('stale')
    expect(await one('read_file', { path: 'f' })).toBe('ok')
    rmSync(path)
    expect(await one('write_file', { path: 'f', content: 'mine' })).toBe('stale')
    expect(await one('write_file', { path: 'f', content: 'mine', mode: 'create' })).toBe('ok')
    truncateSync(path, 9 * 1024 * 1024)
    writeFileSync(path, `${'x'.repeat(80)}\n`.repeat(120_000))
    expect(await one('read_file', { path: 'f', offset: 10, limit: 5 })).toBe('ok')
    appendFileSync(path, 'more')
    expect(await one('write_file', { path: 'f', content: 'mine' })).toBe('stale')
  })

  it('is known under its new name when this conversation moved it, alone or in a folder [A.06]', async () => {
    using folder = temporaryFolder()
    const one = openTools(folder.path)('a')
    mkdirSync(join(folder.path, 'd'))
    writeFileSync(join(folder.path, 'd/f'), '1')
    await one('read_file', { path: 'd/f' })
    await one('move_file', { from: 'd', to: 'e' })
    await one('move_file', { from: 'e/f', to: 'g' })
    writeFileSync(join(folder.path, 'g'), '2')
    expect(await one('write_file', { path: 'g', content: '3' })).toBe('stale')
    writeFileSync(join(folder.path, 'e/f'), 'theirs')
    expect(await one('write_file', { path: 'e/f', content: '3' })).toBe('stale')
  })

  it('loses no change that a conversation did not see, however two of them take turns [A.06]', async () => {
    const step = fc.record({
      who: fc.constantFrom('a', 'b'),
      do: fc.constantFrom('read', 'write', 'edit', 'delete'),
      file: fc.constantFrom('f', 'g'),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        using folder = temporaryFolder()
        const tools = openTools(folder.path)
        // What each has last seen of each file; nothing: it never looked.
        const seen = new Map<string, string | null>()
        const contentOf = (file: string): string | null =>
          readdirSync(folder.path).includes(file) ? readFileSync(join(folder.path, file), 'utf8') : null
        for (const [at, { who, do: what, file }] of steps.entries()) {
          const key = `${who} ${file}`
          const before = contentOf(file)
          const isKnown = seen.has(key)
          const isCurrent = seen.get(key) === before
          const one = tools(who)
          const code =
            what === 'read'
              ? await one('read_file', { path: file })
              : what === 'write'
                ? await one('write_file', { path: file, content: `${who}${at}\n` })
                : what === 'edit'
                  ? await one('edit_file', { path: file, oldText: '\n', newText: `${at}\n` })
                  : await one('delete_file', { path: file })
          const after = contentOf(file)
          if (what !== 'read' && isKnown && !isCurrent) expect([code, after]).not.toEqual(['ok', before])
          if (after !== before) expect(isKnown && !isCurrent).toBe(false)
          if (code === 'ok' || (what === 'read' && code === 'not_found')) seen.set(key, after)
        }
      }),
      { numRuns: 60, seed: 5 },
    )
  })
})
