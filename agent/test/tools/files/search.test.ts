import { Buffer } from 'node:buffer'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { RipgrepReader } from '../../../tools/files/ripgrep.ts'
import { createSearchFiles } from '../../../tools/files/search.ts'
import { call, callGood, quietContext, runInFolder } from '../../support/tools.ts'
import { temporaryFolder } from '../../support/trees.ts'

/** A workspace to search. */
function prepare() {
  const folder = temporaryFolder()
  mkdirSync(join(folder.path, 'src/.git'), { recursive: true })
  writeFileSync(join(folder.path, 'src/a.py'), 'import os\nprint(os.name)\n# end\n')
  writeFileSync(join(folder.path, 'src/b.txt'), 'OS.NAME\r\nos.name\n')
  writeFileSync(join(folder.path, 'src/.git/c'), 'os.name\n')
  writeFileSync(join(folder.path, '.hidden'), 'xosyname\n')
  writeFileSync(join(folder.path, '.gitignore'), 'src\n')
  return { folder, search: createSearchFiles(runInFolder(folder.path), { root: folder.path }) }
}

describe('search_files', () => {
  it('finds text in a read-only folder by its absolute path, and gives paths that read_file takes [W.08]', async () => {
    using home = temporaryFolder()
    const [root, folders] = [join(home.path, 'workspace'), join(home.path, 'folders')]
    mkdirSync(root)
    mkdirSync(join(folders, 'data/in'), { recursive: true })
    writeFileSync(join(folders, 'data/in/a.txt'), 'one\nneedle\n')
    const search = createSearchFiles(runInFolder(root), { root, folders })
    const found = join(folders, 'data/in/a.txt')
    for (const path of [join(folders, 'data'), found, folders]) {
      expect(await callGood(search, { pattern: 'needle', path })).toMatchObject({
        lines: [{ path: found, line: 2, text: 'needle' }],
      })
    }
  })

  it('finds plain text in all files but .git, with path, line and text [S1.04]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    const value = await callGood(search, { pattern: 'os.name' })
    expect(value).toEqual({
      lines: [
        { path: 'src/a.py', line: 2, text: 'print(os.name)', isMatch: true },
        { path: 'src/b.txt', line: 2, text: 'os.name', isMatch: true },
      ],
      matches: 2,
      files: 2,
      truncated: false,
    })
    expect(search.render?.(value)).toBe(
      '[2 matching lines in 2 files]\nsrc/a.py:2: print(os.name)\nsrc/b.txt:2: os.name',
    )
  })

  it.each([
    ['one', 'print', '[1 matching line in 1 file]'],
    ['two in one file', 'n', '[2 matching lines in 1 file]'],
  ])('counts %s as a person would write it [S1.04]', async (_, pattern, head) => {
    const { folder, search } = prepare()
    using _folder = folder
    const value = await callGood(search, { pattern, path: 'src/a.py', limit: 2 })
    expect(search.render?.({ ...value, truncated: false }).split('\n')[0]).toBe(head)
  })

  it('takes regular expressions, case, globs, a path and context [S1.04]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    const paths = async (
      input: Parameters<typeof callGood<typeof search.inputSchema, typeof search.outputSchema>>[1],
    ) =>
      (await callGood(search, input)).lines.map(
        ({ path, line, isMatch }) => `${path}:${line}${isMatch ? '' : ' context'}`,
      )
    expect(await paths({ pattern: 'os.name', regex: true })).toEqual([
      '.hidden:1',
      'src/a.py:2',
      'src/b.txt:2',
    ])
    expect(await paths({ pattern: 'os.name', ignoreCase: true, path: 'src/b.txt' })).toEqual([
      'src/b.txt:1',
      'src/b.txt:2',
    ])
    expect(await paths({ pattern: 'os.name', glob: '*.py', context: 1 })).toEqual([
      'src/a.py:1 context',
      'src/a.py:2',
      'src/a.py:3 context',
    ])
    expect(await paths({ pattern: '--files' })).toEqual([])
  })

  it('points to search_code where several words were not found as one text [S0.14, S1.04]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    const told = async (pattern: string, regex = false) =>
      search.render?.(await callGood(search, { pattern, regex }))
    expect(await told('name of os')).toMatch(/^No match\. .*search_code/)
    expect(await told('nothing')).toBe('No match.')
    expect(await told('no .* thing', true)).toBe('No match.')
  })

  it('stops at its limit and says so [T.02]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    writeFileSync(join(folder.path, 'many'), 'needle\n'.repeat(1_000_000))
    writeFileSync(join(folder.path, 'wide'), `${'needle '.repeat(500_000)}\n`)
    const value = await callGood(search, { pattern: 'needle', limit: 7 })
    expect(value).toMatchObject({ matches: 7, truncated: true })
    // A line is found however long it is and however often the pattern stands in it.
    const wide = await callGood(search, { pattern: 'needle', path: 'wide' })
    expect(wide).toMatchObject({ matches: 1, files: 1, truncated: false })
    expect(wide.lines.map(({ line, text }) => [line, text.length])).toEqual([[1, 501]])
  })

  it('explains a broken expression and refuses to leave the workspace [S1.08]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    symlinkSync('/etc', join(folder.path, 'link'))
    expect(await call(search, { pattern: '(', regex: true })).toMatchObject({
      ok: false,
      error: { code: 'invalid_input', message: expect.stringContaining('regular expression') },
    })
    const codes = []
    for (const path of ['../x', '/etc', 'link', 'link/passwd', 'none']) {
      const result = await call(search, { pattern: 'root', path })
      codes.push(result.ok ? 'ok' : result.error.code)
    }
    expect(codes).toEqual([
      'outside_workspace',
      'outside_workspace',
      'outside_workspace',
      'outside_workspace',
      'not_found',
    ])
    expect(await callGood(search, { pattern: 'root:' })).toMatchObject({ matches: 0 })
  })

  it('ends as cancelled when its call is cancelled [S1.09]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    const result = await call(search, { pattern: 'x' }, { ...quietContext, signal: AbortSignal.abort() })
    expect(result).toMatchObject({ ok: false, error: { code: 'cancelled' } })
  })
})

describe("ripgrep's output", () => {
  it('is read the same however it is cut, and any other bytes are passed over', () => {
    const record = Buffer.concat([Buffer.from('./caf\xe9\0', 'latin1'), Buffer.from('3:é\r\n')])
    const noise = fc.oneof(
      fc.constant(
        './x: WARNING: stopped searching binary file after match (found "\\0" byte around offset 9)',
      ),
      fc.string().map((text) => text.replaceAll(/[\0\n]/g, ' ')),
      fc.string().map((text) => `./y\0${text.replaceAll(/[0-9\n]/g, ' ')}`),
      fc.constant('\0\0\0'),
    )
    fc.assert(
      fc.property(fc.array(noise, { maxLength: 5 }), fc.integer({ min: 1, max: 50 }), (others, size) => {
        const bytes = Buffer.concat([...others.map((text) => Buffer.from(`${text}\n`)), record])
        const reader = new RipgrepReader(5)
        for (let at = 0; at < bytes.length; at += size)
          expect(reader.take(bytes.subarray(at, at + size))).toBe(true)
        expect(reader.result().lines).toEqual([{ path: 'caf\udce9', line: 3, text: 'é', isMatch: true }])
      }),
      { numRuns: 200, seed: 9 },
    )
  })

  it('passes over a line without end instead of holding it [T.02]', () => {
    const reader = new RipgrepReader(5)
    const piece = Buffer.alloc(100_000, 'x')
    for (let at = 0; at < 100; at++) expect(reader.take(piece)).toBe(true)
    expect(reader.take(Buffer.from('\n./f\0' + '1:x\n'))).toBe(true)
    expect(reader.result()).toMatchObject({ matches: 1, files: 1 })
  })

  it('names files whose names hold line breaks, and lines that look like others [S1.04]', async () => {
    const { folder, search } = prepare()
    using _ = folder
    mkdirSync(join(folder.path, 'a\nb'))
    writeFileSync(join(folder.path, 'a\nb/c-1:d'), '7:needle\n-needle\n')
    writeFileSync(join(folder.path, 'bin'), 'needle\n\0\nneedle\n')
    writeFileSync(join(folder.path, 'z'), 'needle')
    const { lines } = await callGood(search, { pattern: 'needle' })
    expect(lines.map(({ path, line, text }) => [path, line, text])).toEqual([
      ['a\nb/c-1:d', 1, '7:needle'],
      ['a\nb/c-1:d', 2, '-needle'],
      ['z', 1, 'needle'],
    ])
  })
})
