import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { showCommand } from '../../approvals/command-rules.ts'
import { bashNames, splitShellCommand } from '../../approvals/shell-commands.ts'
import { doubtfulCommands, knownCommands } from './shell-table.ts'

const shown = (text: string) => {
  const split = splitShellCommand(text)
  return split.isKnown ? split.commands.map(showCommand) : split.doubt
}

describe('the commands of a shell command', () => {
  it('are all listed, where they are certain [A.13]', () => {
    expect(knownCommands.length + doubtfulCommands.length).toBeGreaterThanOrEqual(120)
    for (const [text, ...commands] of knownCommands) expect(shown(text), text).toEqual(commands)
  })

  it('are not listed where bash could run others; the reason is said [A.13]', () => {
    for (const [text, doubt] of doubtfulCommands)
      expect(shown(text), text).toEqual(expect.stringContaining(doubt))
  })

  it('stay the same when they are listed as shown [A.13]', () => {
    for (const [, ...commands] of knownCommands)
      for (const command of commands) expect(shown(command), command).toEqual([command])
  })

  it('know every keyword and builtin of bash [A.13]', () => {
    const namesOf = (kind: string) =>
      execFileSync('bash', ['-c', `compgen -${kind}`], { encoding: 'utf8' })
        .trim()
        .split('\n')
    expect(bashNames.reserved).toEqual(expect.arrayContaining(namesOf('k')))
    expect(bashNames.builtins).toEqual(expect.arrayContaining(namesOf('b')))
  })

  it('never throw, whatever the text [A.13]', () => {
    const part = fc.constantFrom(...' \t\n;&|<>(){}[]$`\'"\\#!=*?~-12aé\u0001\ud800')
    fc.assert(
      fc.property(fc.string({ unit: part, maxLength: 40 }), (text) => {
        const split = splitShellCommand(text)
        return split.isKnown ? split.commands.length > 0 : split.doubt !== ''
      }),
      { seed: 11, numRuns: 5_000 },
    )
  })

  it('take time in proportion to the text, also to 128 KiB of garbage [A.13]', () => {
    const size = 128 * 1024
    const units = ['a;', 'a ', 'a', '"', "''", '\\', ' \\\n', '# \n', '$a', '$(', '`', '(', '{', '((', 'if ']
    const more = [
      '<<a ',
      '>a ',
      '1>',
      '&>',
      '2>&1 ',
      '!',
      '! ',
      'a|',
      'a&&',
      '{a,',
      '${',
      '"$a" ',
      'é',
      '%',
      ';',
    ]
    const spend = (text: string) => {
      const startedAt = performance.now()
      splitShellCommand(text)
      return performance.now() - startedAt
    }
    for (const unit of [...units, ...more]) {
      const fill = (length: number) => `ls ${unit.repeat(length / unit.length)}`
      const best = (text: string) => Math.min(...Array.from({ length: 3 }, () => spend(text)))
      best(fill(size / 8))
      // A quadratic reader would take 64 times as long for 8 times the text, however often it is tried; a machine that is
      // busy meanwhile does not stay so.
      const ratio = () => best(fill(size)) / Math.max(best(fill(size / 8)), 2)
      let least = ratio()
      for (let tries = 0; least >= 25 && tries < 8; tries += 1) least = Math.min(least, ratio())
      expect(least, unit).toBeLessThan(25)
    }
  })
})
