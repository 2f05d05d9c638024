/** The documentation site as it is built: a dead link and a dead anchor fail the build. */
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'

const root = path.join(import.meta.dirname, '../..')

/** Builds a small tree whose README has `link`. */
async function build(link: string) {
  const tree = await temporaryFolder()
  for (const folder of ['docs', 'specs/decisions', 'scripts/site'])
    mkdirSync(path.join(tree, folder), { recursive: true })
  cpSync(path.join(root, 'scripts/site/decisions.md'), path.join(tree, 'scripts/site/decisions.md'))
  writeFileSync(path.join(tree, 'specs/decisions/2026-01-02-one.md'), '# One\n')
  // What the navigation of the site links.
  const linked = [
    ...['CONTRIBUTING', 'AGENTS', 'CHANGELOG', 'SECURITY', 'specs/agent-runtime'],
    ...['examples/README', 'examples/fleet/README'],
  ]
  const reports = readdirSync(path.join(root, 'specs/api')).map(
    (file) => `specs/api/${path.parse(file).name}`,
  )
  for (const name of [...linked, ...reports, 'docs/install', 'docs/library']) {
    mkdirSync(path.dirname(path.join(tree, name)), { recursive: true })
    writeFileSync(path.join(tree, `${name}.md`), `# ${name}\n`)
  }
  writeFileSync(path.join(tree, 'docs/page.md'), '# Page\n\n## A heading\n\n`{{…}}` and <RUN>\n')
  writeFileSync(path.join(tree, 'README.md'), `# Home\n\n## Documentation\n\n[page](docs/page.md), ${link}\n`)
  const built = spawnSync(path.join(root, 'scripts/docs'), ['build'], {
    encoding: 'utf8',
    env: { ...process.env, CAISSON_SITE_ROOT: tree, CAISSON_SITE_OUT: path.join(tree, 'out') },
  })
  return { status: built.status, output: built.stdout + built.stderr, tree }
}

it('is built from Markdown files with live links [S1.15]', { timeout: 300_000 }, async () => {
  const { status, output, tree } = await build(
    '[heading](docs/page.md#a-heading), [decisions](specs/decisions/)',
  )
  expect(output).toContain('site: 0 problems')
  expect(status).toBe(0)
  expect(readFileSync(path.join(tree, 'out/docs/page.html'), 'utf8')).toContain('&lt;RUN&gt;')
  expect(readFileSync(path.join(tree, 'out/specs/decisions/index.html'), 'utf8')).toContain('>One</a>')
})

it('is not built with a dead link or a dead anchor [S1.15]', { timeout: 300_000 }, async () => {
  const deadLink = await build('[gone](docs/gone.md)')
  expect(deadLink.output).toMatch(/dead link/i)
  expect(deadLink.status).not.toBe(0)
  const deadAnchor = await build('[gone](docs/page.md#gone)')
  expect(deadAnchor.output).toContain('index.html: dead anchor /docs/page.html#gone')
  expect(deadAnchor.status).not.toBe(0)
})
