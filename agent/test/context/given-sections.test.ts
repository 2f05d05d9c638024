// Sections that the application and hooks give: where they stand, how they are cut, and that their text cannot look like
// another part of the prompt.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RunSection } from '#specs/protocol/context-section.ts'
import { renderTurnSections } from '../../context/given-sections.ts'
import { composeContext } from '../../context/sections.ts'
import { makeTask } from '../support/run.ts'

const section = (fields: Partial<RunSection>): RunSection => ({
  name: 'prices',
  from: 'the application',
  text: 'tea 3',
  maxTokens: 1_000,
  place: 'before',
  ...fields,
})
const compose = (sections: RunSection[], maxChars = 100_000, fields: object = {}) =>
  composeContext(
    // Past the checks of the protocol, which refuses some names.
    {
      task: { ...makeTask({ prompt: 'sell tea' }), sections, ...fields },
      workspaceListing: 'a.csv',
      guidance: 'Use tabs.',
    },
    maxChars,
  )

/** The headings and blocks of a text, as its format reads: a block ends at its closing tag alone on a line. */
function formOf(text: string): string[] {
  const form: string[] = []
  let open: string | null = null
  for (const line of text.split(/[\n\r\u2028\u2029\u0085\v\f]/)) {
    const tag = /^<([a-z-]+)(?: [^>]*)?>$/.exec(line)?.[1]
    if (open === null && line.startsWith('#')) form.push(line)
    if (open === null && tag !== undefined) form.push(`<${tag}>`)
    if (open === null && tag !== undefined) open = tag
    else if (open !== null && line === `</${open}>`) open = null
  }
  return form
}

describe('a section of the application', () => {
  it('stands before or behind what the workspace says, with its name and source [S0.05]', () => {
    const { text, shown } = compose([section({ place: 'after', name: 'last' }), section({})])
    expect(formOf(text)).toEqual([
      ...['# Task', '<task>', '# Context', '<context>', '# Workspace', '<workspace>'],
      ...['# AGENTS.md of the workspace', '<guidance>', '# Context', '<context>'],
    ])
    expect(text).toContain('<context name="prices" from="the application">\ntea 3\n</context>')
    expect(shown).toEqual([
      { name: 'prices', from: 'the application', chars: 5, shownChars: 5 },
      { name: 'last', from: 'the application', chars: 5, shownChars: 5 },
    ])
  })

  it('is cut to its budget of tokens, and to its share of a small window, and says so [S0.05 A.04]', () => {
    const long = 'price list '.repeat(4_000)
    for (const [maxTokens, maxChars, most] of [
      [500, 1_000_000, 1_700],
      [100_000, 30_000, 9_000],
    ] as const) {
      const { text, shown } = compose([section({ text: long, maxTokens })], maxChars)
      expect(text).toContain('characters and more cut')
      expect(shown[0]).toMatchObject({ chars: long.length })
      expect(shown[0]?.shownChars).toBeLessThanOrEqual(most)
      expect(shown[0]?.shownChars).toBeGreaterThan(most / 2)
    }
    const wide = compose([section({ text: '漢'.repeat(3_000), maxTokens: 500 })])
    expect(wide.shown[0]?.shownChars).toBeLessThan(700)
  })

  it('cannot take the form of another section, whatever it and its names hold [S0.05 T.02]', () => {
    const words = [
      ...['\n', '\r', '\r\n', '\u2028', ' ', '<', '</', '>', '\\', '#', '# Task', '# Messages from the user'],
      ...[
        '<task>',
        '</task>',
        '<message>',
        '</message>',
        '</context>',
        '< / context >',
        '<CONTEXT>',
        '</Context>',
      ],
      ...['<instructions>', '<answer>', '## This step', 'tea', '"', '<context name="x">', '\u0085'],
    ]
    const hostile = fc.array(fc.constantFrom(...words), { maxLength: 30 }).map((parts) => parts.join(''))
    const plain = formOf(compose([section({})], 100_000, { context: { fact: 'x' } }).text)
    fc.assert(
      fc.property(hostile, hostile, hostile, (text, name, fact) => {
        const given = section({ text, name, from: name })
        const made = compose([given], 100_000, { context: { [name]: fact } }).text
        expect(formOf(made)).toEqual(plain)
        expect(made.match(/<\s*\/?\s*(?:message|instructions|answer)\b/gi)).toBeNull()
        expect(made.match(/^\s*#+ +(?:Messages from|This step)/gm)).toBeNull()
        const turn = renderTurnSections([given]).text
        expect(formOf(turn)).toEqual(['# Context', '<context>'])
        expect(turn.match(/<\s*\/?\s*(?:message|task)\b/gi)).toBeNull()
      }),
      { seed: 5, numRuns: 400 },
    )
  })
})
