// A merge where the person edits it, git is missing or configured by somebody else, and a side is no text file.
import { execFileSync, spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { changedRunId, runThatChanged } from '../../support/changed-run.ts'
import { cliPlace } from '../../support/cli.ts'
import type { Sketch } from '../../workspace/support.ts'

const beside = (name: string) => `${name}.caisson-${changedRunId}`

/** A run that changed files which the person changed too. */
async function conflicts(before: Sketch, after: Sketch, mine: Readonly<Record<string, string | Buffer>>) {
  const run = await runThatChanged(before, after)
  const file = (name: string) => path.join(run.directory, name)
  for (const [name, content] of Object.entries(mine)) writeFileSync(file(name), content)
  /** The command line in a process of its own. */
  const caisson = async (env: Readonly<Record<string, string>> = {}) =>
    await cliPlace({}, { ...run.env, ...env })
  return { ...run, file, caisson }
}

const oneConflict = () => conflicts({ 'a.txt': 'old\n' }, { 'a.txt': 'theirs\n' }, { 'a.txt': 'mine\n' })

async function script(body: string, name = 'program'): Promise<string> {
  const program = path.join(await temporaryFolder('program'), name)
  writeFileSync(program, `#!/bin/sh\n${body}\n`)
  chmodSync(program, 0o700)
  return program
}

describe('the merge of a conflict in a terminal', () => {
  it('is edited by the person; the file of the editor is gone afterwards [W.07]', async () => {
    const { caisson, file } = await oneConflict()
    const seen = path.join(await temporaryFolder('seen'), 'seen')
    const editor = await script(`pwd > "$1"; cat "$2" >> "$1"; echo resolved > "$2"`)
    const place = await caisson({ EDITOR: `${editor} ${seen}` })
    const { code, stdout } = await place.startInTerminal('workspace', 'merge', changedRunId, 'a.txt').ended
    expect({ code, stdout }).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('no conflict is left'),
    })
    expect(readFileSync(file(beside('a.txt')), 'utf8')).toBe('resolved\n')
    expect(readFileSync(file('a.txt'), 'utf8')).toBe('mine\n')
    const [folder = '', ...shown] = readFileSync(seen, 'utf8').split('\n')
    expect(shown).toContain('<<<<<<< yours')
    expect(readdirSync(folder).filter((name) => name.startsWith('merge'))).toEqual([])
  })

  it('is as git made it where the editor fails, and where it is not UTF-8, whose bytes an editor could lose [W.07]', async () => {
    const failing = await oneConflict()
    const broken = await failing.caisson({ EDITOR: await script('echo lost > "$1"; exit 3') })
    const failed = await broken.startInTerminal('workspace', 'merge', changedRunId, 'a.txt').ended
    expect(failed.code).toBe(5)
    expect(failed.stdout).toContain('the editor ended with 3')
    expect(readFileSync(failing.file(beside('a.txt')), 'utf8')).toContain('<<<<<<< yours\nmine\n')

    const latin = (text: string) => Buffer.from(text, 'latin1')
    const lines = (first: string, last: string) => latin(`${first}\n2\n3\n4\n5\n6\n${last}\n`)
    const other = await conflicts(
      { 'a.txt': lines('\u00e9', 'old') },
      { 'a.txt': lines('\u00e9', 'theirs') },
      { 'a.txt': lines('mine', 'old') },
    )
    writeFileSync(other.file('a.txt'), lines('\u00e8', 'old'))
    const place = await other.caisson({ EDITOR: await script('echo lost > "$1"') })
    const kept = await place.startInTerminal('workspace', 'merge', changedRunId, 'a.txt').ended
    expect(kept).toMatchObject({ code: 0, stdout: expect.stringContaining('not UTF-8') })
    expect(readFileSync(other.file(beside('a.txt')))).toEqual(lines('\u00e8', 'theirs'))
  })

  it('is refused before it is edited where its file is there already [W.07]', async () => {
    const { caisson, file } = await oneConflict()
    writeFileSync(file(beside('a.txt')), 'of before\n')
    const witness = path.join(await temporaryFolder('edited'), 'edited')
    const place = await caisson({ EDITOR: await script(`touch '${witness}'`) })
    const { code, stdout } = await place.startInTerminal('workspace', 'merge', changedRunId, 'a.txt').ended
    expect({ code, stdout }).toMatchObject({ code: 2, stdout: expect.stringContaining('it exists already') })
    expect(existsSync(witness)).toBe(false)
    expect(readFileSync(file(beside('a.txt')), 'utf8')).toBe('of before\n')
  })

  it('has the permissions of the file that it is for [W.07]', async () => {
    const { caisson, file } = await oneConflict()
    chmodSync(file('a.txt'), 0o750)
    await (await caisson()).run('workspace', 'merge', changedRunId, 'a.txt')
    expect(statSync(file(beside('a.txt'))).mode & 0o7777).toBe(0o750)
  })
})

/** Everything by which git can be made to run a program or to write a file, as configuration and as environment. */
async function hostileGit(repository: string) {
  const witness = await temporaryFolder('witness')
  const home = await temporaryFolder('hostile-home')
  const run = (name: string) => `touch ${witness}/${name}`
  const included = path.join(home, 'included')
  writeFileSync(included, `[core]\n  editor = ${run('included')}\n[merge]\n  conflictStyle = diff3\n`)
  const config = `
[include]
  path = ${included}
[includeIf "gitdir:/"]
  path = ${included}
[merge]
  default = evil
  conflictStyle = diff3
[merge "evil"]
  driver = ${run('driver')}
[diff]
  external = ${run('diff')}
[diff "evil"]
  textconv = ${run('textconv')}
  command = ${run('command')}
[filter "evil"]
  clean = ${run('clean')}
  smudge = ${run('smudge')}
  required = true
[core]
  editor = ${run('editor')}
  pager = ${run('pager')}
  fsmonitor = ${run('fsmonitor')}
  hooksPath = ${home}/hooks
  attributesFile = ${home}/attributes
[alias]
  merge-file = "!${run('alias')}"
`
  const attributes = '* merge=evil diff=evil filter=evil\n'
  for (const folder of ['hooks', 'git', 'libexec']) mkdirSync(path.join(home, folder))
  for (const name of ['.gitconfig', 'git/config']) writeFileSync(path.join(home, name), config)
  for (const name of ['attributes', 'git/attributes']) writeFileSync(path.join(home, name), attributes)
  for (const name of ['hooks/pre-commit', 'hooks/post-index-change', 'libexec/git-merge-file'])
    writeFileSync(path.join(home, name), `#!/bin/sh\n${run('program')}\n`, { mode: 0o755 })
  execFileSync('git', ['init', '-q', repository])
  writeFileSync(path.join(repository, '.gitattributes'), attributes)
  writeFileSync(path.join(repository, '.git/config'), `[core]\n  repositoryformatversion = 0\n${config}`)
  writeFileSync(path.join(repository, 'git'), `#!/bin/sh\n${run('git')}\n`, { mode: 0o755 })
  const env = {
    HOME: home,
    XDG_CONFIG_HOME: home,
    // The folder of the merge lies in the repository.
    TMPDIR: repository,
    PATH: `${repository}:.:${process.env.PATH}`,
    GIT_DIR: path.join(repository, '.git'),
    GIT_WORK_TREE: repository,
    GIT_CONFIG_GLOBAL: path.join(home, '.gitconfig'),
    GIT_CONFIG_SYSTEM: path.join(home, '.gitconfig'),
    GIT_CONFIG_COUNT: '1',
    GIT_CONFIG_KEY_0: 'merge.conflictStyle',
    GIT_CONFIG_VALUE_0: 'diff3',
    GIT_CONFIG_PARAMETERS: `'core.fsmonitor=${run('parameters')}'`,
    GIT_EXTERNAL_DIFF: run('external-diff'),
    GIT_EDITOR: run('git-editor'),
    GIT_PAGER: run('git-pager'),
    GIT_EXEC_PATH: path.join(home, 'libexec'),
    GIT_TEMPLATE_DIR: path.join(home, 'hooks'),
    GIT_TRACE: path.join(witness, 'trace'),
    GIT_TRACE2_EVENT: path.join(witness, 'trace2'),
  }
  return { witness, env }
}

describe('git of a merge', () => {
  it('obeys no configuration: not of the user, the repository, the environment or a git in the workspace [W.07]', async () => {
    const { caisson, file, directory } = await oneConflict()
    const { witness, env } = await hostileGit(directory)
    const place = await caisson(env)
    const merged = await place.run('workspace', 'merge', changedRunId, 'a.txt')
    expect(merged).toMatchObject({ code: 5, stdout: expect.stringContaining('1 conflict to resolve') })
    expect(readFileSync(file(beside('a.txt')), 'utf8')).toBe(
      `<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> ${changedRunId}\n`,
    )
    expect(readdirSync(witness)).toEqual([])
    expect(readdirSync(directory).filter((name) => name.startsWith('caisson-'))).toEqual([])
    // What the same environment does to a git that obeys it.
    const [own, run] = [file('a.txt'), file(beside('a.txt'))]
    const obeying = spawnSync('/usr/bin/env', ['git', 'merge-file', '-p', own, '/dev/null', run], {
      env: { ...env, PATH: process.env.PATH ?? '' },
      encoding: 'utf8',
    })
    expect(obeying.stdout).toContain('|||||||')
    expect(readdirSync(witness)).not.toEqual([])
  })

  it('is needed: without it the error names the commands that show both sides, and nothing is written [W.07]', async () => {
    const { env, directory } = await oneConflict()
    const at = (module: string) => JSON.stringify(path.join(import.meta.dirname, '../../..', module))
    // A machine without git, as far as programs are looked for.
    const program = `
      import { closeToPrograms } from ${at('processes/programs.ts')}
      import { runCli } from ${at('cli/main.ts')}
      for (const folder of ['/usr', '/bin', '/opt', '/nix']) closeToPrograms(folder)
      const { stdin, stdout, stderr, env } = process
      const argv = ['workspace', 'merge', 'last', 'a.txt']
      process.exitCode = await runCli(argv, { stdin, stdout, stderr, env, version: '0', directory: ${JSON.stringify(directory)} })
    `
    const node = ['--conditions=caisson-source', '--input-type=module', '-e', program]
    const ended = spawnSync(process.execPath, node, { env, encoding: 'utf8', cwd: import.meta.dirname })
    expect(ended).toMatchObject({ status: 1, stdout: '' })
    for (const words of ['needs git', 'install git', `workspace show ${changedRunId}`])
      expect(ended.stderr).toContain(words)
    expect(readdirSync(directory)).toEqual(['a.txt'])
  })
})

describe('a side that is no text file', () => {
  const names = ['link', 'fifo', 'folder', 'under/a', 'made-link', 'base-link', 'bin', 'large'] as const
  const large = (end: string) => `${'one of many lines\n'.repeat(60_000)}${end}\n`

  it('is named, never followed or waited for, and the error says what can be done [W.07 W.01]', async () => {
    const text = (word: string) => Object.fromEntries(names.map((name) => [name, `${word}\n`]))
    const outside = await temporaryFolder('outside')
    writeFileSync(path.join(outside, 'a'), 'secret\n')
    const { directory, file, caisson } = await conflicts(
      { ...text('old'), 'base-link': '-> fifo', bin: 'b\0', large: large('old') },
      { ...text('theirs'), 'made-link': `-> ${outside}/a`, bin: 'c\0', large: large('theirs') },
      {},
    )
    for (const name of ['link', 'fifo', 'folder', 'under', 'base-link'])
      rmSync(file(name), { recursive: true })
    symlinkSync(path.join(outside, 'a'), file('link'))
    execFileSync('mkfifo', [file('fifo')])
    mkdirSync(file('folder'))
    symlinkSync(outside, file('under'))
    for (const name of ['made-link', 'base-link', 'bin']) writeFileSync(file(name), 'mine\n')
    writeFileSync(file('large'), large('mine'))
    const before = readdirSync(directory)
    const place = await caisson()
    const why = {
      link: /on the host, .*symbolic link/,
      fifo: /on the host, .*FIFO/i,
      folder: /on the host, .*directory/,
      'under/a': /on the host, .*symbolic link/,
      'made-link': /the run made no file of it/,
      'base-link': /no file went into the VM/,
      bin: /binary/,
      large: /was not kept, because it is .*larger than 1 MiB/,
    }
    for (const name of names) {
      const ended = await place.run('workspace', 'merge', changedRunId, name)
      expect(ended, name).toMatchObject({ code: 1, stdout: '', stderr: expect.stringMatching(why[name]) })
      expect(ended.stderr, name).toContain(`caisson workspace show ${changedRunId} PATH --output FILE`)
      if (name !== 'bin')
        expect(ended.stderr, name).toContain(`caisson workspace diff ${changedRunId} PATH --patch`)
      expect(ended.stderr, name).not.toContain('secret')
    }
    expect(readdirSync(directory)).toEqual(before)
    expect(readdirSync(outside)).toEqual(['a'])
    // What the error names: the version of the run as a file, and the difference as a patch.
    const output = path.join(outside, 'theirs')
    expect((await place.run('workspace', 'show', changedRunId, 'large', '--output', output)).code).toBe(0)
    expect(readFileSync(output, 'utf8')).toBe(large('theirs'))
    const patch = await place.run('workspace', 'diff', changedRunId, 'large', '--patch')
    expect(patch.stdout).toContain('-mine\n+theirs\n')
  }, 120_000)

  it('takes no place: a merge is never written through a link or over a FIFO [W.07]', async () => {
    const { file, caisson } = await oneConflict()
    const outside = path.join(await temporaryFolder('outside'), 'made')
    const place = await caisson()
    symlinkSync(outside, file(beside('a.txt')))
    expect((await place.run('workspace', 'merge', changedRunId, 'a.txt')).code).toBe(2)
    expect(existsSync(outside)).toBe(false)
    rmSync(file(beside('a.txt')))
    execFileSync('mkfifo', [file(beside('a.txt'))])
    expect((await place.run('workspace', 'merge', changedRunId, 'a.txt')).code).toBe(2)
    expect(
      (await place.run('workspace', 'merge', changedRunId, 'a.txt', '--output', file(beside('a.txt')))).code,
    ).toBe(2)
  })
})
