/** The dry run of a release, in a clone: what it says, what it writes, and what stops it. */
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { appendFileSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'

const root = path.join(import.meta.dirname, '../..')

it('packs, states and checks a release without publishing it, and names what is not ready [H.01]', {
  timeout: 300_000,
}, async () => {
  const folder = await temporaryFolder('release')
  const clone = path.join(folder, 'clone')
  const git = (...args: string[]) =>
    execFileSync('git', ['-c', 'user.name=Test', '-c', 'user.email=test@example.com', ...args], {
      cwd: clone,
    })
  execFileSync('git', ['clone', '-q', '--no-local', root, clone])
  symlinkSync(path.join(root, 'node_modules'), path.join(clone, 'node_modules'))
  appendFileSync(path.join(clone, '.git/info/exclude'), 'node_modules\n')
  const out = path.join(folder, 'out')
  const release = () =>
    spawnSync(process.execPath, ['--conditions=caisson-source', 'scripts/release/dry-run.ts', out], {
      cwd: clone,
      encoding: 'utf8',
    })

  const changelog = path.join(clone, 'CHANGELOG.md')
  const unreleased = readFileSync(changelog, 'utf8')
  writeFileSync(changelog, '# Changelog\n\n## [Unreleased]\n')
  const unready = release()
  expect(unready.stdout).toContain('✘ the working tree is clean\n     M CHANGELOG.md')
  expect(unready.stdout).toContain('✘ CHANGELOG.md has a section for 0.1.0')
  expect(unready.status).toBe(1)

  const section = '[Unreleased]\n\n## [0.1.0] - 2026-01-02'
  writeFileSync(changelog, unreleased.replace('[Unreleased]', section))
  git('commit', '-qam', 'Release 0.1.0')
  const ready = release()
  expect(ready.stdout + ready.stderr).not.toContain('✘')
  expect(ready.stdout).toContain('Would publish caisson@0.1.0')
  expect(ready.stdout).toContain('Nothing was published.')
  expect(ready.status).toBe(0)
  const statement = JSON.parse(readFileSync(path.join(out, 'provenance.intoto.json'), 'utf8'))
  const archive = readFileSync(path.join(out, 'caisson-0.1.0.tgz'))
  expect(statement.subject[0].digest.sha256).toBe(createHash('sha256').update(archive).digest('hex'))
  const [source] = statement.predicate.buildDefinition.resolvedDependencies
  expect(source.digest.gitCommit).toBe(git('rev-parse', 'HEAD').toString().trim())
  expect(JSON.parse(readFileSync(path.join(out, 'sbom.cdx.json'), 'utf8'))).toMatchObject({
    bomFormat: 'CycloneDX',
    metadata: { component: { name: 'caisson', version: '0.1.0' } },
  })
})
