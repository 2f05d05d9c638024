import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createTwoFilesPatch } from 'diff'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createFileTools } from '../../../tools/file-tools.ts'
import { createApplyPatch } from '../../../tools/patch/apply-patch.ts'
import { contents, envelope, fill, lines, patch } from '../../support/patches.ts'
import { call, quietContext, runInFolder } from '../../support/tools.ts'
import { snapshot, temporaryFolder } from '../../support/trees.ts'

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

  it('takes marks with blanks before them where they can be nothing else [A.06]', async () => {
    const files = { f: 'a\nb\n', gone: 'x\n' }
    const body = ['*** Update File: f', '@@', ' a', '-b', '+c']
    const whole = envelope(...body, '*** Add File: n', '+new')
    const indented = whole.replaceAll(/^(?=.)/gm, '    ')
    const marks = lines(
      ' *** Begin Patch',
      '  *** Delete File: gone',
      ' *** Add File: n',
      '+new',
      '\t*** Update File: f',
      ...body.slice(1),
      ' *** End Patch',
    )
    expect(await patch(files, indented)).toMatchObject({ code: 'ok', after: { f: 'a\nc\n', n: 'new\n' } })
    expect(await patch(files, marks)).toMatchObject({ code: 'ok', after: { f: 'a\nc\n', n: 'new\n' } })
    expect((await patch(files, marks)).after).not.toHaveProperty('gone')
  })

  it('keeps lines of a file that look like marks, and says so where they are none of its lines [A.06]', async () => {
    const files = { 'form.md': 'before\n*** End Patch\nafter\n', f: 'a\nb\n' }
    const update = ['*** Update File: form.md', '@@', ' before', ' *** End Patch', '-after', '+behind']
    expect(await patch(files, envelope(...update))).toMatchObject({
      code: 'ok',
      after: { 'form.md': 'before\n*** End Patch\nbehind\n' },
    })
    const within = ['*** Update File: f', '@@', '-b', '+c', ' *** Update File: form.md', '@@', '-after', '+x']
    const refused = await patch(files, envelope(...within))
    expect(refused).toMatchObject({ code: 'no_match', after: files })
    expect(refused.told).toContain('"*** Update File: form.md" begins with a space there')
    const ended = lines('*** Begin Patch', ...within.slice(0, 4), ' *** End Patch')
    expect((await patch(files, `${ended}Done.\n`)).after).toMatchObject({ f: 'a\nc\n' })
    const open = await patch(files, `${ended} Done, I hope.\n`)
    expect([open.after, open.told]).toEqual([files, expect.stringContaining('remove the space')])
  })

  it('changes a file that it has added or renamed before [A.06]', async () => {
    const files = { 'old.txt': 'one\ntwo\n', 'plain.txt': 'p\n' }
    const { code, told, after } = await patch(
      files,
      envelope(
        '*** Add File: d/new.txt',
        '+first',
        '+second',
        '*** Update File: old.txt',
        '*** Move to: moved.txt',
        '@@',
        '-one',
        '+eins',
        '*** Update File: plain.txt',
        '*** Move to: e/plain.txt',
        '*** Update File: ./d/new.txt',
        '@@',
        '-second',
        '+zweite',
        '*** Update File: moved.txt',
        '@@',
        '-two',
        '+zwei',
        '*** Update File: e/plain.txt',
        '@@',
        '-p',
        '+q',
      ),
    )
    expect(told).toContain('Added d/new.txt')
    expect([code, after]).toEqual([
      'ok',
      { 'd/new.txt': 'first\nzweite\n', 'moved.txt': 'eins\nzwei\n', 'e/plain.txt': 'q\n' },
    ])
    for (const last of [['*** Delete File: n'], ['*** Update File: n', '*** Move to: m', '@@', '-a', '+b']]) {
      const twice = await patch(files, envelope('*** Add File: n', '+a', ...last))
      expect(twice).toMatchObject({ code: 'invalid_input', after: files })
      expect(twice.told).toContain('say once what it becomes')
    }
    const wrong = await patch(
      files,
      envelope('*** Add File: n', '+a', '*** Update File: n', '@@', '-z', '+b'),
    )
    expect(wrong).toMatchObject({ code: 'no_match', after: files })
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

describe('a patch that half applies', () => {
  it('is undone when a file cannot be written, with contents, modes and directories as they were [A.06]', async () => {
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
      import { createApplyPatch } from '${join(import.meta.dirname, '../../../tools/patch/apply-patch.ts')}'
      const patch = Array.from({ length: ${count} }, (_, at) => '*** Update File: f' + at + '\\n-old\\n+new\\n')
      const context = { signal: new AbortController().signal, emitOutput: () => undefined }
      const tool = createApplyPatch({ root: process.argv[1] })
      process.stdout.write('ready')
      process.stdin.once('data', () => tool.execute({ patch: '*** Begin Patch\\n' + patch.join('') + '*** End Patch' }, context))`
    const found = new Set<string>()
    for (const waitMs of [4, 12, 20]) {
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
