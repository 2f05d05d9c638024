import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createEditFile, createWriteFile } from '../../../tools/files/file-write.ts'
import { findNearestRegion } from '../../../tools/files/nearest-region.ts'
import { call, callGood } from '../../support/tools.ts'
import { temporaryFolder } from '../../support/trees.ts'

describe('write_file', () => {
  it('makes a file and the directories before it [S1.04]', async () => {
    using folder = temporaryFolder()
    const write = createWriteFile({ root: folder.path })
    expect(await callGood(write, { path: 'a/b/c.txt', content: 'ä\n' })).toEqual({
      path: 'a/b/c.txt',
      created: true,
      bytes: 3,
    })
    expect(readFileSync(join(folder.path, 'a/b/c.txt'), 'utf8')).toBe('ä\n')
  })

  it('replaces a file with its mode kept, leaving nothing beside it [S1.04]', async () => {
    using folder = temporaryFolder()
    const path = join(folder.path, 'run.sh')
    writeFileSync(path, 'old')
    chmodSync(path, 0o750)
    await callGood(createWriteFile({ root: folder.path }), { path: 'run.sh', content: 'new' })
    expect(readFileSync(path, 'utf8')).toBe('new')
    expect(statSync(path).mode & 0o777).toBe(0o750)
    expect(readdirSync(folder.path)).toEqual(['run.sh'])
  })

  it('does not replace a file in mode create, nor leave a part behind [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'f'), 'old')
    const result = await call(createWriteFile({ root: folder.path }), {
      path: 'f',
      content: 'new',
      mode: 'create',
    })
    expect(result).toMatchObject({ ok: false, error: { code: 'already_exists' } })
    expect(readFileSync(join(folder.path, 'f'), 'utf8')).toBe('old')
    expect(readdirSync(folder.path)).toEqual(['f'])
  })

  it('writes through a link that stays inside, and keeps the link [S1.08]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd'))
    writeFileSync(join(folder.path, 'd/target'), 'old')
    symlinkSync('d/target', join(folder.path, 'link'))
    await callGood(createWriteFile({ root: folder.path }), { path: 'link', content: 'new' })
    expect(readFileSync(join(folder.path, 'd/target'), 'utf8')).toBe('new')
    expect(readdirSync(folder.path)).toEqual(['d', 'link'])
  })

  it('refuses a directory, a path below a file and a path that ends in a slash [S1.09]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd'))
    writeFileSync(join(folder.path, 'f'), '')
    const write = createWriteFile({ root: folder.path })
    const codes = []
    for (const path of ['d', '.', 'f/x', 'new/']) {
      const result = await call(write, { path, content: '' })
      codes.push(result.ok ? 'ok' : result.error.code)
    }
    expect(codes).toEqual(['not_a_file', 'not_a_file', 'not_a_directory', 'invalid_input'])
    expect(existsSync(join(folder.path, 'new'))).toBe(false)
  })
})

describe('edit_file', () => {
  async function edit(content: string, oldText: string, newText: string, replaceAll = false) {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'f'), content)
    const result = await call(createEditFile({ root: folder.path }), {
      path: 'f',
      oldText,
      newText,
      replaceAll,
    })
    return { result, after: readFileSync(join(folder.path, 'f'), 'utf8') }
  }

  it('replaces the one occurrence and takes no character as special [S1.04]', async () => {
    const { result, after } = await edit('a\nb $& c\nd\n', 'b $& c', "$1 $' $$")
    expect(after).toBe("a\n$1 $' $$\nd\n")
    expect(result).toMatchObject({ ok: true, value: { replacements: 1, line: 2 } })
  })

  it('refuses several occurrences, naming their lines, unless all are meant [S1.04]', async () => {
    const once = await edit('x\ny\nx\n', 'x', 'z')
    expect(once.result).toMatchObject({
      ok: false,
      error: { code: 'ambiguous_match', message: expect.stringContaining('lines 1, 3') },
    })
    expect(once.after).toBe('x\ny\nx\n')
    expect((await edit('x\ny\nx\n', 'x', 'z', true)).after).toBe('z\ny\nz\n')
  })

  it('keeps CR LF, a byte order mark and a missing last newline [S1.04]', async () => {
    const { after } = await edit('\ufeffone\r\ntwo\r\nthree', 'one\ntwo', 'eins\nzwei\nzwei b')
    expect(after).toBe('\ufeffeins\r\nzwei\r\nzwei b\r\nthree')
  })

  it('puts nothing together that would be far too large, however often the text is there [T.02]', async () => {
    const content = 'x'.repeat(700)
    const { result, after } = await edit(content, 'x', 'y'.repeat(1_000_000), true)
    expect(result).toMatchObject({ ok: false, error: { code: 'too_large' } })
    expect(after).toBe(content)
  })

  it('shows the nearest lines when the text is not there [S1.04 A.06]', async () => {
    const content = 'def a():\n    return 1\n\ndef b(x):\n    y = x + 1\n    return y\n'
    const { result, after } = await edit(content, 'def b(x):\n  y = x + 1\n  return y', 'pass', true)
    expect(result).toMatchObject({ ok: false, error: { code: 'no_match' } })
    const message = result.ok ? '' : result.error.message
    expect(message).toContain('lines 4-6')
    expect(message).toContain('white space alone')
    expect(message).toContain('\n5\t    y = x + 1\n')
    expect(after).toBe(content)
  })

  it('refuses a file that is not UTF-8 text [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'f'), Buffer.from([0x61, 0xe9]))
    const result = await call(createEditFile({ root: folder.path }), {
      path: 'f',
      oldText: 'a',
      newText: 'b',
    })
    expect(result).toMatchObject({ ok: false, error: { code: 'binary_file' } })
  })

  it('finds a text again after replacing it, for any text around it [S1.04]', async () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', '\n', '$', '\\', 'é'), maxLength: 20 })
    await fc.assert(
      fc.asyncProperty(text, text, async (before, behind) => {
        const { after } = await edit(`${before}[old]${behind}`, '[old]', '[new]')
        expect(after).toBe(`${before}[new]${behind}`)
      }),
      { numRuns: 60, seed: 7 },
    )
  })
})

describe('the nearest region', () => {
  it('is where most lines are equal, even when the first is not [A.06]', () => {
    const content = Array.from({ length: 500 }, (_, at) => `value ${at} = compute(${at})`).join('\n')
    const region = findNearestRegion(
      content,
      'value 300 = wrong\nvalue 301 = compute(301)\nvalue 302 = compute(302)',
    )
    expect(region).toMatchObject({ startLine: 301, endLine: 303, whitespaceOnly: false })
  })

  it('is the likeliest line when none is equal, and nothing when none is like it [A.06]', () => {
    const content = 'alpha beta\nconst total = items.reduce(sum, 0)\ngamma\n'
    expect(findNearestRegion(content, 'const total = item.reduce(sum, 1)')).toMatchObject({ startLine: 2 })
    expect(findNearestRegion(content, 'QQQQ ZZZZ')).toBeUndefined()
    expect(findNearestRegion(content, ' \n ')).toBeUndefined()
  })

  it('is nothing rather than endless work on large, repetitive texts [T.02]', () => {
    expect(findNearestRegion('}\n'.repeat(200_000), '}\n'.repeat(500))).toBeUndefined()
    expect(findNearestRegion('ab'.repeat(1_000_000), 'abc')).toBeUndefined()
    expect(findNearestRegion(`${'x = 1\n'.repeat(200_000)}y = 2\n`, 'x = 1\nz = 3')).toBeDefined()
  })
})
