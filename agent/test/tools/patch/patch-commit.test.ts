import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Root } from '#specs/node/descriptor-walk.ts'
import { parseToolValidationFailureArtifact } from '#specs/protocol/validation-failure.ts'
import type { ApprovalQuestion } from '../../../tool-calls/call.ts'
import { createFileTools } from '../../../tools/file-tools.ts'
import { createMath } from '../../../tools/math.ts'
import { readPatch } from '../../../tools/patch/apply-patch.ts'
import { commitPatch } from '../../../tools/patch/patch-commit.ts'
import { stagePatch } from '../../../tools/patch/patch-stage.ts'
import { contents, envelope, fill } from '../../support/patches.ts'
import { callAsModel, quietContext, runInFolder } from '../../support/tools.ts'
import { snapshot, temporaryFolder } from '../../support/trees.ts'

/** Does `meanwhile` between the look at the files and the writing of them; how it ends. */
async function applyWith(root: string, text: string, meanwhile: () => void): Promise<string> {
  const files = await readPatch(text)
  if (!files.ok) throw new Error(files.error.message)
  const opened = Root.open(root)
  if (!opened.ok) throw new Error(opened.error.message)
  using own = opened.value
  using scope = new DisposableStack()
  const parts = { root: own, scope, ledger: undefined, reader: quietContext }
  const staged = stagePatch(files.value, parts)
  if (!staged.ok) throw new Error(staged.error.message)
  meanwhile()
  const done = commitPatch(staged.value, parts)
  return done.ok ? 'ok' : `${done.error.code}: ${done.error.message}`
}

describe('a file that becomes another one between the look and the write', () => {
  const files = { a: '1\n', b: '2\n', 'd/c': '3\n' }
  const text = envelope(
    '*** Update File: a',
    '@@',
    '-1',
    '+one',
    '*** Delete File: d/c',
    '*** Update File: b',
    '@@',
    '-2',
    '+two',
    '*** Add File: new/n',
    '+n',
  )

  it('ends the patch with every other file as it was, and nothing outside touched [A.06] [S1.08]', async () => {
    const swaps: Record<string, (root: string, outside: string) => void> = {
      content: (root) => writeFileSync(join(root, 'b'), 'theirs\n'),
      'content of the same length': (root) => writeFileSync(join(root, 'b'), '9\n'),
      gone: (root) => rmSync(join(root, 'b')),
      directory: (root) => {
        rmSync(join(root, 'b'))
        mkdirSync(join(root, 'b'))
      },
      fifo: (root) => {
        rmSync(join(root, 'b'))
        execFileSync('mkfifo', [join(root, 'b')])
      },
      link: (root, outside) => {
        rmSync(join(root, 'b'))
        symlinkSync(join(outside, 'f'), join(root, 'b'))
      },
      taken: (root) => fill(root, { 'new/n': 'theirs\n' }),
      'folder of a new file': (root, outside) => symlinkSync(outside, join(root, 'new')),
      'folder of an old file': (root, outside) => {
        renameSync(join(root, 'd'), join(root, 'e'))
        symlinkSync(outside, join(root, 'd'))
        rmSync(join(root, 'e/c'))
      },
    }
    for (const [name, swap] of Object.entries(swaps)) {
      using folder = temporaryFolder()
      using outside = temporaryFolder()
      fill(folder.path, files)
      fill(outside.path, { f: 'outside\n' })
      let before = snapshot(folder.path)
      const ended = await applyWith(folder.path, text, () => {
        swap(folder.path, outside.path)
        before = snapshot(folder.path)
      })
      expect([name, ended]).toEqual([name, expect.stringContaining('Nothing was changed in any file')])
      expect([name, snapshot(folder.path)]).toEqual([name, before])
      expect([name, contents(outside.path)]).toEqual([name, { f: 'outside\n' }])
    }
  })

  it('has renamed files back under their names, with and without changes to them [A.06]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { ...files, mine: 'same\n' })
    const renames = envelope(
      '*** Update File: mine',
      '*** Move to: sub/yours',
      '*** Update File: a',
      '*** Move to: moved/a',
      '@@',
      '-1',
      '+one',
      '*** Add File: new/n',
      '+n',
    )
    const ended = await applyWith(folder.path, renames, () => fill(folder.path, { 'new/n': 'theirs\n' }))
    expect(ended).toContain('Nothing was changed in any file')
    expect(contents(folder.path)).toEqual({ ...files, mine: 'same\n', 'new/n': 'theirs\n' })
    expect(readdirSync(folder.path).sort()).toEqual(['a', 'b', 'd', 'mine', 'new'])
  })

  it('does not hinder a patch over other files, in folders that were moved [S1.08]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, files)
    const ended = await applyWith(folder.path, text, () => {
      renameSync(join(folder.path, 'd'), join(folder.path, 'moved'))
      writeFileSync(join(folder.path, 'other'), 'theirs\n')
    })
    expect(ended).toBe('ok')
    expect(contents(folder.path)).toEqual({ a: 'one\n', b: 'two\n', 'new/n': 'n\n', other: 'theirs\n' })
    expect(readdirSync(join(folder.path, 'moved'))).toEqual([])
  })
})

describe('new tools in the registry', () => {
  function open(root: string) {
    const tools = [...createFileTools(runInFolder(root), { root }), createMath()]
    const asked: ApprovalQuestion[] = []
    const requestApproval = (question: ApprovalQuestion) => {
      asked.push(question)
      return Promise.resolve({ decision: 'deny', hint: 'keep it' } as const)
    }
    const invoke = (name: string, input: object) => callAsModel(tools, name, input, { requestApproval })
    return { asked, invoke }
  }

  it('put a patch before the host when it deletes files, and only then [S1.11]', async () => {
    using folder = temporaryFolder()
    fill(folder.path, { a: '1\n', b: '2\n' })
    const { asked, invoke } = open(folder.path)
    const update = ['*** Update File: a', '@@', '-1', '+one']
    const denied = await invoke('apply_patch', { patch: envelope(...update, '*** Delete File: b') })
    expect(denied).toMatchObject({ error: { code: 'denied' }, output: expect.stringContaining('keep it') })
    expect(asked).toMatchObject([{ tool: 'apply_patch', preview: expect.stringContaining('delete b') }])
    expect(contents(folder.path)).toEqual({ a: '1\n', b: '2\n' })
    expect((await invoke('apply_patch', { patch: envelope(...update) })).error).toBeUndefined()
    expect(asked).toHaveLength(1)
    expect(readFileSync(join(folder.path, 'a'), 'utf8')).toBe('one\n')
  })

  it('take another word for a harmless argument, and say which is meant of one that is not [S2.17] [S2.18]', async () => {
    using folder = temporaryFolder()
    const { invoke } = open(folder.path)
    expect(await invoke('math', { expr: '6 * 7' })).toMatchObject({
      output: expect.stringMatching(/^42\b/),
      corrections: ['expr: taken as expression'],
    })
    const refused = await invoke('apply_patch', { diff: 'x' })
    const artifact = parseToolValidationFailureArtifact(refused.output)
    expect(artifact?.issues.map(({ message }) => message).join()).toContain('if you mean "patch"')
    const text = parseToolValidationFailureArtifact((await invoke('math', { expression: [] })).output)
    expect(text?.toolName).toBe('math')
  })
})
