import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { matchesPattern, matchRules, readRules, toolsNamedByRules } from '../../approvals/rules.ts'

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

  it('match the main argument, or the one they name [S1.11]', () => {
    expect(matchRules([{ effect: 'allow', tool: 'run_bash', pattern: 'git *' }], call)?.effect).toBe('allow')
    expect(matchRules([{ effect: 'allow', tool: 'run_bash', pattern: 'git' }], call)).toBeUndefined()
    expect(
      matchRules([{ effect: 'deny', tool: '*', argument: 'timeoutMs', pattern: '5' }], call)?.effect,
    ).toBe('deny')
  })

  it('fall on the safe side when the argument to match is not there', () => {
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
    const file = path.join(await temporaryFolder('rules'), 'rules.json')
    await expect(readRules(file)).rejects.toThrow(/cannot read .*rules\.json/)
    await writeFile(file, '{"rules":[{"effect":"maybe","tool":"x"}]}')
    await expect(readRules(file)).rejects.toThrow(/rules\.json: rules\.0\.effect/)
    await writeFile(file, '{oops')
    await expect(readRules(file)).rejects.toThrow(/is not JSON/)
    await writeFile(file, '{"rules":[{"effect":"deny","tool":"x","patern":"typo"}]}')
    await expect(readRules(file)).rejects.toThrow(/patern/)
  })
})
