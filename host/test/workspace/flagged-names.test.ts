import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { enter, judge, nowhere } from '../../workspace/flags/flag-rules.ts'
import { foldFileName, foldPath } from '../../workspace/flags/folded-path.ts'
import { itemsOf, type Sketch } from './support.ts'

async function flagsOf(before: Sketch, changed: Sketch): Promise<Record<string, string | undefined>> {
  const items = await itemsOf(before, { ...before, ...changed })
  return Object.fromEntries(Object.keys(changed).map((name) => [name, items.get(name)?.flagged]))
}

/** The nodes that can lie on one disk: nothing lies below a file or link. */
function tameTree(wild: Readonly<Record<string, string>>): Record<string, string> {
  const isAbove = (above: string, path: string) => path.startsWith(`${above}/`)
  const paths = Object.keys(wild).sort()
  const kept = paths.filter((path) => !paths.some((other) => isAbove(other, path)))
  return Object.fromEntries(kept.map((path) => [path, wild[path] ?? '']))
}

/** Every path of at most six names by which the file system reaches a file in the directory, with the file's own path. */
function* walkThroughLinks(root: string, below = ''): Generator<[string, string]> {
  const names = readdirSync(path.join(root, below))
  for (const name of names) {
    const reached = below === '' ? name : `${below}/${name}`
    // A link that leads nowhere, or round and round.
    if (!existsSync(path.join(root, reached))) continue
    const stat = statSync(path.join(root, reached))
    const real = realpathSync.native(path.join(root, reached))
    if (!real.startsWith(`${root}/`) && real !== root) continue
    if (stat.isFile()) yield [reached, path.relative(root, real)]
    else if (reached.split('/').length < 6) yield* walkThroughLinks(root, reached)
  }
}

function isFlaggedPlace(reached: string): boolean {
  const tracks = reached.split('/').reduce((above, name) => enter(above, foldFileName(name)), nowhere)
  return judge(tracks, 'file') !== undefined
}

describe('a flagged place by another name', () => {
  it('is the target of a link of the host, however many links lead there [W.03]', async () => {
    const before = {
      ...{ '.envrc': '-> tools/env.sh', Makefile: '-> tools/mk.txt', '.vscode': '-> editor' },
      ...{
        '.claude': '-> one',
        one: '-> two',
        'two/settings.json': '{}',
        'sub/.mcp.json': '-> ../servers.json',
      },
      ...{
        'tools/env.sh': 'a',
        'tools/mk.txt': 'a',
        'editor/tasks.json': 'a',
        'servers.json': 'a',
        free: 'a',
      },
    }
    const flags = await flagsOf(before, {
      ...{ 'tools/env.sh': 'b', 'tools/mk.txt': 'b', 'editor/tasks.json': 'b', 'editor/new/x': 'b' },
      ...{ 'two/settings.json': 'b', 'servers.json': 'b', free: 'b', 'tools/other': 'b' },
    })
    expect(flags).toEqual({
      'tools/env.sh': expect.stringContaining('by way of ".envrc"'),
      'tools/mk.txt': expect.stringContaining('by way of "Makefile"'),
      'editor/tasks.json': expect.stringContaining('by way of ".vscode"'),
      'editor/new/x': expect.stringContaining('by way of ".vscode"'),
      'two/settings.json': expect.stringContaining('by way of ".claude"'),
      'servers.json': expect.stringContaining('by way of "sub/.mcp.json"'),
      free: undefined,
      'tools/other': undefined,
    })
  })

  it('is found where a link stands for the first names of a place alone [W.03]', async () => {
    const before = {
      '.github': '-> forge',
      'forge/x': '1',
      '.yarn': '-> y',
      'y/x': '1',
      'pkg/a': '1',
      'package.json': '-> pkg/real',
    }
    const flags = await flagsOf(before, {
      'forge/workflows/ci.yml': 'x',
      'forge/readme': 'x',
      'pkg/real': '{"name":"x"}',
    })
    expect(flags['forge/workflows/ci.yml']).toContain('by way of ".github"')
    expect(flags['forge/readme']).toBeUndefined()
    expect(flags['pkg/real']).toContain('read as package.json')
  })

  it('is the target of a link that was left out of the VM [W.03]', async () => {
    const before = {
      '.gitignore': '.envrc.local\n.vscode/\n',
      ...{ '.envrc.local': '-> tools/env.sh', 'tools/env.sh': 'a', 'tools/vs.json': 'a' },
      '.vscode/settings.json': '-> ../tools/vs.json',
    }
    const { '.envrc.local': _, '.vscode/settings.json': __, ...seen } = before
    const items = await itemsOf(before, { ...seen, 'tools/env.sh': 'b', 'tools/vs.json': 'b' })
    expect(items.get('tools/env.sh')?.flagged).toContain('by way of ".envrc.local"')
    expect(items.get('tools/vs.json')?.flagged).toContain('by way of ".vscode/settings.json"')
  })

  it('is the target of a link of the change set, as it will be and as the host is now [W.03]', async () => {
    const before = { 'now/env.sh': 'a', 'later/env.sh': 'a', way: '-> now' }
    const flags = await flagsOf(before, {
      ...{ '.envrc': '-> way/env.sh', way: '-> later', 'now/env.sh': 'b', 'later/env.sh': 'b' },
    })
    for (const path of ['.envrc', 'now/env.sh', 'later/env.sh', 'way'])
      expect([path, flags[path]]).toEqual([path, expect.any(String)])
  })

  it('is flagged where a link turns the way to it elsewhere [W.03]', async () => {
    const before = { '.envrc': '-> a/b/env.sh', 'a/b/env.sh': '1', 'c/env.sh': 'evil' }
    const { 'a/b/env.sh': _, ...rest } = before
    const items = await itemsOf(before, { ...rest, 'a/b': '-> ../c' })
    expect(items.get('a/b')?.flagged).toContain('on the way to where ".envrc" leads')
  })

  it('is found in a circle of links, and past its end [W.03]', async () => {
    const around = { '.vscode': '-> ../project/editor', 'editor/x': '1' }
    expect((await flagsOf(around, { 'editor/x': '2' }))['editor/x']).toContain('.vscode')
    expect(await flagsOf({ '.vscode': '-> .vscode', a: '1' }, { a: '2' })).toEqual({ a: undefined })
    const before = {
      here: '-> .',
      'a/up': '-> ..',
      '.vscode': '-> here/a/up/editor',
      'editor/x': '1',
      'a/b': '1',
    }
    const flags = await flagsOf(before, { 'editor/x': '2', 'a/b': '2' })
    expect(flags['editor/x']).toContain('.vscode')
    expect(flags['a/b']).toBeUndefined()
  })

  it('is found in any tree of links that the file system itself resolves [W.03]', {
    timeout: 120_000,
  }, async () => {
    const name = fc.constantFrom('a', 'b', 'c', '.github', 'workflows', '.vscode', '.envrc', '.yarn')
    const place = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join('/'))
    const target = fc.array(fc.oneof(name, fc.constant('..'), fc.constant('.')), {
      minLength: 1,
      maxLength: 4,
    })
    const node = fc.oneof(
      fc.constant('old'),
      target.map((names) => `-> ${names.join('/')}`),
    )
    let met = 0
    await fc.assert(
      fc.asyncProperty(fc.dictionary(place, node, { minKeys: 2, maxKeys: 9 }), async (wild) => {
        const before = tameTree(wild)
        const files = Object.keys(before).filter((path) => before[path] === 'old')
        const changed = Object.fromEntries(files.map((path) => [path, 'new']))
        const obeyed = new Set<string>()
        const items = await itemsOf(before, { ...before, ...changed }, (bench) => {
          for (const [reached, real] of walkThroughLinks(bench.root))
            if (isFlaggedPlace(reached)) obeyed.add(real)
        })
        for (const path of files) {
          if (!obeyed.has(path)) continue
          expect([path, items.get(path)?.flagged]).toEqual([path, expect.any(String)])
          if (!isFlaggedPlace(path)) met++
        }
      }),
      { seed: 5, numRuns: perTier(150, 400) },
    )
    expect(met).toBeGreaterThan(10)
  })

  it("of the packages that are installed is not what their links lead to, which is the person's own code [W.03]", async () => {
    const before = { 'node_modules/own': '-> ../packages/own', 'packages/own/index.js': '1' }
    expect(await flagsOf(before, { 'packages/own/index.js': '2' })).toEqual({
      'packages/own/index.js': undefined,
    })
  })

  it('is any spelling that a file system takes for it [W.03]', async () => {
    const names = [
      'pac\u212aage.json',
      '.\uff47it/config',
      '.xse\u00dfion',
      'MAKEFILE',
      '.git./config',
      '.envrc ',
      '.hu\u017fky/x',
      '.vs\u00adcode/x',
      'git~1/config',
    ]
    const flags = await flagsOf({}, Object.fromEntries(names.map((name) => [name, 'x'])))
    expect(Object.entries(flags).filter(([, flag]) => flag === undefined)).toEqual([])
  })

  it('keeps a path a path, and folding twice changes nothing more [W.03]', () => {
    const name = fc
      .string({ unit: 'grapheme', minLength: 1, maxLength: 8 })
      .filter((text) => !/^\.{1,2}$|\//.test(text))
    fc.assert(
      fc.property(fc.array(name, { minLength: 1, maxLength: 4 }), (names) => {
        const folded = foldPath(names.join('/'))
        expect(folded.split('/').length).toBe(names.length)
        expect(folded.split('/').some((one) => ['', '.', '..'].includes(one))).toBe(false)
        for (const form of ['NFC', 'NFD'] as const)
          expect(foldPath(names.join('/').normalize(form))).toBe(folded)
        expect(foldPath(folded)).toBe(folded)
      }),
      { seed: 3, numRuns: 3_000 },
    )
  })
})
