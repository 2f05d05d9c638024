import { describe, expect, it } from 'vitest'
import { lockReason, packageReason } from '../../../workspace/flags/package-files.ts'
import { itemsOf } from '../support.ts'

describe('a changed package.json', () => {
  const text = (value: object) => JSON.stringify(value)

  it('is flagged for every key that is not known to be harmless [W.03]', () => {
    const keys = [
      'scripts',
      'eslintConfig',
      'prettier',
      'stylelint',
      'babel',
      'jest',
      'commitlint',
      'release',
      'nano-staged',
      'workspaces',
      'bin',
      'husky',
      'imports',
      'publishConfig',
      'made-up-by-a-tool-of-tomorrow',
    ]
    for (const key of keys) expect(packageReason(text({}), text({ [key]: { a: 'b' } }))).toContain(`"${key}"`)
  })

  it('is not flagged for what says only what the package is [W.03]', () => {
    const [before, after] = [
      { name: 'a', version: '1', files: ['a'] },
      { name: 'b', version: '2', keywords: ['x'], exports: './x.js', license: 'MIT' },
    ]
    expect(packageReason(text(before), text(after))).toBeUndefined()
    expect(packageReason(undefined, text({ name: 'a', dependencies: { b: '^1.0.0' } }))).toBeUndefined()
  })

  it('is flagged when it cannot be read as an object [W.03]', () => {
    for (const odd of ['', '{', 'null', '[]', '1'])
      expect(packageReason(text({}), odd)).toContain('cannot be read')
  })
})

describe('a changed lock file', () => {
  const npm = (name: string, resolved: string, more = {}) =>
    JSON.stringify({ packages: { [`node_modules/${name}`]: { resolved, ...more } } })
  const registry = 'https://registry.npmjs.org'

  it.each([
    ['package-lock.json', npm('a', 'https://evil.test/a.tgz'), npm('a', `${registry}/a/-/a-1.0.0.tgz`)],
    [
      'package-lock.json',
      npm('a', 'git+ssh://git@github.com/x/y.git#1'),
      npm('@s/a', `${registry}/@s/a/-/a-1.0.0.tgz`),
    ],
    [
      'package-lock.json',
      npm('a', `${registry}/evil/-/evil-1.0.0.tgz`),
      npm('a', 'packages/a', { link: true }),
    ],
    ['npm-shrinkwrap.json', npm('a', '../a.tgz'), npm('x/node_modules/a', `${registry}/a/-/a-1.0.0.tgz`)],
    [
      'yarn.lock',
      'a@^1:\n  resolved "https://evil.test/a.tgz#1"\n',
      'a@^1:\n  resolved "https://registry.yarnpkg.com/a/-/a-1.tgz#1"\n',
    ],
    [
      'yarn.lock',
      '"a@x":\n  resolution: "a@https://evil.test/a.tgz"\n',
      '"a@npm:^1":\n  resolution: "a@npm:1.0.0"\n',
    ],
    [
      'pnpm-lock.yaml',
      'packages:\n  a:\n    resolution: {tarball: https://evil.test/a.tgz}\n',
      'packages:\n  a@1.0.0:\n    resolution: {integrity: sha512-x}\n',
    ],
    [
      'bun.lock',
      '{"packages":{"a":["a@https://evil.test/a.tgz"]}}',
      '{"packages":{"a":["a@1.0.0","",{},"sha512-x"]}}',
    ],
    [
      'Cargo.lock',
      'source = "git+https://evil.test/x"\n',
      'source = "registry+https://github.com/rust-lang/crates.io-index"\n',
    ],
    ['poetry.lock', 'url = "https://evil.test/simple"\n', 'name = "a"\n'],
    [
      'uv.lock',
      'sdist = { url = "https://evil.test/a.tar.gz" }\n',
      'sdist = { url = "https://files.pythonhosted.org/a.tar.gz" }\n',
    ],
    ['Gemfile.lock', 'GIT\n  remote: https://evil.test/a.git\n', 'GEM\n  remote: https://rubygems.org/\n'],
    [
      'deno.lock',
      '{"remote":{"https://evil.test/a.ts":"x"}}',
      '{"remote":{"https://jsr.io/@std/a/1/mod.ts":"x"}}',
    ],
  ])('%s is flagged when a package comes from elsewhere, and only then [W.03]', async (name, other, own) => {
    const items = await itemsOf({ a: '1' }, { a: '1', [name]: other, [`ok/${name}`]: own })
    expect(items.get(name)?.flagged).toContain('elsewhere')
    expect(items.get(`ok/${name}`)?.flagged).toBeUndefined()
    expect(lockReason(name.toLowerCase(), other, `${other}\n`)).toBeUndefined()
  })

  it('is flagged when it cannot be read [W.03]', async () => {
    expect((await itemsOf({}, { 'package-lock.json': '{' })).get('package-lock.json')?.flagged).toBeTypeOf(
      'string',
    )
  })
})
