// The table of options in docs/library.md has each option of a run once, with its default.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { runNames } from '../check-options.ts'
import { runDefaults } from '../run-options.ts'

const document = readFileSync(path.join(import.meta.dirname, '../../docs/library.md'), 'utf8')

/** The cell of the default, by option. */
const rows = new Map(
  (/## All options[^|]*((?:^\|.*\n)+)/m.exec(document)?.[1] ?? '')
    .trim()
    .split('\n')
    .slice(2)
    .map((row) => row.split('|').map((cell) => cell.trim()))
    .map(([, option = '', byDefault = '']) => [option.replaceAll('`', ''), byDefault] as const),
)
const grouped = ['files', 'plan', 'approvals', 'egress', 'vm', 'queue', 'extensions'] as const

it('docs/library.md lists each option of a run [H.01]', () => {
  const groups: readonly string[] = grouped
  const options = [
    ...runNames[''].filter((name) => !groups.includes(name)),
    ...grouped.flatMap((group) => runNames[group].map((name) => `${group}.${name}`)),
  ]
  expect([...rows.keys()].toSorted()).toEqual(options.toSorted())
})

it('docs/library.md gives the defaults of the code [H.01]', () => {
  const { context, folders, ...groups } = runDefaults
  const defaults = [
    ['context', context] as const,
    ['folders', folders] as const,
    ...Object.entries(groups).flatMap(([group, values]) =>
      Object.entries(values).map(([name, value]) => [`${group}.${name}`, value] as const),
    ),
  ]
  const shown = (value: unknown) => `\`${JSON.stringify(value).replaceAll('"', "'")}\``
  expect(defaults.map(([option]) => [option, rows.get(option)])).toEqual(
    defaults.map(([option, value]) => [option, shown(value)]),
  )
})
