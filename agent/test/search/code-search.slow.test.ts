import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { createCodeSearch } from '../../search/code-search.ts'
import type { CodeSearchResult } from '../../tools/search-code.ts'
import { callGood } from '../support/tools.ts'
import { temporaryFolder } from '../support/trees.ts'

it('an index of 100,000 tiny files stays within its bounds, and others have their turn meanwhile [S0.14, T.02]', async () => {
  using folder = temporaryFolder()
  writeFileSync(join(folder.path, 'a.txt'), 'needle')
  for (let below = 0; below < 100; below++) {
    mkdirSync(join(folder.path, `d${below}`))
    for (let file = 0; file < 1_000; file++) writeFileSync(join(folder.path, `d${below}/${file}`), 'x')
  }
  let turns = 0
  const timer = setInterval(() => turns++, 5)
  const tool = createCodeSearch().toolOver({ root: folder.path })
  const { files, notes, passages } = (await callGood(tool, { query: 'needle' })) as CodeSearchResult
  clearInterval(timer)
  expect(passages.map(({ path }) => path)).toEqual(['a.txt'])
  expect(turns).toBeGreaterThan(20)
  expect(files).toBeLessThanOrEqual(50_000)
  expect(notes.join()).toMatch(/no room|no time yet/)
}, 300_000)
