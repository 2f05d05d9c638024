/** The documentation site without its builder: pages, sidebar, links, and the check of what was built. */
import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import { siteProblems } from './check.ts'
import { githubAnchor, pagesOf, sidebarOf, siteLink } from './pages.ts'

const root = path.join(import.meta.dirname, '../..')

describe('the documentation site', () => {
  it('has every page in its sidebar, but for the decisions, which have a list [S1.15]', () => {
    const linked = sidebarOf(root).flatMap(({ items }) => items.map(({ link }) => link))
    const missing = pagesOf(root)
      .filter((page) => !page.includes('decisions'))
      .map((page) => `/${page.replace(/(?:^|(?<=\/))README\.md$|\.md$/, '')}`)
      .filter((link) => !linked.includes(link))
    expect(missing).toEqual([])
    expect(new Set(linked).size).toBe(linked.length)
  })

  it.each([
    ['docs/faq.md', '../specs/vm.md#figures', '/specs/vm#figures'],
    ['docs/faq.md', 'real-model.md', '/docs/real-model'],
    ['docs/faq.md', '../README.md', '/'],
    ['docs/library.md', '../examples/README.md#scripted-model', '/examples/#scripted-model'],
    ['README.md', 'specs/decisions/', '/specs/decisions/'],
    ['docs/fleet.md', '../examples/fleet/', '/examples/fleet/'],
    ['examples/README.md', 'fleet/README.md', '/examples/fleet/'],
    ['specs/errors.md', 'errors.ts', undefined],
    ['specs/errors.md', 'nothing.ts', 'nothing.ts'],
    ['specs/errors.md', 'nothing.md', '/specs/nothing'],
    ['specs/errors.md', '#codes', '#codes'],
    ['specs/errors.md', 'https://example.com/', 'https://example.com/'],
  ])('turns the link of %s to %s into %s [S1.15]', (page, href, expected) => {
    expect(siteLink(root, page, href)).toBe(expected)
  })

  it("gives headings the anchors of GitHub's rule [S1.15]", () => {
    expect(githubAnchor('Size and bounds [V.06]')).toBe('size-and-bounds-v06')
    expect(githubAnchor('Use `host.run()`: an example')).toBe('use-hostrun-an-example')
  })
})

describe('the check of the built site', () => {
  const check = async (pages: Record<string, string>) => {
    const folder = await temporaryFolder()
    for (const [file, content] of Object.entries(pages)) {
      mkdirSync(path.dirname(path.join(folder, file)), { recursive: true })
      writeFileSync(path.join(folder, file), content)
    }
    return siteProblems(folder)
  }

  it('accepts links to pages, headings and other sites [S1.15]', async () => {
    const index =
      '<h1 id="top"></h1><a href="/docs/a.html#one">a</a><a href="docs/a">a</a><a href="#top">t</a><a href="https://example.com/">e</a>'
    expect(
      await check({ 'index.html': index, 'docs/a.html': '<h2 id="one"></h2><a href="/">home</a>' }),
    ).toEqual([])
  })

  it.each([
    ['a dead link', '<a class="x" href="/docs/b.html">b</a>', /dead link/],
    ['a dead anchor', '<a href="/index.html#two">b</a>', /dead anchor/],
    ['a script of another server', '<script src="https://example.com/a.js"></script>', /another server/],
    ['a picture of another server', '<img alt="" src="//example.com/a.png">', /another server/],
  ])('refuses %s [S1.15]', async (_, html, problem) => {
    expect((await check({ 'index.html': html })).join('\n')).toMatch(problem)
  })

  it('refuses a font of another server, and a folder without pages [S1.15]', async () => {
    const style = '@font-face { src: url("https://example.com/a.woff2") }'
    expect(await check({ 'index.html': '', 'a.css': style })).toEqual([
      expect.stringMatching(/another server/),
    ])
    expect(await check({ 'a.txt': '' })).toEqual([expect.stringMatching(/expected pages/)])
  })
})
