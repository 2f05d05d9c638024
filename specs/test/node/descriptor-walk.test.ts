import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { type LocateOptions, Root } from '#specs/node/descriptor-walk.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'

let folder: string
let workspace: string
let outside: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'caisson-walk-'))
  workspace = join(folder, 'workspace')
  outside = join(folder, 'outside')
  mkdirSync(join(workspace, 'a/b'), { recursive: true })
  mkdirSync(outside)
  writeFileSync(join(workspace, 'a/b/f'), 'inside')
  writeFileSync(join(outside, 'f'), 'SECRET')
})

afterEach(() => rmSync(folder, { recursive: true, force: true }))

/** Opens the workspace and finds `path`, then gives what `action` makes of it, or the error's code. */
function at<T>(path: string, action: (place: Place) => T, options: LocateOptions = {}): T | string {
  const opened = Root.open(workspace)
  if (!opened.ok) return opened.error.code
  using root = opened.value
  const found = root.locate(path, options)
  if (!found.ok) return found.error.code
  using place = found.value
  return action(place)
}

function read(path: string, options: LocateOptions = {}): string {
  return at(path, (place) => valueOrCode(readPlace(place)), options)
}

function readPlace(place: Place): Result<string> {
  const opened = place.openFile('read')
  if (!opened.ok) return opened
  using file = opened.value
  const bytes = Buffer.alloc(100)
  return { ok: true, value: bytes.toString('utf8', 0, readSync(file.fd, bytes)) }
}

function valueOrCode<T>(result: Result<T>): T | string {
  return result.ok ? result.value : result.error.code
}

const openDescriptors = (): number => readdirSync('/proc/self/fd').length

describe('a path below a root', () => {
  it('is found relative, absolute below the root, and through . and .. [S1.08]', () => {
    const paths = ['a/b/f', './a//b/./f', 'a/../a/b/f', 'a/b/../b/f', `${workspace}/a/b/f`]
    expect(paths.map((path) => read(path))).toEqual(paths.map(() => 'inside'))
    expect(
      ['', '.', '/'.concat(workspace.slice(1)), 'a/..'].map((path) => at(path, (place) => place.path)),
    ).toEqual(['', '', '', ''])
  })

  it('never leads outside by .., an absolute path or a name beside the root [S1.08]', () => {
    writeFileSync(`${workspace}-beside`, 'SECRET')
    const paths = [
      '..',
      '../outside/f',
      'a/../../outside/f',
      `${outside}/f`,
      '/etc/passwd',
      `${workspace}-beside`,
    ]
    expect(paths.map((path) => read(path))).toEqual(paths.map(() => 'outside_workspace'))
  })

  it('goes through links that stay inside, relative and absolute, also in its middle [S1.08]', () => {
    symlinkSync('a/b', join(workspace, 'relative'))
    symlinkSync(join(workspace, 'a'), join(workspace, 'absolute'))
    symlinkSync('../../relative/f', join(workspace, 'a/b/chain'))
    expect(read('relative/f')).toBe('inside')
    expect(read('absolute/b/f')).toBe('inside')
    expect(read('absolute/b/chain')).toBe('inside')
    // As in the system, .. after a link is the parent of where the link leads.
    expect(read('relative/../b/f')).toBe('inside')
    expect(at('absolute/b/chain', (place) => place.path)).toBe('a/b/f')
  })

  it('never follows a link that leads outside, at its end or in its middle [S1.08]', () => {
    symlinkSync('../outside', join(workspace, 'relative'))
    symlinkSync(outside, join(workspace, 'absolute'))
    symlinkSync('../../../outside/f', join(workspace, 'a/b/file'))
    symlinkSync('/proc/self/root', join(workspace, 'proc'))
    const paths = [
      'relative/f',
      'absolute/f',
      'relative',
      'a/b/file',
      'proc/etc/passwd',
      'relative/../outside/f',
    ]
    expect(paths.map((path) => read(path))).toEqual(paths.map(() => 'outside_workspace'))
  })

  it('ends in an error for links that go round, and for the work that chains of them ask for [S1.08]', () => {
    symlinkSync('loop', join(workspace, 'loop'))
    symlinkSync('second', join(workspace, 'first'))
    symlinkSync('first', join(workspace, 'second'))
    symlinkSync('a/../'.repeat(800), join(workspace, 'winding'))
    expect(read('winding/a/b/f')).toBe('inside')
    const long = `${'winding/'.repeat(20)}a/b/f`
    expect(['loop', 'loop/f', 'first/f', long].map((path) => read(path))).toEqual([
      'invalid_input',
      'invalid_input',
      'invalid_input',
      'invalid_input',
    ])
  })

  it('goes through an absolute link in a folder, and a name with a slash behind it [S1.08]', () => {
    symlinkSync(join(workspace, 'a/b'), join(workspace, 'a/absolute'))
    expect(read('a/absolute/f')).toBe('inside')
    expect(at('a/absolute/f', (place) => place.path)).toBe('a/b/f')
    expect(['a/b/f/', 'a/b/f/.'].map((path) => read(path))).toEqual(['inside', 'inside'])
  })

  it('follows forty links and no more [S1.08]', () => {
    symlinkSync('a/b/f', join(workspace, 'l1'))
    for (let link = 2; link <= 41; link++) symlinkSync(`l${link - 1}`, join(workspace, `l${link}`))
    expect([read('l40'), read('l41')]).toEqual(['inside', 'invalid_input'])
  })

  it('makes missing directories for the owner that the root has [S1.08]', () => {
    const owner = { uid: 1000, gid: 1000 }
    const opened = Root.open(workspace, { owner })
    if (!opened.ok) throw new Error(opened.error.message)
    using root = opened.value
    expect(root.owner).toEqual(owner)
    const found = root.locate('made/for/file', { createParents: true })
    if (!found.ok) throw new Error(found.error.message)
    using _place = found.value
    const mayGive = process.getuid?.() === 0
    for (const made of ['made', 'made/for'])
      expect(statSync(join(workspace, made)).uid).toBe(mayGive ? owner.uid : process.getuid?.())
  })

  it('takes no link at all on its way when asked to refuse them [S1.08]', () => {
    symlinkSync('a', join(workspace, 'link'))
    expect(read('link/b/f', { links: 'refuse' })).toBe('outside_workspace')
    expect(read('a/../a/b/f', { links: 'refuse' })).toBe('outside_workspace')
    expect(read('link', { links: 'refuse' })).toBe('not_a_file')
    expect(read('a/b/f', { links: 'refuse' })).toBe('inside')
  })

  it('refuses NUL, names over 255 bytes and paths over 4095, and finds names just below [S1.08]', () => {
    const longest = `${'ä'.repeat(127)}x`
    writeFileSync(join(workspace, longest), 'inside')
    expect(read(longest)).toBe('inside')
    expect(read('a\0b')).toBe('invalid_input')
    expect(read('ä'.repeat(128))).toBe('invalid_input')
    expect(read('x'.repeat(256))).toBe('invalid_input')
    expect(read(`${'a/../'.repeat(818)}a/b/f`)).toBe('inside')
    expect(read(`${'a/../'.repeat(819)}a/b/f`)).toBe('invalid_input')
    // Of 2,121 characters, in bytes too long.
    expect(read(`${'ä'.repeat(100)}/`.repeat(21))).toBe('invalid_input')
  })

  it('finds names that are not UTF-8, and refuses text that stands for none [S1.08]', () => {
    writeFileSync(Buffer.concat([Buffer.from(`${workspace}/caf`), Buffer.from([0xe9])]), 'latin')
    expect(read('caf\udce9')).toBe('latin')
    expect(read('\udcc3\udca9')).toBe('invalid_input')
    expect(read('\ud83d')).toBe('invalid_input')
  })

  it('opens no FIFO, device, socket, directory or link, and does not wait for one [S1.08]', async () => {
    execFileSync('mkfifo', [join(workspace, 'fifo')])
    symlinkSync('/dev/zero', join(workspace, 'device'))
    const server = createServer().listen(join(workspace, 'socket'))
    await once(server, 'listening')
    expect(['fifo', 'socket', 'a'].map((path) => read(path))).toEqual([
      'not_a_file',
      'not_a_file',
      'not_a_file',
    ])
    expect(read('device')).toBe('outside_workspace')
    expect(read('device', { links: 'keep' })).toBe('not_a_file')
    server.close()
    const opened = Root.open('/dev')
    if (!opened.ok) throw new Error(opened.error.message)
    using root = opened.value
    const found = root.locate('zero')
    if (!found.ok) throw new Error(found.error.message)
    using place = found.value
    expect(valueOrCode(readPlace(place))).toBe('not_a_file')
  })

  it('says which part is missing or no directory', () => {
    expect(read('a/none/f')).toBe('not_found')
    expect(read('a/b/none')).toBe('not_found')
    expect(read('a/b/f/g')).toBe('not_a_directory')
  })

  it('closes every descriptor that it opens, found or not', () => {
    symlinkSync('a/b', join(workspace, 'link'))
    symlinkSync('/etc', join(workspace, 'out'))
    const paths = ['a/b/f', 'link/f', 'out/passwd', 'none/f', '../x', 'a/b/f/g', 'a\0', 'a/b/../../a', '']
    const before = openDescriptors()
    for (const path of paths) read(path)
    expect(openDescriptors()).toBe(before)
  })

  it('reads the same as the system or nothing, for any path over a tree of links [S1.08]', () => {
    symlinkSync('a', join(workspace, 'l'))
    symlinkSync('../b/..', join(workspace, 'a/up'))
    symlinkSync('../..', join(workspace, 'a/out'))
    const name = fc.constantFrom('a', 'b', 'f', 'l', 'up', 'out', '..', '.', '', 'workspace', 'outside')
    fc.assert(
      fc.property(fc.array(name, { minLength: 1, maxLength: 8 }), (names) => {
        const path = names.join('/')
        const found = path.startsWith('/') ? 'outside_workspace' : read(path)
        expect(found).not.toBe('SECRET')
        if (found === 'inside') expect(readFileSync(join(workspace, 'a/b/f'), 'utf8')).toBe(readSystem(path))
      }),
      { numRuns: 500, seed: 8 },
    )
  })
})

function readSystem(path: string): string {
  return readFileSync(`${workspace}/${path}`, 'utf8')
}

describe('a place', () => {
  it('is created, written, renamed, linked and removed without following links [S1.08]', () => {
    symlinkSync(join(outside, 'new'), join(workspace, 'dangling'))
    const keep: LocateOptions = { links: 'keep' }
    expect(at('dangling', (place) => valueOrCode(place.createFile()), keep)).toBe('already_exists')
    expect(at('dangling', (place) => valueOrCode(place.setMode(0o777)), keep)).toBe('not_a_file')
    expect(at('dangling', (place) => valueOrCode(place.unlink()), keep)).toBeUndefined()
    expect(readdirSync(outside)).toEqual(['f'])
    at(
      'new/deep/file',
      (place) => {
        const created = place.createFile(0o600)
        if (!created.ok) throw new Error(created.error.message)
        using file = created.value
        writeSync(file.fd, 'text')
        expect(valueOrCode(place.setMode(0o640))).toBeUndefined()
        expect(valueOrCode(place.renameTo(place.sibling('moved'), { replace: false }))).toBeUndefined()
        expect(valueOrCode(place.sibling('link').makeLink('/anywhere'))).toBeUndefined()
        expect(valueOrCode(place.sibling('link').readLink())).toBe('/anywhere')
        expect(valueOrCode(place.sibling('moved').renameTo(place.sibling('link'), { replace: false }))).toBe(
          'already_exists',
        )
      },
      { createParents: true },
    )
    expect(statSync(join(workspace, 'new/deep/moved')).mode & 0o777).toBe(0o640)
    expect(at('new/deep', (place) => valueOrCode(place.removeDirectory()))).toBe('already_exists')
  })

  it('keeps a directory that is in the way when it must not be replaced [S1.08]', () => {
    mkdirSync(join(workspace, 'empty'))
    expect(at('a', (place) => valueOrCode(place.renameTo(place.sibling('empty'), { replace: false })))).toBe(
      'already_exists',
    )
  })

  it('cannot be opened without permission', () => {
    chmodSync(join(workspace, 'a/b/f'), 0)
    const expected = process.getuid?.() === 0 ? 'inside' : 'permission_denied'
    expect(read('a/b/f')).toBe(expected)
  })
})

/** Swaps `d`, by turns a directory and a link to the outside, until it is killed. */
const swapper = `
const { renameSync } = require('node:fs')
process.chdir(process.argv[1])
process.stdout.write('ready')
for (;;) {
  renameSync('d', 'directory'); renameSync('link', 'd')
  renameSync('d', 'link'); renameSync('directory', 'd')
}`

describe('a race for a directory', () => {
  it('is never won by what lies outside: nothing there is read or written [S1.08]', async () => {
    mkdirSync(join(workspace, 'd'))
    writeFileSync(join(workspace, 'd/f'), 'inside')
    symlinkSync(outside, join(workspace, 'link'))
    const child = spawn(process.execPath, ['-e', swapper, workspace], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    try {
      await once(child.stdout, 'data')
      const outcomes = new Map<string, number>()
      const enough = (): boolean =>
        (outcomes.get('inside') ?? 0) > 20 && (outcomes.get('outside_workspace') ?? 0) > 20
      for (let turn = 0; turn < 20_000 && !(turn > 2_000 && enough()); turn++) {
        const outcome = read('d/f')
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1)
        at('d/new', writeNew)
      }
      expect(outcomes.get('SECRET')).toBeUndefined()
      expect(outcomes.get('inside')).toBeGreaterThan(0)
      expect(outcomes.get('outside_workspace')).toBeGreaterThan(0)
      expect(readdirSync(outside)).toEqual(['f'])
      expect(readFileSync(join(outside, 'f'), 'utf8')).toBe('SECRET')
    } finally {
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
    expect(openDescriptors()).toBeLessThan(200)
  })
})

function writeNew(place: Place): void {
  const created = place.createFile()
  if (!created.ok) return
  using file = created.value
  writeSync(file.fd, 'new')
  place.unlink()
}
