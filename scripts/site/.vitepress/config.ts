// The documentation site: README, docs/, specs/ and the pages for contributors, as they are in the repository.
import path from 'node:path'
import { defineConfig } from 'vitepress'
import { decisionList, githubAnchor, rewrites, sidebarOf, siteLink } from '../pages.ts'

/** `CAISSON_SITE_ROOT` lets a test build another tree. */
const root = process.env.CAISSON_SITE_ROOT ?? path.join(import.meta.dirname, '../../..')

export default defineConfig({
  title: 'Caisson',
  description:
    'An AI agent inside a small Linux VM, and a host that decides what it may touch, spend and reach',
  lang: 'en',
  srcDir: root,
  outDir: process.env.CAISSON_SITE_OUT ?? path.join(root, 'dist-site'),
  cacheDir: path.join(import.meta.dirname, 'cache'),
  srcExclude: [
    '**/node_modules/**',
    '!(docs|specs|examples|scripts|*.md)/**',
    'examples/!(fleet)/**/*',
    'scripts/!(site)/**',
    'scripts/site/!(decisions.md)',
  ],
  rewrites,
  markdown: {
    // The pages are GitHub Markdown: `<RUN>` in them is text, not a component.
    html: false,
    anchor: { slugify: githubAnchor },
    config(md) {
      // Two braces are text as well, not an expression of Vue.
      for (const name of ['text', 'code_inline'] as const) {
        const render = md.renderer.rules[name]
        md.renderer.rules[name] = (...args) => render?.(...args).replaceAll('{{', '&#123;&#123;') ?? ''
      }
      md.core.ruler.push('site-links', ({ tokens, env }) => {
        const page = path.relative(root, env.path ?? '')
        for (const { children } of tokens) {
          for (const [index, token] of (children ?? []).entries()) {
            const href = token.type === 'link_open' ? token.attrGet('href') : null
            if (href === null || href === undefined) continue
            const target = siteLink(root, page, href)
            if (target !== undefined) token.attrSet('href', target)
            else {
              const end = (children ?? []).slice(index).find(({ type }) => type === 'link_close')
              for (const part of [token, end]) if (part) Object.assign(part, { type: 'text', content: '' })
            }
          }
        }
      })
    },
  },
  vite: {
    // Pages lie outside of this folder, so Vue is not found from them; Node finds it from the built server bundle.
    plugins: [
      {
        name: 'list-of-decisions',
        enforce: 'pre',
        transform: (code, id) =>
          id.endsWith('/scripts/site/decisions.md') ? code + decisionList(root) : undefined,
      },
      {
        name: 'vue-of-the-site',
        enforce: 'pre',
        resolveId: (id, _importer, { ssr }) =>
          ssr && /^vue(\/|$)/.test(id) ? { id, external: true } : undefined,
      },
    ],
    esbuild: { tsconfigRaw: '{}' },
    build: { chunkSizeWarningLimit: 1000 },
  },
  themeConfig: {
    search: { provider: 'local' },
    sidebar: sidebarOf(root),
    nav: [
      { text: 'Docs', link: '/docs/install' },
      { text: 'Library', link: '/docs/library' },
      { text: 'Contract', link: '/specs/agent-runtime' },
      { text: 'Contribute', link: '/CONTRIBUTING' },
      { text: 'Changelog', link: '/CHANGELOG' },
    ],
    outline: [2, 3],
  },
})
