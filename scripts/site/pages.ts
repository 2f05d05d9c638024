/** Which Markdown files are pages of the site, how its sidebar orders them, and how their links and anchors read. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

/** Pages outside of `docs/` and `specs/`. */
const otherPages = [
  'README.md',
  'CONTRIBUTING.md',
  'AGENTS.md',
  'CHANGELOG.md',
  'SECURITY.md',
  'examples/README.md',
  'examples/fleet/README.md',
]
/** Lists the decisions: GitHub shows a folder, the site needs a page. */
const decisionsPage = 'scripts/site/decisions.md'

/** Source file to path on the site. URLs equal the paths of the repository, so that relative links hold in both. */
export const rewrites = {
  'README.md': 'index.md',
  'examples/README.md': 'examples/index.md',
  'examples/fleet/README.md': 'examples/fleet/index.md',
  [decisionsPage]: 'specs/decisions/index.md',
}

/** Every page, as a path from the root of the repository. */
export function pagesOf(root: string): string[] {
  const below = (folder: string) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.md'))
      .map((file) => `${folder}/${file}`)
      .sort()
  const pages = [...otherPages, decisionsPage, ...below('docs'), ...below('specs')]
  return pages.filter((page) => existsSync(path.join(root, page)))
}

export interface SidebarItem {
  readonly text: string
  readonly link: string
}

/** The sidebar: README orders and names the pages of `docs/` and `specs/`, so there is one list. */
export function sidebarOf(root: string) {
  const readme = readFileSync(path.join(root, 'README.md'), 'utf8')
  const linked = (folder: string) => {
    const items = new Map<string, SidebarItem>()
    for (const [, text = '', file = ''] of readme.matchAll(/\[([^\]]+)\]\(([\w/-]+\.md)\)/g)) {
      if (!file.startsWith(`${folder}/`) || items.has(file)) continue
      items.set(file, { text: capitalize(text), link: `/${file.replace(/\.md$/, '')}` })
    }
    return [...items.values()]
  }
  return [
    { text: 'Use', items: [{ text: 'Overview', link: '/' }, ...inTableOrder(linked('docs'), readme)] },
    {
      text: 'Contract',
      collapsed: false,
      items: [...linked('specs'), { text: 'Decisions', link: '/specs/decisions/' }],
    },
    {
      text: 'Public types',
      collapsed: true,
      items: ['caisson', 'caisson-agent', 'caisson-client', 'caisson-runtime', 'caisson-testing'].map(
        (name) => ({
          text: name.replace('-', '/'),
          link: `/specs/api/${name}.api`,
        }),
      ),
    },
    {
      text: 'Contribute',
      items: [
        { text: 'Contributing', link: '/CONTRIBUTING' },
        { text: 'Map of the code', link: '/AGENTS' },
        { text: 'Examples', link: '/examples/' },
        { text: 'Files of a fleet', link: '/examples/fleet/' },
        { text: 'Security policy', link: '/SECURITY' },
        { text: 'Changelog', link: '/CHANGELOG' },
      ],
    },
  ]
}

/** README also links pages in its first lines; the table below *Documentation* gives the order. */
function inTableOrder(items: SidebarItem[], readme: string): SidebarItem[] {
  const table = readme.slice(readme.indexOf('## Documentation'))
  const place = ({ link }: SidebarItem) => table.indexOf(`(${link.slice(1)}.md)`)
  const title = ({ link }: SidebarItem) =>
    /\[([^\]]+)\]/.exec(table.slice(0, place({ text: '', link })).replace(/^[\s\S]*(?=\[)/, ''))?.[1]
  return items
    .toSorted((a, b) => place(a) - place(b))
    .map((item) => ({ ...item, text: capitalize(title(item) ?? item.text) }))
}

/** Links to all decisions, as Markdown, for the page that lists them. */
export function decisionList(root: string): string {
  const folder = path.join(root, 'specs/decisions')
  const rows = readdirSync(folder)
    .sort()
    .map((file) => {
      const title = /^# (.*)$/m.exec(readFileSync(path.join(folder, file), 'utf8'))?.[1] ?? file
      return `| ${file.slice(0, 10)} | [${title}](../../specs/decisions/${file}) |`
    })
  return ['', '| date | decision |', '|---|---|', ...rows, ''].join('\n')
}

const capitalize = (text: string) => text.charAt(0).toUpperCase() + text.slice(1)

/** The anchor of a heading, by GitHub's rule, without the number that tells equal ones apart. */
export function githubAnchor(heading: string): string {
  return heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\p{M}_ -]/gu, '')
    .trim()
    .replaceAll(' ', '-')
}

/**
 * The target of a link on the site. A link into the repository that is no page (a source file) has none there:
 * undefined, and the site shows its text alone. A page that does not exist keeps its target, so the build refuses it.
 */
export function siteLink(root: string, page: string, href: string): string | undefined {
  if (/^[a-z]+:|^#/.test(href)) return href
  const [target = '', anchor] = href.split('#')
  const place = path.join(path.dirname(page), target)
  const behind = anchor === undefined ? '' : `#${anchor}`
  const rewritten = (rewrites as Record<string, string>)[place]
  if (rewritten !== undefined) return `/${rewritten.replace(/index\.md$/, '')}${behind}`
  if (place.endsWith('.md') || place.endsWith('/')) return `/${place.replace(/\.md$/, '')}${behind}`
  return existsSync(path.join(root, place)) ? undefined : href
}
