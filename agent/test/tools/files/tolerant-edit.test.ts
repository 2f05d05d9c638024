import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createEditFile } from '../../../tools/files/file-write.ts'
import { findReindent } from '../../../tools/files/indentation.ts'
import { LineIndex, splitLines } from '../../../tools/files/text-lines.ts'
import { editTolerantly } from '../../../tools/files/tolerant-edit.ts'
import { call } from '../../support/tools.ts'
import { temporaryFolder } from '../../support/trees.ts'

async function edit(content: string | Buffer, oldText: string, newText: string, replaceAll = false) {
  using folder = temporaryFolder()
  writeFileSync(join(folder.path, 'f'), content)
  const tool = createEditFile({ root: folder.path })
  const result = await call(tool, { path: 'f', oldText, newText, replaceAll })
  const told = result.ok ? tool.render?.(result.value) : result.error.message
  return { result, told: told ?? '', after: readFileSync(join(folder.path, 'f'), 'utf8') }
}

describe('an edit that differs in white space alone', () => {
  it('lands where there is one such place, with the indentation of the file, and says so [A.06]', async () => {
    const content = 'class A:\n    def b(self):\n        x = 1\n        return x\n'
    const { told, after } = await edit(
      content,
      'def b(self):\n    x = 1\n    return x\n',
      'def b(self):\n    x = 1\n    if x:\n        x = 2\n\n    return x\n',
    )
    expect(after).toBe(
      'class A:\n    def b(self):\n        x = 1\n        if x:\n            x = 2\n\n        return x\n',
    )
    expect(told).toContain('matched without regard to white space, lines 2-4')
    expect(told).toContain('indentation was carried over')
  })

  it('takes tabs for spaces, trailing blanks and runs of blanks, and keeps lines that stay as they are [A.06]', async () => {
    const content = 'function f() {\n\tif (a) {\n\t\treturn  1 \n\t}\n}\n'
    const { after } = await edit(
      content,
      '    if (a) {\n        return 1\n    }',
      '    if (a) {\n        log()\n        return 1\n    }',
    )
    expect(after).toBe('function f() {\n\tif (a) {\n\t\tlog()\n\t\treturn  1 \n\t}\n}\n')
  })

  it('keeps mixed line ends, a byte order mark and a missing last newline [A.06]', async () => {
    const content = '\ufeffone\r\ntwo\nthree\r\nfour'
    expect((await edit(content, 'one\ntwo\n', '1\n2\n')).after).toBe('\ufeff1\r\n2\nthree\r\nfour')
    expect((await edit(content, 'three\nfour\n', '3\n4\n')).after).toBe('\ufeffone\r\ntwo\n3\r\n4')
    expect((await edit(content, 'two\nthree \n', '')).after).toBe('\ufeffone\r\nfour')
  })

  it('is refused where there are two such places, naming both [A.06]', async () => {
    const content = 'a  = 1\nb\na   = 1\n'
    const { result, told, after } = await edit(content, 'a = 1', 'a = 2')
    expect(result).toMatchObject({ ok: false, error: { code: 'no_match' } })
    expect(told).toContain('several times, at lines 1, 3')
    expect(after).toBe(content)
  })

  it('is never taken for all occurrences, nor for a part of a line [A.06]', async () => {
    const content = 'x  = 1\n'
    expect((await edit(content, 'x = 1', 'y', true)).result).toMatchObject({ ok: false })
    expect((await edit('if (x  = 1) {\n', '(x = 1)', '(y)')).result).toMatchObject({ ok: false })
  })

  it('is refused where it is not certain how to indent the new text [A.06]', async () => {
    const { result, told, after } = await edit(
      'if a:\n   b\n      c\n',
      'if a:\n  b\n  c\n',
      'if a:\n  b\n  d\n',
    )
    expect(result).toMatchObject({ ok: false, error: { code: 'no_match' } })
    expect(told).toContain('lines 1-3')
    expect(told).toContain('not certain')
    expect(told).toContain('\n3\t      c')
    expect(after).toBe('if a:\n   b\n      c\n')
  })

  it('is not taken where white space is all that is to change [A.06]', async () => {
    const { result, told } = await edit('    a\n', '\ta\n', '  a\n')
    expect(result).toMatchObject({ ok: false, error: { code: 'no_match' } })
    expect(told).toContain('white space alone')
  })

  it('changes nothing but its place, whatever is around it [A.06]', () => {
    const line = fc.constantFrom('a', ' a', 'b  c', '', '\tb c', 'x', '}')
    const end = fc.constantFrom('\n', '\r\n')
    const lines = fc.array(fc.tuple(line, end), { maxLength: 12 })
    fc.assert(
      fc.property(lines, lines, fc.constantFrom('', '  ', '\t'), (before, behind, shift) => {
        const textOf = (some: [string, string][]) => some.map((each) => each.join('')).join('')
        const text = `${textOf(before)}${shift}unique  {\r\n${shift}\tend }\n${textOf(behind)}`
        const edited = editTolerantly(text, 'unique {\n\tend }\n', 'unique {\n\tmore\n\tend }\n')
        expect(edited).toMatchObject({
          found: 'one',
          text: `${textOf(before)}${shift}unique  {\r\n${shift}\tmore\r\n${shift}\tend }\n${textOf(behind)}`,
        })
      }),
      { numRuns: 200, seed: 11 },
    )
  })
})

describe('indentation', () => {
  it('is shifted, exchanged, or not told at all [A.06]', () => {
    const map = (written: string[], found: string[], line: string) => findReindent(written, found)?.(line)
    expect(map(['a'], ['    a'], '  b')).toBe('      b')
    expect(map(['    a', '        b'], ['a', '    b'], '            c')).toBe('        c')
    expect(map(['    a', '        b'], ['\ta', '\t\tb'], '            c')).toBe('\t\t\tc')
    expect(map(['a', '  b'], ['a', '    b'], '    c')).toBe('        c')
    expect(map(['    a'], ['a'], '  c')).toBeNull()
    expect(map(['    a', '        b'], ['\ta', '\t\tb'], '      c')).toBeNull()
    expect(map(['a', 'b'], ['a', ' b'], 'c')).toBeUndefined()
  })
})

describe('files that are hard to edit', () => {
  it('are refused when they are not UTF-8 or hold NUL, saying what to do [A.06]', async () => {
    for (const content of [
      Buffer.from([0x61, 0xff, 0x0a]),
      Buffer.from('a\0b'),
      Buffer.from([0xff, 0xfe, 0x61, 0]),
    ]) {
      const { result, told } = await edit(content, 'a', 'b')
      expect(result).toMatchObject({ ok: false, error: { code: 'binary_file' } })
      expect(told).toContain('run_python')
    }
  })

  it('are refused when they are a directory, a FIFO or a link that leads out [S1.08]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd'))
    execFileSync('mkfifo', [join(folder.path, 'fifo')])
    symlinkSync('/etc/passwd', join(folder.path, 'out'))
    const codes = []
    for (const path of ['d', 'fifo', 'out']) {
      const result = await call(createEditFile({ root: folder.path }), { path, oldText: 'a', newText: 'b' })
      codes.push(result.ok ? 'ok' : result.error.code)
    }
    expect(codes).toEqual(['not_a_file', 'not_a_file', 'outside_workspace'])
  })

  it('end in an answer, not in hours, when their lines are all alike or endless [T.02]', async () => {
    const same = 'x = 1\n'.repeat(300_000)
    expect((await edit(same, `${' x = 1\n'.repeat(5_000)}y`, 'z')).result).toMatchObject({ ok: false })
    const long = `${'a b '.repeat(500_000)}\n`
    expect((await edit(long, 'a  b', 'c')).result).toMatchObject({ ok: false, error: { code: 'no_match' } })
    const index = new LineIndex(splitLines('x\n'.repeat(100_000)).lines)
    expect(index.find([...Array.from({ length: 20_000 }, () => 'x'), 'x'], 0, 1_000_000)).toBeNull()
  })

  it('stay whole when another program puts something else in their place [S1.08]', async () => {
    using folder = temporaryFolder()
    const path = join(folder.path, 'f')
    const tool = createEditFile({ root: folder.path })
    writeFileSync(path, 'old\n')
    const swaps = [
      () => mkdirSync(path),
      () => execFileSync('mkfifo', [path]),
      () => symlinkSync('/etc/passwd', path),
      () => undefined,
    ]
    for (const swap of swaps) {
      rmSync(path, { recursive: true })
      swap()
      expect((await call(tool, { path: 'f', oldText: 'root', newText: 'toor' })).ok).toBe(false)
      rmSync(path, { recursive: true, force: true })
      writeFileSync(join(folder.path, 'g'), 'old\n')
      renameSync(join(folder.path, 'g'), path)
    }
    expect(readdirSync(folder.path)).toEqual(['f'])
  })
})
