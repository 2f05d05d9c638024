// biome-ignore-all lint/suspicious/noTemplateCurlyInString: text for bash
// Compares the listed commands with what bash really runs: programs that only log their names.
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import nodePath from 'node:path'
import { execa } from 'execa'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { splitShellCommand } from '../../approvals/shell-commands.ts'
import type { Word } from '../../approvals/shell-lexer.ts'
import { doubtfulCommands, knownCommands } from './shell-table.ts'

const programs = ['a', 'b', 'ls', 'rm', 'sh', 'git']

/** A folder with programs that log their names, and a folder to work in. */
async function openBash() {
  const folder = await temporaryFolder('shell')
  const [bin = '', work = ''] = ['bin', 'work'].map((name) => nodePath.join(folder, name))
  await mkdir(bin)
  for (const name of programs) {
    const program = nodePath.join(bin, name)
    // One write for each call; a program that fails ends loops.
    const lines = ['#!/bin/sh', 'call=${0##*/}', 'for given do call="$call\x1f$given"; done']
    const text = [...lines, 'printf "%s\\036" "$call" >> "$LOG"', 'test "${0##*/}" = a', ''].join('\n')
    await writeFile(program, text)
    await chmod(program, 0o755)
  }
  let runs = 0
  /** What the text ran, and the files that it made. */
  const run = async (text: string) => {
    await rm(work, { recursive: true, force: true })
    await mkdir(work)
    runs += 1
    const log = nodePath.join(folder, `log-${runs}`)
    await writeFile(log, '')
    await execa('/bin/bash', ['-c', text], {
      cwd: work,
      env: { PATH: bin, HOME: work, LOG: log, LANG: 'C.UTF-8', FUNCNEST: '4' },
      extendEnv: false,
      // Programs in the background inherit the last of them, so that their end is awaited too.
      stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
      reject: false,
      timeout: 2_000,
      forceKillAfterDelay: 100,
    })
    const calls = (await readFile(log, 'utf8')).split('\u001e').filter((call) => call !== '')
    const ran = calls.map((call) => call.split('\u001f'))
    return { ran, made: await readdir(work) }
  }
  return { run }
}

/** Whether the call is the listed command: each argument, up to the first that bash expands. */
function isCallOf(words: readonly Word[], call: readonly string[]): boolean {
  const open = words.findIndex(({ literal }) => literal === null)
  const fixed = words.slice(0, open < 0 ? words.length : open)
  const isWhole = open >= 0 || words.length === call.length
  return isWhole && fixed.every(({ literal }, at) => literal === call[at])
}

/** @returns undefined if the text is not split */
async function expectListed(text: string, bash: Awaited<ReturnType<typeof openBash>>) {
  const split = splitShellCommand(text)
  if (!split.isKnown) return undefined
  const { ran, made } = await bash.run(text)
  for (const call of ran) {
    const isListed = split.commands.some(({ words }) => isCallOf(words, call))
    expect(isListed, `${JSON.stringify(text)} ran ${JSON.stringify(call)}`).toBe(true)
  }
  const files = split.commands.flatMap(({ writes }) => writes.map(({ target }) => target))
  expect(files, JSON.stringify(text)).toEqual(expect.arrayContaining(made))
  return ran.length
}

/** Mostly of the first. */
const mostly = <T>(first: fc.Arbitrary<T>, other: fc.Arbitrary<T>, weight = 8) =>
  fc.oneof({ weight, arbitrary: first }, { weight: 1, arbitrary: other })
const oneOf = (...values: readonly string[]) => fc.constantFrom(...values)

const name = mostly(
  oneOf(...programs),
  oneOf('l"s"', "r''m", '\\ls', '"git"', 'echo', 'cd', ':', '$X', 'eval'),
  4,
)
const argument = mostly(
  oneOf(
    ...[
      'x',
      '-a',
      '"a b"',
      "'; rm x'",
      '"&& rm"',
      '\\;',
      '\\ rm',
      '*',
      '{a,rm}',
      '~',
      '$X',
      '"$X"',
      '${HOME}',
    ],
    ...[
      'a#b',
      '#rm',
      '!',
      '{}',
      '[a]',
      '%',
      "'a\nrm'",
      '"a\nrm"',
      '$',
      '"$"',
      '=',
      'rm',
      'if',
      '}',
      'é',
      '"\\$(rm)"',
    ],
  ),
  oneOf(
    ...['$(rm)', '"$(rm)"', '`rm`', '<(rm)', "$'rm'", '$((1))', '${X:-$(rm)}', '"', "'", '\\', '(rm)'],
    ...["'a[$(rm)]'", '"`rm`"', '\\\n', 'x\\\nrm', '"\\'],
  ),
)
const redirection = mostly(
  oneOf('> f', '>f', '>> f', '2> f', '&> f', '2>&1', '>&2', '> /dev/null', '< /dev/null', '1>f', '> "f g"'),
  oneOf('>| f', '> $X', '<<< rm', '<<E\nrm\nE\n', '{X}> f', '3> f', '<> f', '>& f', '2>&-', '>', '>2> f'),
)
const prefix = oneOf(...'!|X=1|if|then|while|time|{|(|coproc|> f|function|exec|command|[[|! !'.split('|'))
const separator = mostly(
  oneOf(
    '; ',
    ';',
    ' && ',
    '&&',
    ' || ',
    ' | ',
    '|',
    ' |& ',
    ' & ',
    '&',
    '\n',
    ' \\\n',
    ' # rm\n',
    ' \\\n&& ',
    '\n\n',
  ),
  oneOf('\\\n', '#rm\n', ';;', ' )', '; }', '; fi', '; done', '\t', ' ', '# \\\n', ' &\\\n& ', '() '),
)
const nothing = fc.constant('')
const command = fc
  .tuple(mostly(nothing, prefix), name, fc.array(argument, { maxLength: 2 }), mostly(nothing, redirection, 3))
  .map(([first, called, given, file]) =>
    [first, called, ...given, file].filter((part) => part !== '').join(' '),
  )
const composition = fc
  .array(fc.tuple(command, separator), { minLength: 1, maxLength: 4 })
  .map((parts) => parts.flat().join(''))

describe('what bash runs', () => {
  it('is in the list, for the table [A.13]', async () => {
    const bash = await openBash()
    for (const [text] of [...knownCommands, ...doubtfulCommands].filter(([text]) => !text.includes('/')))
      await expectListed(text, bash)
  })

  it('is in the list, for random compositions of commands [A.13]', async () => {
    const bash = await openBash()
    const ran: (number | undefined)[] = []
    await fc.assert(
      fc.asyncProperty(composition, async (text) => {
        ran.push(await expectListed(text, bash))
      }),
      { seed: 12, numRuns: perTier(700, 6_000) },
    )
    // Neither is rare, so that the test means something.
    const isListed = (calls: number | undefined) => calls !== undefined && calls > 0
    expect(ran.filter(isListed).length).toBeGreaterThan(150)
    expect(ran.filter((calls) => calls === undefined).length).toBeGreaterThan(100)
  })

  it('is in the list, for random characters [A.13]', async () => {
    const bash = await openBash()
    const units = fc.constantFrom(...'aaabbb     ;&|\n\t<>(){}$`\'"\\#!=*?[]~12-X'.split(''))
    let listed = 0
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: units, minLength: 3, maxLength: 14 }), async (text) => {
        if ((await expectListed(text, bash)) !== undefined) listed += 1
      }),
      { seed: 13, numRuns: perTier(4_000, 20_000) },
    )
    expect(listed).toBeGreaterThan(100)
  })
})
