import { writeFile } from 'node:fs/promises'
import nodePath from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ApprovalRule } from '#specs/protocol/approval.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { matchRules, readApprovalRules, toolsNamedByRules } from '../../approvals/rules.ts'
import { Host } from '../../host.ts'

describe('patterns', () => {
  it('agree with a plain regular expression on small texts', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b', '.', '\n'), maxLength: 12 })
    const pattern = fc.string({ unit: fc.constantFrom('a', 'b', '.', '*'), maxLength: 8 })
    const slow = (glob: string) =>
      new RegExp(
        `^${glob
          .split('*')
          .map((part) => part.replaceAll('.', '\\.'))
          .join('[^]*')}$`,
      )
    fc.assert(
      fc.property(pattern, text, (glob, given) => matchesPattern(glob, given) === slow(glob).test(given)),
      {
        seed: 7,
        numRuns: 3_000,
      },
    )
  })

  it('stay linear on hostile text', () => {
    expect(matchesPattern(`${'*a'.repeat(200)}*c`, 'a'.repeat(200_000))).toBe(false)
  })
})

describe('rules', () => {
  const call = { tool: 'run_bash', arguments: '{"command":"git status","timeoutMs":5}' }

  it('decide by deny before ask before allow, whatever their order; among equals the first [S1.11]', () => {
    const [allow, ask, deny] = (['allow', 'ask', 'deny'] as const).map(
      (effect): ApprovalRule => ({ effect, tool: 'run_bash' }),
    ) as [ApprovalRule, ApprovalRule, ApprovalRule]
    for (const rules of [
      [allow, ask, deny],
      [deny, ask, allow],
      [ask, deny, allow],
    ])
      expect(matchRules(rules, call)).toEqual({ effect: 'deny', rules: [deny] })
    for (const rules of [
      [allow, ask],
      [ask, allow],
    ])
      expect(matchRules(rules, call)).toEqual({ effect: 'ask', rules: [ask] })
    const other: ApprovalRule = { effect: 'deny', tool: '*' }
    expect(matchRules([other, deny], call)?.rules[0]).toBe(other)
  })

  it('match the main argument, or the one they name [S1.11]', () => {
    expect(matchRules([{ effect: 'allow', tool: 'run_bash', pattern: 'git *' }], call)?.effect).toBe('allow')
    expect(matchRules([{ effect: 'allow', tool: 'run_bash', pattern: 'git' }], call)).toBeUndefined()
    expect(
      matchRules([{ effect: 'deny', tool: '*', argument: 'timeoutMs', pattern: '5' }], call)?.effect,
    ).toBe('deny')
  })

  const deletion = (path: unknown, tool = 'delete_file') => ({ tool, arguments: JSON.stringify({ path }) })
  const effectOf = (rule: Omit<ApprovalRule, 'tool'>, call: { tool: string; arguments: string }) =>
    matchRules([{ tool: '*', ...rule }], call)?.effect

  it('meet a path of the workspace in whatever spelling it comes [S1.11]', () => {
    const spelled = ['build/x', './build/x', 'build//x', 'build/x/', '/mnt/workspace/build/x', 'build/./x']
    const patterns = ['build/*', './build/*', '/mnt/workspace/build//*', 'build/x']
    for (const path of spelled) {
      for (const pattern of patterns) {
        for (const effect of ['allow', 'ask', 'deny'] as const)
          expect(effectOf({ effect, pattern }, deletion(path)), `${effect} ${pattern} ${path}`).toBe(effect)
      }
      expect(effectOf({ effect: 'deny', pattern: '/mnt/workspace*' }, deletion(path))).toBe('deny')
    }
    expect(effectOf({ effect: 'deny', pattern: 'build/' }, deletion('build'))).toBe('deny')
    expect(effectOf({ effect: 'allow', pattern: 'build/*' }, deletion('build/'))).toBeUndefined()
  })

  it('never allow a path with .. or one outside, and let strict rules catch it [S1.11]', () => {
    const odd = ['build/../src', '..', 'build/..', '/etc/passwd', '/mnt/workspacex/build/x', 'build/\0', 7]
    for (const path of odd) {
      for (const rule of [{ pattern: '*' }, { pattern: 'build/*' }, {}])
        expect(effectOf({ effect: 'allow', ...rule }, deletion(path)), String(path)).toBeUndefined()
      for (const effect of ['ask', 'deny'] as const)
        expect(effectOf({ effect, pattern: 'src/*' }, deletion(path)), String(path)).toBe(effect)
    }
  })

  it('allow no path outside, however it is spelled [S1.11]', () => {
    const name = fc.constantFrom('..', '.', '', 'build', 'mnt', 'workspace', 'x')
    const path = fc.array(name, { minLength: 1, maxLength: 7 }).map((names) => names.join('/'))
    const truth = (text: string) => nodePath.posix.resolve('/mnt/workspace', text)
    fc.assert(
      fc.property(path, (text) => {
        const allowed = effectOf({ effect: 'allow', pattern: 'build/*' }, deletion(text)) === 'allow'
        return !allowed || truth(text).startsWith('/mnt/workspace/build/')
      }),
      { seed: 8, numRuns: 5_000 },
    )
  })

  it('meet every path that a patch names, and allow one only where all of them fit [S1.11]', () => {
    const patch = (...lines: string[]) => ({
      tool: 'apply_patch',
      arguments: JSON.stringify({ patch: ['*** Begin Patch', ...lines, '*** End Patch'].join('\n') }),
    })
    const git = (...lines: string[]) => ({
      tool: 'apply_patch',
      arguments: JSON.stringify({ patch: lines.join('\r\n') }),
    })
    const touching = [
      patch('*** Update File: build/a', '@@', '-x', '*** Delete File: secret/key'),
      patch('*** Update File: build/a', '*** Move to: ./secret/key'),
      patch('*** Add File: /mnt/workspace/secret//key', '+x'),
      git('--- a/secret/key\t2026-01-01', '+++ /dev/null', '@@ -1 +0,0 @@', '-x'),
      git('--- secret/key', '+++ secret/key'),
      git('--- secret/\u2028key', '+++ secret/\u2028key'),
      git('diff --git a/secret/key b/secret/key', 'old mode 100644', 'new mode 100755'),
      git('diff --git a/x b/secret/key', 'rename from x', 'rename to secret/key'),
      git('--- "a/secret/k\\145y"', '+++ "b/secret/k\\145y"'),
      git('diff --git "a/secret/key" "b/secret/key"', 'deleted file mode 100644'),
      git('\ufeff--- a/secret/key', '+++ /dev/null', '@@ -1 +0,0 @@', '-x'),
      git('\ufeffdiff --git a/secret/key b/secret/key', 'deleted file mode 100644'),
      git('diff --git x secret/key_"q"', 'deleted file mode 100644'),
    ]
    for (const call of touching) {
      for (const effect of ['ask', 'deny'] as const)
        expect(effectOf({ effect, pattern: 'secret/*' }, call), call.arguments).toBe(effect)
      expect(effectOf({ effect: 'allow', pattern: 'build/*' }, call), call.arguments).toBeUndefined()
    }
    // A folder whose name begins with a blank is another folder.
    const blank = patch('*** Delete File: \u00a0build/a')
    expect(effectOf({ effect: 'allow', pattern: 'build/*' }, blank)).toBeUndefined()
    const inBuild = patch('*** Update File: build/a', '@@', '-x', '+y', '*** Delete File: build/b')
    expect(effectOf({ effect: 'allow', pattern: 'build/*' }, inBuild)).toBe('allow')
    expect(effectOf({ effect: 'deny', pattern: 'secret/*' }, inBuild)).toBeUndefined()
    const gone = git('--- a/build/b', '+++ /dev/null', '@@ -1 +0,0 @@', '-x')
    expect(effectOf({ effect: 'allow', pattern: 'build/*' }, gone)).toBe('allow')
    const moved = git('diff --git a/build/b b/build/c', 'rename from build/b', 'rename to build/c')
    expect(effectOf({ effect: 'allow', pattern: 'build/*' }, moved)).toBe('allow')
    expect(effectOf({ effect: 'deny', pattern: 'secret/*' }, moved)).toBeUndefined()
    // Its folder is named a, whatever it looks like.
    const folder = git('--- a/build/b', '+++ a/build/b', '@@ -1 +1 @@', '-x', '+y')
    expect(effectOf({ effect: 'allow', pattern: 'build/*' }, folder)).toBeUndefined()
    expect(effectOf({ effect: 'deny', pattern: 'a/build/*' }, folder)).toBe('deny')
    expect(effectOf({ effect: 'allow', pattern: '*' }, patch('*** Delete File: ../x'))).toBeUndefined()
  })

  it('allow a move only where both of its paths fit, and stop it where one does [S1.11]', () => {
    const move = (from: string, to: string) => ({
      tool: 'move_file',
      arguments: JSON.stringify({ from, to, overwrite: false }),
    })
    const pattern = 'build/*'
    expect(effectOf({ effect: 'allow', pattern }, move('build/a', './build/b'))).toBe('allow')
    for (const [from, to] of [
      ['src/a', 'build/a'],
      ['build/a', 'src/a'],
    ] as const) {
      expect(effectOf({ effect: 'allow', pattern }, move(from, to))).toBeUndefined()
      expect(effectOf({ effect: 'deny', pattern }, move(from, to))).toBe('deny')
    }
    expect(effectOf({ effect: 'allow', pattern, argument: 'to' }, move('../a', 'build/a'))).toBeUndefined()
  })

  it('protect what lies in a folder from tools that take the whole folder [S1.11]', () => {
    for (const path of ['src', 'src/', '.', '/mnt/workspace'])
      expect(effectOf({ effect: 'deny', pattern: 'src/keys/*' }, deletion(path)), path).toBe('deny')
    expect(effectOf({ effect: 'deny', pattern: 'src/*' }, deletion('sr'))).toBeUndefined()
    expect(effectOf({ effect: 'deny', pattern: 'src/*' }, deletion('.', 'list_files'))).toBeUndefined()
  })

  it('take a path in a command or in code for text [S1.11]', () => {
    const bash = { tool: 'run_bash', arguments: '{"command":"cat ../x"}' }
    expect(effectOf({ effect: 'allow', pattern: 'cat *' }, bash)).toBe('allow')
    expect(effectOf({ effect: 'deny', pattern: 'rm *' }, bash)).toBeUndefined()
  })

  it('fall on the safe side when the argument to match is not there', () => {
    for (const tool of ['constructor', '__proto__'])
      expect(effectOf({ effect: 'deny', pattern: 'x' }, deletion('x', tool))).toBe('deny')
    const blind = { tool: 'run_bash', arguments: 'not json' }
    expect(matchRules([{ effect: 'allow', tool: 'run_bash', pattern: '*' }], blind)).toBeUndefined()
    expect(matchRules([{ effect: 'deny', tool: 'run_bash', pattern: 'rm *' }], blind)?.effect).toBe('deny')
  })

  it('say which tools must ask although they would not by themselves', () => {
    expect(
      toolsNamedByRules(
        [
          { effect: 'deny', tool: 'run_bash' },
          { effect: 'allow', tool: 'x' },
        ],
        ['run_bash', 'x'],
      ),
    ).toEqual(['run_bash'])
    expect(toolsNamedByRules([{ effect: 'ask', tool: '*' }], ['a', 'b'])).toEqual(['a', 'b'])
  })

  it('are refused with the file and the field when they are wrong', async () => {
    const file = nodePath.join(await temporaryFolder('rules'), 'rules.json')
    await expect(readApprovalRules(file)).rejects.toThrow(/cannot read .*rules\.json/)
    await writeFile(file, '{"rules":[{"effect":"maybe","tool":"x"}]}')
    await expect(readApprovalRules(file)).rejects.toThrow(/rules\.json: rules\.0\.effect/)
    await writeFile(file, '{oops')
    await expect(readApprovalRules(file)).rejects.toThrow(/is not JSON/)
    await writeFile(file, '{"rules":[{"effect":"deny","tool":"x","patern":"typo"}]}')
    await expect(readApprovalRules(file)).rejects.toThrow(/patern/)
    await writeFile(file, '{"rules":[{"effect":"deny","tool":"shell_cmd"}]}')
    await expect(readApprovalRules(file)).rejects.toThrow(/shell_cmd is called run_bash/)
    await writeFile(file, '{"rules":[{"effect":"deny","tool":"run_bash"},{"effect":"ask","tool":"*"}]}')
    await expect(readApprovalRules(file)).resolves.toHaveLength(2)
  })
})

describe('rules that a program gives', () => {
  it('are refused like those of a file where they name a tool by a name that no call bears [S1.11]', async () => {
    const home = await temporaryFolder('home')
    const workspace = await temporaryFolder('workspace')
    await using host = new Host({
      env: { HOME: home, CAISSON_HOME: nodePath.join(home, 'state'), XDG_CONFIG_HOME: home },
      config: {},
    })
    const start = host.run({
      prompt: 'p',
      workspace,
      approvals: { rules: [{ effect: 'deny', tool: 'shell_cmd' }] },
    })
    await expect(start).rejects.toMatchObject({ code: 'invalid_rules' })
    await expect(start).rejects.toThrow('the approval rules: the tool shell_cmd is called run_bash')
  })
})
