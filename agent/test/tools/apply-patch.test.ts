import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
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
import { setTimeout as sleep } from 'node:timers/promises'
import { createTwoFilesPatch } from 'diff'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createApplyPatch } from '../../tools/apply-patch.ts'
import { createFileTools } from '../../tools/files.ts'
import { call, quietContext, runInFolder } from '../support/tools.ts'
import { snapshot, temporaryFolder } from '../support/trees.ts'

type Files = Readonly<Record<string, string>>

function fill(root: string, files: Files): void {
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), content)
  }
}

/** Every regular file below `root` with its content. */
function contents(root: string): Files {
  const paths = Object.entries(snapshot(root)).filter(([, what]) => what.startsWith('file'))
  return Object.fromEntries(paths.map(([path]) => [path, readFileSync(join(root, path), 'utf8')]))
}

async function patch(files: Files, text: string) {
  using folder = temporaryFolder()
  fill(folder.path, files)
  const tool = createApplyPatch({ root: folder.path })
  const result = await call(tool, { patch: text })
  const told = result.ok ? (tool.render?.(result.value) ?? '') : result.error.message
  return { code: result.ok ? 'ok' : result.error.code, told, after: contents(folder.path) }
}

const envelope = (...lines: string[]) => ['*** Begin Patch', ...lines, '*** End Patch', ''].join('\n')
const lines = (...some: string[]) => `${some.join('\n')}\n`

describe('a patch over several files', () => {
  it('changes, adds, renames and deletes, in the form of git [A.06]', async () => {
    const { code, told, after } = await patch(
      { 'src/a.ts': 'one\ntwo\nthree\n', 'old name.txt': 'x\ny\n', 'gone.txt': 'bye\n' },
      lines(
        'diff --git a/src/a.ts b/src/a.ts',
        'index 111..222 100644',
        '--- a/src/a.ts',
        '+++ b/src/a.ts',
        '@@ -1,3 +1,3 @@ function f() {',
        ' one',
        '-two',
        '+zwei',
        ' three',
        'diff --git a/old name.txt b/new/name.txt',
        'similarity index 50%',
        'rename from old name.txt',
        'rename to new/name.txt',
        '--- a/old name.txt',
        '+++ b/new/name.txt',
        '@@ -1,2 +1,2 @@',
        '-x',
        '+X',
        ' y',
        'diff --git a/gone.txt b/gone.txt',
        'deleted file mode 100644',
        '--- a/gone.txt',
        '+++ /dev/null',
        '@@ -1 +0,0 @@',
        '-bye',
        'diff --git "a/\\303\\244.sh" "b/\\303\\244.sh"',
        'new file mode 100755',
        '--- /dev/null',
        '+++ "b/\\303\\244.sh"',
        '@@ -0,0 +1,2 @@',
        '+#!/bin/sh',
        '+true',
        '\\ No newline at end of file',
      ),
    )
    expect(code).toBe('ok')
    expect(after).toEqual({
      'src/a.ts': 'one\nzwei\nthree\n',
      'new/name.txt': 'X\ny\n',
      'ä.sh': '#!/bin/sh\ntrue',
    })
    expect(told).toContain('Updated src/a.ts (+1 -1)')
    expect(told).toContain('Deleted gone.txt (+0 -1)')
  })

  it('does the same in the form of names and context [A.06]', async () => {
    const { code, told, after } = await patch(
      {
        'a.py': 'class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        pass\n',
        'b.txt': 'b\n',
        'c.txt': 'c\n',
      },
      envelope(
        '*** Update File: a.py',
        '@@ class B:',
        '@@     def f(self):',
        '-        pass',
        '+        return 1',
        '*** Update File: b.txt',
        '*** Move to: d/b.txt',
        '@@',
        '-b',
        '+B',
        '*** End of File',
        '*** Delete File: c.txt',
        '*** Add File: d/e/f.txt',
        '+new',
        '+',
        '+file',
      ),
    )
    expect([code, told]).toEqual(['ok', expect.stringContaining('Updated b.txt, now d/b.txt (+1 -1)')])
    expect(after).toEqual({
      'a.py': 'class A:\n    def f(self):\n        pass\n\nclass B:\n    def f(self):\n        return 1\n',
      'd/b.txt': 'B\n',
      'd/e/f.txt': 'new\n\nfile\n',
    })
  })

  it('takes wrong counts, wrong line numbers, a fence and CR LF, for the text says where it belongs [A.06]', async () => {
    const body = lines('--- a/f', '+++ b/f', '@@ -40,9 +41,2 @@', ' b', '-c', '+C', '@@', ' e', '+f')
    for (const text of [body, `\`\`\`diff\n${body}\`\`\`\n`, body.replaceAll('\n', '\r\n')]) {
      const { code, told, after } = await patch({ f: 'a\nb\nc\nd\ne\n' }, text)
      expect([code, after]).toEqual(['ok', { f: 'a\nb\nC\nd\ne\nf\n' }])
      expect(told).toContain('hunk 1 landed at line 2, it said 40')
    }
  })

  it('matches without regard to white space where there is one place, and says so [A.06]', async () => {
    const { code, told, after } = await patch(
      { f: 'if (a) {\r\n\tb()  \r\n}\r\n' },
      envelope(
        '*** Update File: f',
        '@@',
        ' if (a) {',
        '-    b()',
        '+    c()',
        '+    if (d) {',
        '+        e()',
        '+    }',
        ' }',
      ),
    )
    expect([code, after]).toEqual(['ok', { f: 'if (a) {\r\n\tc()\r\n\tif (d) {\r\n\t\te()\r\n\t}\r\n}\r\n' }])
    expect(told).toContain('hunk 1 matched without regard to white space, lines 1-3')
  })

  it('changes line ends where it says so, and keeps them, a byte order mark and a missing last newline otherwise [A.06]', async () => {
    const changed = lines('--- a/f', '+++ b/f', '@@ -1,2 +1,2 @@', '-a\r', '-b\r', '+a', '+b\r')
    expect((await patch({ f: 'a\r\nb\r\n' }, changed)).after).toEqual({ f: 'a\nb\r\n' })
    const kept = envelope('*** Update File: f', '@@', '-a', '+A', ' b', '@@', ' c', '+d')
    expect((await patch({ f: '\ufeffa\r\nb\nc' }, kept)).after).toEqual({ f: '\ufeffA\r\nb\nc\nd' })
    const ended = lines('--- a/f', '+++ b/f', '@@ -1 +1 @@', '-a', '\\ No newline at end of file', '+a')
    expect((await patch({ f: 'a' }, ended)).after).toEqual({ f: 'a\n' })
  })

  it('says the same as the library that made it, for any two texts [A.06]', async () => {
    const text = fc
      .array(
        fc.tuple(
          fc.constantFrom('a', 'b', 'c', '', '  a', '--- x', '+++ y', '@@ -1 +1 @@', '\\ z'),
          fc.constantFrom('\n', '\n', '\r\n'),
        ),
        { maxLength: 25 },
      )
      .map((some) => some.map((each) => each.join('')).join(''))
    const cut = fc.tuple(text, fc.boolean()).map(([all, isCut]) => (isCut ? all.replace(/\r?\n$/, '') : all))
    await fc.assert(
      fc.asyncProperty(cut, cut, fc.constantFrom(0, 1, 3), async (before, behind, context) => {
        fc.pre(before !== behind)
        const diff = createTwoFilesPatch('a/f', 'b/f', before, behind, '', '', { context })
        const { told, after } = await patch({ f: before, g: 'g' }, diff)
        expect([told, after]).toEqual([expect.stringContaining('Updated f'), { f: behind, g: 'g' }])
      }),
      { numRuns: 150, seed: 3 },
    )
  })
})

describe('a patch that does not fit', () => {
  const two = (second: string[]) => lines('--- a/one', '+++ b/one', '@@ -1 +1 @@', '-1', '+one', ...second)

  it('changes no file, and says which hunk of which file, with the nearest lines [A.06]', async () => {
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

describe('a patch that half applies', () => {
  it('is taken back when a file cannot be written, with contents, modes and directories as they were [A.06]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { a: '1\n', 'gone/b': '2\n', c: '3\n', 'shut/d': '4\n' })
    chmodSync(join(folder.path, 'a'), 0o750)
    const before = snapshot(folder.path)
    // A path below a file that the patch itself makes: known to be impossible only when it is written.
    const text = envelope(
      '*** Update File: a',
      '@@',
      '-1',
      '+one',
      '*** Delete File: gone/b',
      '*** Update File: c',
      '*** Move to: deep/er/c',
      '@@',
      '-3',
      '+three',
      '*** Add File: new/dir',
      '+x',
      '*** Add File: new/dir/file',
      '+y',
    )
    const result = await call(createApplyPatch({ root: folder.path }), { patch: text })
    expect(result).toMatchObject({
      ok: false,
      error: { message: expect.stringContaining('Nothing was changed') },
    })
    expect(snapshot(folder.path)).toEqual(before)
  })

  it('replaces every file by a whole one and leaves nothing beside them [A.06]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { a: '1\n', b: '2\n', c: '3\n' })
    chmodSync(join(folder.path, 'a'), 0o750)
    const inodes = ['a', 'b'].map((name) => statSync(join(folder.path, name)).ino)
    const text = envelope(
      '*** Update File: a',
      '@@',
      '-1',
      '+one',
      '*** Update File: b',
      '@@',
      '-2',
      '+two',
      '*** Delete File: c',
    )
    expect((await call(createApplyPatch({ root: folder.path }), { patch: text })).ok).toBe(true)
    expect(readdirSync(folder.path)).toEqual(['a', 'b'])
    expect(statSync(join(folder.path, 'a')).mode & 0o777).toBe(0o750)
    expect(['a', 'b'].map((name) => statSync(join(folder.path, name)).ino)).not.toEqual(inodes)
  })

  it('leaves each file old or new when the process is killed in it [A.06]', async () => {
    using folder = temporaryFolder()
    const count = 200
    const program = `
      import { createApplyPatch } from '${join(import.meta.dirname, '../../tools/apply-patch.ts')}'
      const patch = Array.from({ length: ${count} }, (_, at) => '*** Update File: f' + at + '\\n-old\\n+new\\n')
      const context = { signal: new AbortController().signal, emitOutput: () => undefined }
      const tool = createApplyPatch({ root: process.argv[1] })
      process.stdout.write('ready')
      process.stdin.once('data', () => tool.execute({ patch: '*** Begin Patch\\n' + patch.join('') + '*** End Patch' }, context))`
    const found = new Set<string>()
    for (const waitMs of [4, 10, 16, 22]) {
      fill(folder.path, Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}`, 'old\n'])))
      const argv = ['--conditions=caisson-source', '--input-type=module', '-e', program, folder.path]
      const child = spawn(process.execPath, argv, { stdio: ['pipe', 'pipe', 'inherit'] })
      const ended = once(child, 'exit')
      await once(child.stdout, 'data')
      child.stdin.write('go')
      await sleep(waitMs)
      child.kill('SIGKILL')
      await ended
      const after = Object.entries(contents(folder.path)).filter(([path]) => !path.startsWith('.'))
      expect(after).toHaveLength(count)
      for (const [, content] of after) found.add(content)
    }
    expect(['old\n', 'new\n']).toEqual(expect.arrayContaining([...found]))
  })

  it('is refused whole when one of its files changed since it was read [A.06]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { a: '1\n', b: '2\n' })
    const tools = createFileTools(runInFolder(folder.path), { root: folder.path })
    const one = async (name: string, input: object) => {
      const tool = tools.find((each) => each.name === name)
      if (tool === undefined) throw new Error(`no ${name}`)
      const result = await call(tool, input, quietContext)
      return result.ok ? 'ok' : result.error.code
    }
    const text = (to: string) =>
      envelope('*** Update File: a', '@@', '-1', `+${to}`, '*** Update File: b', '@@', '-2', '+2b')
    await one('read_file', { path: 'b' })
    writeFileSync(join(folder.path, 'b'), 'x\n2\n')
    expect(await one('apply_patch', { patch: text('one') })).toBe('stale')
    expect(contents(folder.path)).toEqual({ a: '1\n', b: 'x\n2\n' })
    await one('read_file', { path: 'b' })
    expect(await one('apply_patch', { patch: text('one') })).toBe('ok')
    expect(await one('write_file', { path: 'b', content: 'after' })).toBe('ok')
    writeFileSync(join(folder.path, 'a'), 'theirs')
    expect(await one('write_file', { path: 'a', content: 'mine' })).toBe('stale')
  })
})

describe('a patch for a person', () => {
  it('asks when it deletes files, in whatever form, and not otherwise [S1.11]', async () => {
    const asks = async (text: string) => await createApplyPatch().asks?.({ patch: text })
    const gone = ['@@ -1 +0,0 @@', '-a']
    expect(await asks(envelope('*** Delete File: f'))).toBe(true)
    expect(await asks(lines('--- a/f', '+++ /dev/null', ...gone))).toBe(true)
    expect(await asks(lines('--- "a/f"', '+++ "/dev\\057null"', ...gone))).toBe(true)
    expect(await asks(lines('diff --git a/f b/f', 'deleted file mode 100644'))).toBe(true)
    expect(await asks(envelope('*** Update File: f', '@@', '-*** Delete File: g', '+x'))).toBe(false)
    expect(await asks(envelope('*** Add File: f', '+a'))).toBe(false)
    expect(await asks('nonsense')).toBe(false)
  })

  it('is shown as what it changes, deletions first, and why it would fail [S1.11]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { a: '1\n', b: '2\n' })
    const { preview } = createApplyPatch({ root: folder.path })
    const text = envelope('*** Update File: a', '@@', '-1', '+one', '*** Delete File: b')
    expect(await preview?.({ patch: text }, quietContext)).toBe(
      'delete b (+0 -0, 2 bytes)\nupdate a (+1 -1)\n\na:\n- 1\n+ one',
    )
    expect(await preview?.({ patch: envelope('*** Delete File: c') }, quietContext)).toContain('will fail')
    expect(contents(folder.path)).toEqual({ a: '1\n', b: '2\n' })
  })
})

describe('a patch without end', () => {
  it('of 10,000 hunks is applied, in time linear in it [V.06]', async () => {
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

  it('over equal lines, endless lines or too many files ends in a refusal [V.06]', async () => {
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
