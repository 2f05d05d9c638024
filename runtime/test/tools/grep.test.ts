// grep of the library: what it finds, and what hostile expressions and files cost.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { caller, readValue } from './support.ts'

async function tree(files: Readonly<Record<string, string | Buffer>>): Promise<string> {
  const folder = await temporaryFolder('grep')
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true })
    writeFileSync(path.join(folder, name), content)
  }
  return folder
}

describe('grep', () => {
  it('finds plain text and expressions, with the lines around and only in files that fit [S2.15]', async () => {
    const folder = await tree({
      'a.ts': 'one\ntwo (x)\nthree\r\nfour\n',
      'src/b.ts': 'two (y)\n',
      'src/c.md': 'two (z)\n',
      '.git/d.ts': 'two (no)\n',
      '.env.example': 'two (hidden)\n',
    })
    const grep = caller('grep', folder)
    expect(readValue(await grep({ query: 'two (', contextLines: 1, includePattern: 'a.*' }))).toEqual({
      matches: [{ path: 'a.ts', line: 2, text: 'two (x)', before: ['one'], after: ['three'] }],
      filesSearched: 1,
      truncated: false,
      notes: ['not entered: .git; ask for one by its path to see what it holds'],
    })
    const all = readValue(await grep({ query: '^two \\(\\w+\\)$', isRegexp: true }))
    expect(all.matches).toEqual([
      { path: '.env.example', line: 1, text: 'two (hidden)' },
      { path: 'a.ts', line: 2, text: 'two (x)' },
      { path: 'src/b.ts', line: 1, text: 'two (y)' },
      { path: 'src/c.md', line: 1, text: 'two (z)' },
    ])
    expect(readValue(await grep({ query: '^three$', isRegexp: true })).matches).toHaveLength(1)
    const few = readValue(await grep({ pattern: 'two', max_results: '2', path: 'src' }))
    expect(few).toMatchObject({ truncated: false })
    expect(few.matches).toHaveLength(2)
    expect(readValue(await grep({ query: 'two', maxResults: 1 }))).toMatchObject({ truncated: true })
    expect(readValue(await grep({ query: 'two', directoryPath: 'src/b.ts' })).matches).toHaveLength(1)
  })

  it('refuses what is no expression, in words [S2.15]', async () => {
    const grep = caller('grep', await tree({ a: 'x' }))
    for (const query of ['(', '[z-a]', '\\', `(?:${'a{1000}'.repeat(100)}){1000}`]) {
      const result = await grep({ query, isRegexp: true })
      if (query !== '\\' && query.length > 10) expect(typeof result.ok).toBe('boolean')
      else expect(result.content, query).toContain('query is no regular expression')
    }
  })

  it('bounds an expression that never ends, file by file and in all [S2.15]', async () => {
    const bomb = { query: '^(a+)+$', isRegexp: true }
    const one = await tree({ bad: `${'a'.repeat(60)}!`, good: 'aaa\n' })
    const found = readValue(await caller('grep', one)(bomb))
    expect(found.matches).toEqual([{ path: 'good', line: 1, text: 'aaa' }])
    expect(String(found.notes)).toContain('"bad" was passed over')
    const many = await tree(
      Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`f${at}`, `${'a'.repeat(60)}!`])),
    )
    expect((await caller('grep', many)(bomb)).content).toContain('takes too long')
  })

  it('passes over binary files and links, reads what is no UTF-8, and cuts long lines [S2.15]', async () => {
    const folder = await tree({
      binary: Buffer.from('needle\0'),
      latin: Buffer.from('needle \xe9\n', 'latin1'),
      long: `needle ${'x'.repeat(1_000_000)}`,
    })
    symlinkSync(path.join(folder, 'latin'), path.join(folder, 'link'))
    const { matches } = readValue(await caller('grep', folder)({ query: 'needle' })) as {
      matches: { path: string; text: string }[]
    }
    expect(matches.map((match) => match.path)).toEqual(['latin', 'long'])
    expect(matches[0]?.text).toBe('needle é')
    expect(matches[1]?.text.length).toBeLessThan(600)
  })

  it('stays within what a result may be, however much fits [S2.15]', async () => {
    const folder = await tree({ f: `${'"\\\u0001x'.repeat(100)}\n`.repeat(5_000) })
    const result = await caller('grep', folder)({ query: 'x', maxResults: 500, contextLines: 10 })
    expect(readValue(result)).toMatchObject({ truncated: true })
    expect(result.content.length).toBeLessThan(256 * 1024)
  })

  it('lets the process do other work while it searches one large folder [S2.15]', async () => {
    const folder = await tree(
      Object.fromEntries(Array.from({ length: 60 }, (_, at) => [`f${at}`, 'x'.repeat(2e6)])),
    )
    let turns = 0
    const timer = setInterval(() => turns++, 1)
    await caller('grep', folder)({ query: '(x+x+)y', isRegexp: true }).finally(() => clearInterval(timer))
    expect(turns).toBeGreaterThan(2)
  })

  it('ends when the call is cancelled [S2.04] [S2.15]', async () => {
    const folder = await tree(Object.fromEntries(Array.from({ length: 200 }, (_, at) => [`d${at}/f`, 'x'])))
    const controller = new AbortController()
    const running = caller('grep', folder)({ query: 'x' }, { abortSignal: controller.signal })
    setImmediate(() => controller.abort())
    expect((await running).content).toContain('cancelled')
  })
})
