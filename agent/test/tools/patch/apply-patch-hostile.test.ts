import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createApplyPatch } from '../../../tools/patch/apply-patch.ts'
import { envelope, fill, lines, patch } from '../../support/patches.ts'
import { call } from '../../support/tools.ts'
import { snapshot, temporaryFolder } from '../../support/trees.ts'

describe('a patch that does not fit', () => {
  const two = (second: string[]) => lines('--- a/one', '+++ b/one', '@@ -1 +1 @@', '-1', '+one', ...second)

  it('changes no file, and names the hunk and its file, with the nearest lines [A.06]', async () => {
    const files = { one: '1\n', two: 'alpha beta\ngamma\n' }
    const { code, told, after } = await patch(
      files,
      two(['--- a/two', '+++ b/two', '@@ -1,2 +1,2 @@', ' alpha  betta', '-gamma', '+delta']),
    )
    expect([code, after]).toEqual(['no_match', files])
    expect(told).toContain('hunk 1 of "two" (line 8 of the patch)')
    expect(told).toContain('1\talpha beta\n2\tgamma')
    expect(told).toContain('Nothing was changed')
  })

  it('is refused where a hunk could be in two places, or only says what is added [A.06]', async () => {
    const files = { f: 'x\ny\nx\n' }
    const twice = await patch(files, envelope('*** Update File: f', '@@', '-x', '+z'))
    expect([twice.code, twice.told]).toEqual(['ambiguous_match', expect.stringContaining('lines 1, 3')])
    const nowhere = await patch(files, envelope('*** Update File: f', '@@', '+z'))
    expect([nowhere.code, nowhere.after]).toEqual(['no_match', files])
    const wrongOrder = await patch(
      { f: 'a\nb\n' },
      envelope('*** Update File: f', '@@', '-b', '+B', '@@', '-a', '+A'),
    )
    expect(wrongOrder.told).toContain('put hunks in the order of the file')
  })

  it('is refused when it says nothing certain, naming the line of the patch [S1.09]', async () => {
    const refused = [
      ['\n', 'it changes nothing'],
      ['hello', 'it changes nothing'],
      ['@@ -1 +1 @@\n-a\n+b\n', 'no head that names its file'],
      ['--- a/f\n@@ -1 +1 @@\n-a\n+b\n', 'Missing "+++ ..."'],
      [lines('--- a/f', '+++ b/f', '@@ -1,2 +1,2 @@', ' a', 'x', '-b', '+c'), 'line 5'],
      [lines('--- a/f', '+++ b/f', '@@ -1 +1 @@', '-a', '+b', '', 'That is all!'), 'line 7'],
      [lines('--- a/f', '+++ b/g', '@@ -1 +1 @@', '-a', '+b'), 'rename from'],
      [lines('*** Begin Patch', '*** Update File: f', '@@', '-a', '+b'), 'cut off'],
      [envelope('*** Update File: f'), 'no change of f'],
      [envelope('*** Update File: f', '@@', ' a'), 'no change of f'],
      [envelope('*** Add File: n', 'text'), 'line 3'],
      [envelope('@@', '-a'), 'expected "*** Update File'],
      [
        envelope('*** Update File: f', '@@', '-a', '+b', '*** Update File: ./f', '@@', '-b', '+c'),
        'the same file',
      ],
      [
        lines(
          'diff --git a/l b/l',
          'new file mode 120000',
          '--- /dev/null',
          '+++ b/l',
          '@@ -0,0 +1 @@',
          '+/etc',
        ),
        '120000',
      ],
      [lines('diff --git a/f b/f', 'Binary files a/f and b/f differ'), 'binary'],
      [lines('diff --git a/f b/c', 'copy from f', 'copy to c'), 'copies'],
    ] as const
    for (const [text, reason] of refused) {
      const { code, told, after } = await patch({ f: 'a\nb\n' }, text)
      expect([text, code === 'ok', told, after]).toEqual([
        text,
        false,
        expect.stringContaining(reason),
        { f: 'a\nb\n' },
      ])
    }
  })

  it('leaves the workspace never, whatever its paths are [S1.08]', async () => {
    using outside = temporaryFolder()
    writeFileSync(join(outside.path, 'f'), 'a\n')
    using folder = temporaryFolder()
    fill(folder.path, { mine: '1\n' })
    symlinkSync(outside.path, join(folder.path, 'link'))
    symlinkSync(join(outside.path, 'f'), join(folder.path, 'f'))
    symlinkSync(join(outside.path, 'new'), join(folder.path, 'dangling'))
    const before = snapshot(folder.path)
    const tool = createApplyPatch({ root: folder.path })
    const change = ['@@', '-a', '+b']
    const patches = [
      ...['../f', `${outside.path}/f`, 'link/f', 'f', 'x/../../f'].flatMap((path) => [
        envelope('*** Update File: mine', '@@', '-1', '+2', `*** Update File: ${path}`, ...change),
        lines(
          '--- a/mine',
          '+++ b/mine',
          '@@ -1 +1 @@',
          '-1',
          '+2',
          `--- a/${path}`,
          `+++ b/${path}`,
          '@@ -1 +1 @@',
          '-a',
          '+b',
        ),
      ]),
      ...['../n', `${outside.path}/n`, 'link/n', 'link/a/b', '/n', 'none/../../n', 'dangling'].map((path) =>
        envelope('*** Update File: mine', '@@', '-1', '+2', `*** Add File: ${path}`, '+x'),
      ),
      envelope('*** Update File: mine', '*** Move to: ../mine', '@@', '-1', '+2'),
      envelope('*** Delete File: link/f'),
    ]
    for (const text of patches) expect([text, (await call(tool, { patch: text })).ok]).toEqual([text, false])
    expect(snapshot(folder.path)).toEqual(before)
    expect([readdirSync(outside.path), readFileSync(join(outside.path, 'f'), 'utf8')]).toEqual([['f'], 'a\n'])
  })

  it('does not take directories, FIFOs, binary files and files that are there for what they are not [S1.09]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { 'd/f': 'a\n', bin: 'a\0\n', latin: 'a\n' })
    writeFileSync(join(folder.path, 'latin'), Buffer.from([0x61, 0x0a, 0xe4, 0x0a]))
    execFileSync('mkfifo', [join(folder.path, 'fifo')])
    const before = snapshot(join(folder.path, 'd'))
    const codes = []
    for (const some of [
      ['*** Update File: d', '@@', '-a', '+b'],
      ['*** Update File: fifo', '@@', '-a', '+b'],
      ['*** Update File: bin', '@@', '-a', '+b'],
      ['*** Update File: latin', '@@', '-a', '+b'],
      ['*** Add File: d/f', '+x'],
      ['*** Add File: d/f/g', '+x'],
      ['*** Delete File: d'],
      ['*** Delete File: none'],
      ['*** Update File: d/f', '*** Move to: bin', '@@', '-a', '+b'],
    ]) {
      const result = await call(createApplyPatch({ root: folder.path }), { patch: envelope(...some) })
      codes.push(result.ok ? 'ok' : result.error.code)
    }
    expect(codes).toEqual([
      'not_a_file',
      'not_a_file',
      'binary_file',
      'binary_file',
      'already_exists',
      'not_a_directory',
      'not_a_file',
      'not_found',
      'already_exists',
    ])
    expect(snapshot(join(folder.path, 'd'))).toEqual(before)
  })
})

describe('a patch without end', () => {
  it('of 10,000 hunks is applied, in time linear in it [T.02]', async () => {
    const count = 10_000
    const before = Array.from({ length: count * 3 }, (_, at) => `line ${at}`)
    const hunks = Array.from({ length: count }, (_, at) => [
      '@@',
      ` line ${at * 3}`,
      `-line ${at * 3 + 1}`,
      `+changed ${at}`,
    ])
    const { code, after } = await patch(
      { f: lines(...before) },
      envelope('*** Update File: f', ...hunks.flat()),
    )
    expect([code, after.f?.split('\n')[1], after.f?.split('\n').at(-3)]).toEqual([
      'ok',
      'changed 0',
      'changed 9999',
    ])
  })

  it('over equal lines, endless lines or too many files ends in a refusal [T.02]', async () => {
    const same = { f: 'x\n'.repeat(60_000) }
    const hunks = Array.from({ length: 20 }, () => [
      '@@',
      ...Array.from({ length: 1_000 }, () => ' x'),
      '-y',
      '+z',
    ]).flat()
    expect((await patch(same, envelope('*** Update File: f', ...hunks))).code).toBe('no_match')
    const deep = ['@@', ...Array.from({ length: 30_000 }, () => ' x'), '+z']
    expect((await patch(same, envelope('*** Update File: f', ...deep))).code).toMatch(
      /too_large|ambiguous_match/,
    )
    const long = await patch(
      { f: `${'ab '.repeat(300_000)}\n` },
      envelope('*** Update File: f', '@@', `-${'ab'.repeat(200_000)}`, '+z'),
    )
    expect([long.code, long.told.length < 20_000]).toEqual(['no_match', true])
    const many = Array.from({ length: 301 }, (_, at) => [`*** Add File: f${at}`, '+x']).flat()
    expect((await patch({}, envelope(...many))).code).toBe('too_large')
  })

  it('of any words at all ends with a value, and changes nothing when it fails [S1.09]', async () => {
    const word = fc.constantFrom(
      '--- a/f',
      '+++ b/f',
      '@@ -1,1 +1,1 @@',
      '@@',
      '-a',
      '+b',
      ' a',
      '',
      '*** Begin Patch',
      '*** End Patch',
      '*** Update File: f',
      '*** Add File: g',
      '*** Delete File: f',
      '*** Move to: h',
      '*** End of File',
      'diff --git a/f b/f',
      'rename from f',
      'rename to g',
      '\\ No newline at end of file',
      '--- /dev/null',
      '+++ /dev/null',
      'new file mode 100644',
      '@@ -99999999999 +1 @@',
      '-- ',
      '2.39',
      '\r',
    )
    await fc.assert(
      fc.asyncProperty(fc.array(word, { maxLength: 14 }), async (words) => {
        const { code, after } = await patch({ f: 'a\n' }, `${words.join('\n')} `)
        if (code !== 'ok') expect(after).toEqual({ f: 'a\n' })
        expect(Object.keys(after).filter((path) => path.startsWith('.'))).toEqual([])
      }),
      { numRuns: 250, seed: 21 },
    )
  })

  it('with a huge path fails like any other [S1.08]', async () => {
    const path = Array.from({ length: 2_000 }, () => 'd').join('/')
    expect(existsSync('d')).toBe(false)
    expect(
      (await patch({}, envelope(`*** Add File: ${path}`, '+x', `*** Add File: ${path}/x/../../../..`, '+x')))
        .code,
    ).not.toBe('ok')
  })
})
