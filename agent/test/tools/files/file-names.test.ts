import { Buffer } from 'node:buffer'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { decodePath, isPathText, nameInLine, quotePath } from '#specs/node/path-text.ts'
import { createCodeSearch } from '../../../search/code-search.ts'
import type { Tool } from '../../../tool-calls/tool.ts'
import { createListFiles } from '../../../tools/files/file-list.ts'
import { createReadFile } from '../../../tools/files/file-read.ts'
import { createSearchFiles } from '../../../tools/files/search.ts'
import { call, callGood, runInFolder } from '../../support/tools.ts'
import { temporaryFolder } from '../../support/trees.ts'

/** Names that would write lines of their own, hide, or look like another name with what a list says behind it. */
const hostileNames = [
  'line\nother.txt (3 B)',
  'return\rother',
  'escape\u001b[2J',
  '"quoted".txt',
  '"a\\nb"',
  ' space before',
  'space behind ',
  'turned\u202etxt.exe',
  'separator\u2028line',
  'nothing\u200b',
  'next\u0085line',
  'delete\u007f',
  decodePath(Buffer.from('latin-\xe4\xff', 'latin1')),
  'plain (3 B)',
  'a.txt:7: b',
  'a.txt:7- b',
  'ümlaut und 日本.txt',
]

/** The names in lines that begin with one and continue with what `rest` fits. */
function namesIn(lines: readonly string[], rest: RegExp): string[] {
  return lines.map((line) => {
    const quoted = /^"(?:[^"\\]|\\.)*"/.exec(line)?.[0]
    const name = quoted ?? line.replace(rest, '')
    expect(line.slice(name.length)).toMatch(new RegExp(`^(?:${rest.source})$`))
    return quoted === undefined ? name : String(JSON.parse(quoted))
  })
}

function prepare() {
  const folder = temporaryFolder()
  for (const name of hostileNames)
    writeFileSync(Buffer.concat([Buffer.from(`${folder.path}/`), bytesOf(name)]), 'needle')
  return folder
}

const bytesOf = (name: string): Buffer =>
  name.startsWith('latin-') ? Buffer.from('latin-\xe4\xff', 'latin1') : Buffer.from(name)

/** What the model gets, line by line without the head. */
async function told(tool: Tool, input: object): Promise<{ head: string; lines: string[] }> {
  const [head = '', ...lines] = (tool.render?.(await callGood(tool, input)) ?? '').split('\n')
  return { head, lines }
}

describe('names of files in results', () => {
  it('are one line each, which gives the name back that read_file takes [S1.04, T.02]', async () => {
    using folder = prepare()
    const root = folder.path
    const { head, lines } = await told(createListFiles({ root }), {})
    expect(head).toBe(`[.: ${hostileNames.length} entries; names in quotes are JSON strings]`)
    const names = namesIn(lines, / \(6 bytes\)/)
    expect(names.toSorted()).toEqual(hostileNames.toSorted())
    for (const path of names) {
      // As the arguments of a call come: as JSON.
      const input = JSON.parse(JSON.stringify({ path })) as { path: string }
      const read = await call(createReadFile({ root }), input)
      expect(read).toMatchObject({ ok: true, value: { path, content: 'needle' } })
    }
  })

  it('are found by both searches in the same form [S1.04, S0.14, T.02]', async () => {
    using folder = prepare()
    const root = folder.path
    const exact = await told(createSearchFiles(runInFolder(root), { root }), { pattern: 'needle' })
    expect(exact.head).toMatch(/; names in quotes are JSON strings\]$/)
    expect(namesIn(exact.lines, /:1: needle/).toSorted()).toEqual(hostileNames.toSorted())
    const ranked = await told(createCodeSearch().toolOver({ root }), { query: 'needle', limit: 20 })
    const heads = ranked.lines.filter((line) => line.endsWith(' lines 1-1'))
    expect(namesIn(heads, / lines 1-1/).toSorted()).toEqual(hostileNames.toSorted())
  })

  it("are in quotes in failures, and no line of them is the name's [S1.04, T.02]", async () => {
    using folder = temporaryFolder()
    const root = folder.path
    mkdirSync(join(root, 'a\nb'))
    for (const path of ['a\nb', 'c\n[Caisson] d', 'a\nb/c\nd/e']) {
      const read = await call(createReadFile({ root }), { path })
      expect(read.ok ? '' : read.error.message).toMatch(/^[^\n]*\\n[^\n]*$/)
    }
  })
})

describe('a path in a line', () => {
  it('is itself or a JSON string of it, has nothing unseen, and no other path has that line [T.02]', () => {
    const unit = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 3 }),
      fc.constantFrom('"', '\\', ' ', '\n', '\u202e', '\udce4', 'n', 'u'),
    )
    const path = fc
      .array(unit, { minLength: 1, maxLength: 8 })
      .map((units) => units.join(''))
      .filter(isPathText)
    fc.assert(
      fc.property(path, (text) => {
        const line = nameInLine(text)
        expect(line).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u)
        expect(line.startsWith('"') ? JSON.parse(line) : line).toBe(text)
        expect(JSON.parse(quotePath(text))).toBe(text)
      }),
      { numRuns: 2_000, seed: 6 },
    )
  })
})
