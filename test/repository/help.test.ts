// The end of each command's help, and the man page that is made of the same tables.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { Command } from 'commander'
import { describe, expect, it } from 'vitest'
import { commandHelp, examplesOf, pageOf, pathOf } from '../../host/cli/help.ts'
import { buildProgram, runCli } from '../../host/cli/main.ts'
import { makeManPage } from '../../scripts/man-page.ts'

const root = path.join(import.meta.dirname, '../..')
const streams = () => ({
  stdin: new PassThrough(),
  stdout: new PassThrough(),
  stderr: new PassThrough(),
  env: {},
  version: '0',
})
const program = await buildProgram({
  io: streams(),
  onExit: () => undefined,
  guestCommand: [],
  runCommand: () => Promise.resolve(0),
})
const below = (command: Command): Command[] => command.commands.flatMap((one) => [one, ...below(one)])
const commands = below(program)

describe('the help of a command', () => {
  it('ends with examples and with a page that exists [S1.15, H.01]', () => {
    const names = program.commands.map((command) => command.name())
    expect(Object.keys(commandHelp).toSorted()).toEqual(names.toSorted())
    expect(program.commands.filter((command) => examplesOf(command).length === 0)).toEqual([])
    expect(commands.map(pageOf).filter((page) => !existsSync(path.join(root, page)))).toEqual([])
  })

  it('has examples of commands and options that there are [S1.15, H.01]', () => {
    // A command with others below it shows theirs too.
    const deepest = (example: string) =>
      commands.findLast((command) => `${example} `.startsWith(`caisson ${pathOf(command)} `))
    const shown = commands.flatMap((command) =>
      examplesOf(command)
        .filter((example) => deepest(example) === command)
        .map((example) => ({ command, example })),
    )
    const all = Object.values(commandHelp).flatMap(({ examples }) => examples)
    expect(shown.map(({ example }) => example.slice('caisson '.length)).toSorted()).toEqual(all.toSorted())
    for (const { command, example } of shown)
      for (const [option] of example.replace(/ -- .*/, '').matchAll(/(?<= )--?[a-z][a-z-]*/g))
        expect([example, command.options.flatMap(({ long, short }) => [long, short])]).toEqual([
          example,
          expect.arrayContaining([option]),
        ])
  })

  it('is printed with them, for a group and for one command [H.01]', async () => {
    for (const argv of [['workspace'], ['workspace', 'diff'], ['run']]) {
      const io = streams()
      expect(await runCli([...argv, '--help'], io)).toBe(0)
      io.stdout.end()
      expect(await text(io.stdout)).toMatch(
        /Examples:\n {2}caisson .*\n\nDocumentation: (docs|specs)\/.*\.md\n$/s,
      )
    }
  })
})

describe('the man page', () => {
  it('has every command with its options and is rendered without a warning [S1.15, H.01]', async () => {
    const page = await makeManPage('1.2.3')
    const plain = page.replaceAll('\\-', '-')
    for (const command of commands) {
      expect(plain).toContain(`.SS "caisson ${pathOf(command)}`)
      for (const { flags } of command.options) expect(plain).toContain(`.B ${flags}`)
    }
    expect(plain).toContain('.B NVIDIA_API_KEY')
    const groff = spawnSync('groff', ['-man', '-ww', '-Tutf8', '-P-c'], { input: page, encoding: 'utf8' })
    // A machine without groff has shown the parts above.
    if (groff.error !== undefined) return
    expect(groff.stderr).toBe('')
    expect(groff.stdout).toContain("Create notes.txt with the content 'hello'")
    expect(groff.stdout).toContain('--approve-plan')
  })
})
