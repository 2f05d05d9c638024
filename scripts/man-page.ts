/** The man page `caisson.1`, from the commands and options of the command line and the tables of `docs/commands.md`. */
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import type { Command } from 'commander'
import { examplesOf, pageOf, pathOf } from '../host/cli/help.ts'
import { buildProgram } from '../host/cli/main.ts'

const root = path.join(import.meta.dirname, '..')

export async function makeManPage(version: string): Promise<string> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const program = await buildProgram({
    io: { stdin, stdout, stderr, env: {}, version },
    onExit: () => undefined,
    guestCommand: [],
    runCommand: () => Promise.resolve(0),
  })
  const document = readFileSync(path.join(root, 'docs/commands.md'), 'utf8')
  return [
    `.TH CAISSON 1 "" "caisson ${roff(version)}" "User Commands"`,
    '.SH NAME',
    roff('caisson - run an AI agent in a small VM on a copy of your files'),
    '.SH SYNOPSIS',
    '.B caisson',
    roff('COMMAND [OPTION]... [ARGUMENT]...'),
    '.SH DESCRIPTION',
    roff(program.description()),
    '.SH COMMANDS',
    ...program.commands.flatMap((command) => commandLines(command)),
    '.SH ENVIRONMENT',
    ...environmentOf(document).flatMap(([name, meaning]) => ['.TP', `.B ${roff(name)}`, roff(meaning)]),
    '.SH EXIT STATUS',
    ...exitCodesOf(document).flatMap(([code, meaning]) => ['.TP', `.B ${code}`, roff(meaning)]),
    '.SH SEE ALSO',
    roff('docs/commands.md and the other pages of docs/ and specs/ in the package of caisson.'),
    '',
  ].join('\n')
}

function commandLines(command: Command): string[] {
  const below = command.commands.flatMap((one) => commandLines(one))
  // One with options of its own can be called without a further word.
  if (below.length > 0 && command.options.length === 0)
    return [`.SS ${quoted(`caisson ${pathOf(command)}`)}`, roff(command.description()), ...below]
  const words = command.registeredArguments.map((argument) => {
    const name = `${argument.name()}${argument.variadic ? '...' : ''}`
    return argument.required ? `<${name}>` : `[${name}]`
  })
  const examples = examplesOf(command)
  return [
    `.SS ${quoted(['caisson', pathOf(command), ...words].join(' '))}`,
    roff(command.description()),
    ...command.registeredArguments
      .filter(({ description }) => description !== '')
      .flatMap((argument) => ['.TP', `.I ${roff(argument.name())}`, roff(argument.description)]),
    ...command.options.flatMap((option) => {
      const values = option.argChoices === undefined ? '' : ` (${option.argChoices.join(', ')})`
      return ['.TP', `.B ${roff(option.flags)}`, roff(`${option.description}${values}`)]
    }),
    ...(examples.length === 0 ? [] : ['.PP', 'Examples:', '.RS', '.nf', ...examples.map(roff), '.fi', '.RE']),
    '.PP',
    roff(`Documentation: ${pageOf(command)}`),
    ...below,
  ]
}

/** A line of text in which roff reads no request and no escape. */
function roff(text: string): string {
  const plain = text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replaceAll('…', '...')
  return /^[.']/.test(plain) ? `\\&${plain}` : plain
}

function quoted(text: string): string {
  return `"${roff(text).replaceAll('"', '\\(dq')}"`
}

/** Name and meaning of each row; a document without the table is an error. */
function environmentOf(document: string): [string, string][] {
  const table = /^## Environment\n\n\|.*\n\|.*\n((?:\|.*\n)+)/m.exec(document)?.[1]
  if (table === undefined) throw new Error('docs/commands.md has no table of the environment')
  return table
    .trim()
    .split('\n')
    .map((row) => {
      const [, names = '', meaning = ''] = row.split('|').map((cell) => cell.replaceAll('`', '').trim())
      return [names, meaning.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1')]
    })
}

function exitCodesOf(document: string): [string, string][] {
  const line = /^Exit codes: (.*)$/m.exec(document)?.[1]
  if (line === undefined) throw new Error('docs/commands.md has no line of exit codes')
  return line.split('·').map((part) => {
    const [code = '', ...words] = part.trim().split(' ')
    return [code, words.join(' ')]
  })
}
