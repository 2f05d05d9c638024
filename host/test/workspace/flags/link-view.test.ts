import { mkdirSync, symlinkSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Root } from '#specs/node/descriptor-walk.ts'
import { LinkView } from '../../../workspace/flags/link-view.ts'
import { Bench, itemsOf, type Sketch, type TreeNode, treeOf } from '../support.ts'

describe('links of the agent', () => {
  /** The flag of what the agent leaves, in a workspace where `meddle` made links of the person's before. */
  async function flagsOf(before: Sketch, added: Sketch): Promise<Record<string, string | undefined>> {
    const items = await itemsOf(before, { ...before, ...added })
    return Object.fromEntries([...items].map(([name, { flagged }]) => [name, flagged]))
  }
  const out = { 'src/a': 'a', data: '-> /srv/data', up: '-> ..', 'src/deep': '-> ../data/x' }

  it("are flagged when they pass through the person's own links that lead out [W.03]", async () => {
    const flags = await flagsOf(out, {
      one: '-> data/secret',
      two: '-> data',
      three: '-> src/deep',
      four: '-> up/other',
      'src/five': '-> ../src/deep/y',
      fine: '-> src/a',
    })
    expect(flags).toEqual({
      one: 'a link that leads out of the workspace, by way of the link "data"',
      two: expect.stringContaining('"data"'),
      three: expect.stringContaining('"src/deep"'),
      four: expect.stringContaining('"up"'),
      'src/five': expect.stringContaining('"src/deep"'),
      fine: undefined,
    })
  })

  it('are flagged when they pass through a link that was left out of the VM [W.03]', async () => {
    const flags = await flagsOf({ '.gitignore': 'cache\n', cache: '-> /var/cache' }, { guess: '-> cache/x' })
    expect(flags.guess).toContain('by way of the link "cache"')
  })

  it('are flagged when they pass through another link of theirs, or through one that they replace [W.03]', async () => {
    const flags = await flagsOf(out, { a: '-> /etc', b: '-> a/passwd', data: '-> src', c: '-> data/a' })
    expect(flags.b).toContain('by way of the link "a"')
    // The host still has the old one when only `c` is applied.
    expect(flags.c).toContain('by way of the link "data"')
  })

  it('are not flagged for links that stay inside, nor followed without end [W.03]', async () => {
    using bench = new Bench()
    symlinkSync(path.join(bench.root, 'src'), bench.file('absolute'))
    mkdirSync(bench.file('src'))
    symlinkSync('.', bench.file('here'))
    symlinkSync('round', bench.file('round'))
    const { manifest } = await bench.takeIn()
    const before = new Map<string, TreeNode>(
      [...manifest.entries.keys()].map((name) => [name, { kind: 'directory', mode: 0o755 }]),
    )
    const target = (text: string): [string, TreeNode] => [
      text.slice(0, 1),
      { kind: 'link', target: text.slice(2) },
    ]
    using review = await bench.review(
      before,
      new Map([...before, ...['w absolute/x', 'x here/here/src', 'y round/z'].map(target)]),
    )
    const flags = Object.fromEntries(review.items.map((item) => [item.path, item.flagged]))
    expect(flags).toEqual({ w: undefined, x: undefined, y: 'a link that goes through too many others' })
  })

  it('are flagged unseen once looking at them has cost enough, however many there are [W.03]', () => {
    using bench = new Bench(treeOf({ d: '-> src', 'src/a': 'a' }))
    const opened = Root.open(bench.root)
    if (!opened.ok) throw new Error(opened.error.message)
    using root = opened.value
    const view = new LinkView(root, new Map(), 10_000_000)
    const long = `d/${'x/'.repeat(1_000)}`
    const reasons = Array.from({ length: 20 }, (_, at) => view.leadsOut(`l${at}`, `${long}${at}`))
    // What is not on the host is not looked for below: else the first of them would cost more than all may.
    expect(reasons.slice(0, 3)).toEqual([undefined, undefined, undefined])
    expect(reasons.at(-1)).toBe('a link among too many to follow')
  })
})
