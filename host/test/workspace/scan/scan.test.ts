import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { runUnprivileged } from '#specs/testing/unprivileged.ts'
import { Bench, treeOf, unwrap } from '../support.ts'

async function scanned(sketch: Parameters<typeof treeOf>[0], include: string[] = []) {
  using bench = new Bench(treeOf(sketch))
  const scan = unwrap(await bench.scan({ include }))
  return {
    taken: scan.entries.map((entry) => entry.path),
    unmatched: scan.unmatched,
    leftOut: Object.fromEntries(scan.leftOut.map((item) => [item.path, item.reason])),
  }
}

describe('what goes into the VM', () => {
  it('obeys .gitignore at each level, negations and anchors included [W.02]', async () => {
    const { taken, leftOut } = await scanned({
      '.gitignore': '*.log\n/build\n!keep.log\n',
      'a.log': 'x',
      'keep.log': 'x',
      'build/out': 'x',
      'src/build/in': 'x',
      'src/.gitignore': '!a.log\ntmp/\n',
      'src/a.log': 'x',
      'src/tmp/t': 'x',
    })
    expect(taken).toEqual([
      '.gitignore',
      'keep.log',
      'src',
      'src/.gitignore',
      'src/a.log',
      'src/build',
      'src/build/in',
    ])
    expect(leftOut).toEqual({ 'a.log': 'ignored', 'build/': 'ignored', 'src/tmp/': 'ignored' })
  })

  it('narrows by .caissonignore, which cannot take in what git ignores [W.02]', async () => {
    const { taken } = await scanned({ '.gitignore': 'a', '.caissonignore': '!a\nb\n', a: '', b: '', c: '' })
    expect(taken).toEqual(['.caissonignore', '.gitignore', 'c'])
  })

  it('takes in ignored files that --include names, also below an ignored directory [W.02]', async () => {
    const sketch = {
      '.gitignore': 'data/\n*.bin\n',
      'data/keep/a.csv': '1',
      'data/big.csv': '2',
      'x.bin': '3',
    }
    expect((await scanned(sketch, ['data/keep/*.csv', '*.bin'])).taken).toEqual([
      '.gitignore',
      'data',
      'data/keep',
      'data/keep/a.csv',
      'x.bin',
    ])
    expect((await scanned(sketch, ['data/none/*'])).leftOut).toEqual({
      'data/': 'ignored',
      'x.bin': 'ignored',
    })
  })

  it.each([
    ['terraform.tfvars', ''],
    ['env/prod.auto.tfvars.json', ''],
    ['.terraformrc', ''],
    ['kubeconfig', ''],
    ['prod-kubeconfig.yaml', ''],
    ['staging.kubeconfig', ''],
    ['.dockercfg', ''],
    ['.git/modules/vendor/lib/config', '[remote "origin"]\n\turl = https://token@example.org/lib\n'],
    ['.git/worktrees/w/config.worktree', '[http]\n\textraheader = Authorization: Basic x\n'],
    ['sub/.git/modules/x/config', '[remote "origin"]\n\turl = https://u:p@example.org/lib\n'],
  ])('leaves %j out as a likely secret [W.02]', async (path, text) => {
    const { leftOut, taken } = await scanned({ [path]: text })
    expect(leftOut).toEqual({ [path]: 'secret' })
    expect(taken).not.toContain(path)
  })

  it.each([
    ['src/kubeconfig.go', ''],
    ['variables.tf', ''],
    ['terraform.tfvars.example', ''],
    ['.git/modules/lib/config', '[remote "origin"]\n\turl = https://example.org/lib\n'],
    ['config', 'see https://someone@example.org'],
  ])('takes %j in, which names no secret [W.02]', async (path, text) => {
    expect((await scanned({ [path]: text })).taken).toContain(path)
  })

  it('names each pattern of --include that matches no path [W.02]', async () => {
    const sketch = { '.gitignore': 'data/\n', 'data/keep/a.csv': '1', 'b.txt': '2' }
    const { unmatched } = await scanned(sketch, ['data/keep/*.csv', '*.txt', 'b.txt', 'nope/'])
    expect(unmatched).toEqual(['nope/'])
    // Below an ignored directory a bare name is not looked for.
    expect((await scanned(sketch, ['a.csv'])).unmatched).toEqual(['a.csv'])
  })

  it('leaves likely secrets out and names them, unless they are included by name [W.02]', async () => {
    const sketch = {
      '.env': 'A=1',
      '.env.example': 'A=',
      'keys/server.pem': 'x',
      'keys/id_ed25519': 'x',
      'keys/id_ed25519.pub': 'x',
      '.aws/credentials': 'x',
      '.npmrc': '//registry.example/:_authToken=abc\n',
      'in/.npmrc': 'registry=https://user:token@registry.example/\n',
      'in/.yarnrc.yml': 'npmRegistryServer: "https://user:token@registry.example"\n',
      'sub/.npmrc': 'save-exact=true\n',
      '.git/config': '[remote "o"]\n\turl = https://user:token@git.example/x\n',
      '.git/HEAD': 'ref: refs/heads/main\n',
    }
    const plain = await scanned(sketch)
    expect(plain.taken).toEqual([
      '.env.example',
      '.git',
      '.git/HEAD',
      'in',
      'keys',
      'keys/id_ed25519.pub',
      'sub',
      'sub/.npmrc',
    ])
    expect(plain.leftOut).toEqual({
      '.env': 'secret',
      '.aws/': 'secret',
      '.npmrc': 'secret',
      'in/.npmrc': 'secret',
      'in/.yarnrc.yml': 'secret',
      '.git/config': 'secret',
      'keys/id_ed25519': 'secret',
      'keys/server.pem': 'secret',
    })
    const included = await scanned(sketch, ['.env', 'keys/'])
    expect(included.taken).toContain('.env')
    expect(included.leftOut['keys/server.pem']).toBe('secret')
  })

  it('names sockets and FIFOs and never follows or opens a link [W.02]', async () => {
    using bench = new Bench(treeOf({ 'a.txt': 'a', in: '-> a.txt', out: '-> /etc', gone: '-> nowhere' }))
    execFileSync('mkfifo', [bench.file('pipe')])
    const server = createServer().listen(bench.file('sock'))
    await new Promise((resolve) => server.once('listening', resolve))
    const scan = unwrap(await bench.scan())
    server.close()
    expect(scan.entries.map(({ path: at, kind }) => `${at} ${kind}`)).toEqual([
      'a.txt file',
      'gone link',
      'in link',
      'out link',
    ])
    expect(scan.leftOut).toEqual([
      { path: 'pipe', reason: 'fifo' },
      { path: 'sock', reason: 'socket' },
    ])
  })

  it('names what cannot be read and continues, as an unprivileged user [W.02]', async () => {
    using bench = new Bench(treeOf({ 'a.txt': 'a', 'shut/x': 'x', 'mute.txt': 'm' }))
    chmodSync(bench.file('shut'), 0)
    chmodSync(bench.file('mute.txt'), 0)
    const program = `
      import { scanWorkspace } from ${JSON.stringify(path.resolve('host/workspace/scan/scan.ts'))}
      import { buildDisk } from ${JSON.stringify(path.resolve('host/workspace/scan/disk.ts'))}
      const scan = await scanWorkspace({ directory: ${JSON.stringify(bench.root)}, ownFolders: [], home: '/nonexistent' })
      const disk = await buildDisk({ scan: scan.value, file: ${JSON.stringify(path.join(bench.home, 'disk'))} })
      console.log(JSON.stringify([[...disk.value.manifest.entries.keys()], disk.value.manifest.leftOut]))`
    const output = runUnprivileged(program)
    chmodSync(bench.file('shut'), 0o700)
    expect(JSON.parse(output)).toEqual([
      ['a.txt'],
      [
        { path: 'mute.txt', reason: 'unreadable' },
        { path: 'shut/', reason: 'unreadable' },
      ],
    ])
  })

  it('refuses /, home, what holds or lies in our own folders, files and missing paths', async () => {
    using bench = new Bench(treeOf({ 'sub/file': 'x' }))
    const refuses = async (options: Parameters<Bench['scan']>[0]) => {
      const result = await bench.scan(options)
      expect(result.ok ? 'taken' : result.error.code).toBe('refused_directory')
    }
    await refuses({ directory: '/' })
    await refuses({ home: bench.root })
    await refuses({ home: path.join(bench.root, 'someone') })
    await refuses({ ownFolders: [path.join(bench.root, 'not-yet/state')] })
    await refuses({ ownFolders: [bench.home] })
    await refuses({ directory: bench.file('sub/file') })
    await refuses({ directory: bench.file('missing') })
    mkdirSync(bench.file('.SSH/keys'), { recursive: true })
    await refuses({ directory: bench.file('.SSH') })
    await refuses({ directory: bench.file('.SSH/keys') })
    symlinkSync('/', bench.file('root-link'))
    await refuses({ directory: bench.file('root-link') })
  })

  it('refuses what would not fit before anything starts, and names the largest files [V.06]', async () => {
    using bench = new Bench(treeOf({ 'big.bin': Buffer.alloc(2_000), small: 'x' }))
    const bytes = await bench.scan({ maxBytes: 1_000 })
    expect(bytes).toMatchObject({
      ok: false,
      error: { code: 'too_large', message: expect.stringContaining('big.bin') },
    })
    expect(await bench.scan({ maxEntries: 1 })).toMatchObject({ ok: false, error: { code: 'too_large' } })
  })

  it('refuses an ignore file that it cannot obey rather than taking everything [W.02]', async () => {
    using bench = new Bench(treeOf({ a: 'x' }))
    mkdirSync(bench.file('.gitignore'))
    expect(await bench.scan()).toMatchObject({ ok: false, error: { code: 'refused_directory' } })
    rmSync(bench.file('.gitignore'), { recursive: true })
    for (const pattern of ['*a'.repeat(30), `!${'**/'.repeat(8)}a`, `b/${'**/'.repeat(8)}a`]) {
      writeFileSync(bench.file('.caissonignore'), `${pattern}\n`)
      expect(await bench.scan()).toMatchObject({ ok: false, error: { code: 'refused_directory' } })
    }
    writeFileSync(bench.file('.caissonignore'), '**/b/**/c/**\n')
    expect(await bench.scan()).toMatchObject({ ok: true })
  })

  it('ends when it is cancelled', async () => {
    const sketch = Object.fromEntries(Array.from({ length: 3_000 }, (_, n) => [`f${n}`, '']))
    using bench = new Bench(treeOf(sketch))
    expect(await bench.scan({ signal: AbortSignal.abort() })).toMatchObject({
      ok: false,
      error: { code: 'cancelled' },
    })
  })
})
