/** What a release checks and states, without building one. */
import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { contentProblems, provenanceOf } from './archive.ts'

const whole = [
  ...[
    'package.json',
    'README.md',
    'LICENSE',
    'CHANGELOG.md',
    'specs/workflow.schema.json',
    'vm-image/build.sh',
    'dist/agent/agent.cjs',
    'dist/page/index.html',
    'dist/page/app.js',
    'dist/page/worker.js',
    'dist/page/app.css',
    'dist/page/icon.svg',
    'dist/man/caisson.1',
    'dist/THIRD-PARTY.txt',
  ],
  ...['dist/host/cli/bin.js', 'dist/host/index.js', 'dist/host/index.d.ts'],
  ...['dist/runtime/index.js', 'dist/runtime/index.d.ts', 'dist/runtime/testing/index.js'],
  ...['dist/client/index.js', 'dist/client/index.d.ts'],
  ...['dist/goals/index.js', 'dist/goals/index.d.ts'],
  ...['examples/operate/caisson.service', 'examples/operate/grafana-dashboard.json'],
]

describe('the archive of a release', () => {
  it('is accepted with what it must hold [H.01]', () => {
    expect(contentProblems([...whole, '.env.example'])).toEqual([])
  })

  it.each([
    '.env',
    '.env.local',
    'examples/.env.example',
    'vm-image/test/a.py',
    'examples/.npmrc',
    'host/index.ts',
    'vm-image/private.key',
  ])('is refused with %s [H.01]', (file) => {
    expect(contentProblems([...whole, file])).toEqual([`unexpected ${file}`])
  })

  it('is refused without the command line [H.01]', () => {
    expect(contentProblems(whole.filter((file) => !file.includes('bin.js')))).toEqual([
      'missing dist/host/cli/bin.js',
    ])
  })

  it('is refused without the files for the operation of the service [H.02]', () => {
    expect(contentProblems(whole.filter((file) => !file.startsWith('examples/')))).toEqual([
      'missing examples/operate/caisson.service',
      'missing examples/operate/grafana-dashboard.json',
    ])
  })
})

it('the provenance names the archive by digest and the source by commit [H.01]', () => {
  const content = new TextEncoder().encode('archive')
  const statement = provenanceOf({
    archive: { name: 'caisson-0.1.0.tgz', content },
    source: { commit: 'a'.repeat(40), repository: undefined, clean: true },
    lockDigest: 'b'.repeat(64),
    node: 'v24.0.0',
    npm: '11.0.0',
    startedOn: new Date(0),
    finishedOn: new Date(1000),
  })
  const sha256 = createHash('sha256').update(content).digest('hex')
  expect(statement.subject).toEqual([
    { name: 'caisson-0.1.0.tgz', digest: { sha256, sha512: expect.stringMatching(/^[0-9a-f]{128}$/) } },
  ])
  expect(statement.predicate.buildDefinition.resolvedDependencies).toEqual([
    { name: 'source', digest: { gitCommit: 'a'.repeat(40) } },
    { name: 'package-lock.json', digest: { sha256: 'b'.repeat(64) } },
  ])
})
