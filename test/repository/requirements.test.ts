import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { requirements } from '#specs/requirements.ts'

const root = path.join(import.meta.dirname, '../..')

/** Ids in the names of tests: `it('… [W.01]', …)` and `it.each(…)('… [W.01]', …)`. This file cites none. */
function citedIds(): Map<string, string> {
  const cited = new Map<string, string>()
  for (const room of [
    'specs',
    'runtime',
    'agent',
    'host',
    'client',
    'goals',
    'page',
    'vscode',
    'vm-image',
    'scripts',
    'test',
  ]) {
    for (const file of readdirSync(path.join(root, room), { recursive: true, encoding: 'utf8' })) {
      if (
        !file.endsWith('.test.ts') ||
        file.includes('node_modules') ||
        file.endsWith('requirements.test.ts')
      )
        continue
      const text = readFileSync(path.join(root, room, file), 'utf8')
      for (const [name] of text.matchAll(
        /(?:\b(?:it|test)(?:\.\w+)*|\))\(\s*['"`][^\n]*?\[[A-Z]\d?\.\d\d[^\n]*/g,
      )) {
        for (const [, id = ''] of name.matchAll(/\b([A-Z]\d?\.\d\d)\b/g)) cited.set(id, `${room}/${file}`)
      }
    }
  }
  return cited
}

describe('the requirements', () => {
  const cited = citedIds()

  it('are each cited by a test or deferred with a reason', () => {
    const open = Object.entries(requirements).filter(
      ([id, { deferred }]) => !cited.has(id) && deferred === undefined,
    )
    expect(open.map(([id, { behavior }]) => `${id}: ${behavior}`)).toEqual([])
  })

  it('are all known that tests cite', () => {
    expect(
      [...cited].filter(([id]) => !Object.hasOwn(requirements, id)),
      'missing in specs/requirements.ts',
    ).toEqual([])
  })

  it('are not deferred once a test shows them', () => {
    expect([...cited.keys()].filter((id) => requirements[id]?.deferred !== undefined)).toEqual([])
  })
})
