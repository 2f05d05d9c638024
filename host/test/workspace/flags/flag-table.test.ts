import { describe, expect, it } from 'vitest'
import { workspaceSkillFolders } from '#specs/node/skills/workspace-folders.ts'
import { flagTable } from '../../../workspace/flags/flag-rules.ts'
import { flaggedPaths, harmlessPaths } from '../flag-corpus.ts'
import { itemsOf } from '../support.ts'

/** The flag of a new file at each path; every path lies in a directory of its own. */
async function flagsOf(paths: readonly string[]): Promise<Record<string, string | undefined>> {
  const place = (at: number) => `d${at}`
  const after = Object.fromEntries(paths.map((path, at) => [`${place(at)}/${path}`, 'x']))
  const items = await itemsOf({}, after)
  return Object.fromEntries(paths.map((path, at) => [path, items.get(`${place(at)}/${path}`)?.flagged]))
}

const words = (text: string) => text.split(/\s+/).filter((word) => word !== '')
const rows = flagTable.flatMap((group) => group.rows.map((row) => ({ ...row, reason: group.reason })))

describe('the table of places that run code', () => {
  it('names for each tool the page that says what it runs [W.03]', () => {
    for (const { tool, source, patterns } of rows) {
      expect([tool, new URL(source).protocol]).toEqual([tool, 'https:'])
      expect(patterns.length).toBeGreaterThan(0)
      for (const pattern of patterns) expect(pattern).toMatch(/^[^\s/]+(\/[^\s/]+)*$/)
    }
  })

  it('has each place once [W.03]', () => {
    const all = rows.flatMap(({ patterns }) => patterns.map((pattern) => pattern.toLowerCase()))
    expect(all.filter((pattern, at) => all.indexOf(pattern) !== at)).toEqual([])
  })

  it.each(rows.map((row) => [row.tool, row] as const))('flags what %s obeys [W.03]', async (_, row) => {
    const spelled = row.patterns.flatMap((pattern) => {
      const path = pattern.replaceAll('*', 'x')
      return [path, `${path}/below/it`, path.toUpperCase(), `${path[0]}\u200b${path.slice(1)}`]
    })
    const flags = await flagsOf(spelled)
    expect(Object.entries(flags).filter(([, flag]) => flag === undefined)).toEqual([])
  })

  it('flags the folders from which our own agent takes skills [W.03]', async () => {
    const paths = workspaceSkillFolders.map((folder) => `${folder}/x/SKILL.md`)
    expect(Object.values(await flagsOf(paths)).every((flag) => flag?.includes('agent'))).toBe(true)
  })
})

describe('the places that models were seen to write', () => {
  it('are flagged when something runs them without a deliberate act [W.03]', async () => {
    const flags = await flagsOf(words(flaggedPaths))
    expect(Object.entries(flags).filter(([, flag]) => flag === undefined)).toEqual([])
  })

  it.each(Object.entries(harmlessPaths))('are not flagged when a file %s [W.03]', async (_, paths) => {
    const flags = await flagsOf(words(paths))
    expect(Object.entries(flags).filter(([, flag]) => flag !== undefined)).toEqual([])
  })
})
