// Copies between a VM and this machine: the protocol of a shell, with programs of this machine in the place of the guest's.
import { spawn } from 'node:child_process'
import {
  chmod,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import path from 'node:path'
import { duplexPair } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { FramedStream } from '#specs/node/framed-stream.ts'
import { frameKinds } from '#specs/node/typed-frames.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { readGuestPath } from '../../control/copy.ts'
import { copyIn, writeArchive } from '../../control/copy-in.ts'
import { copyOut, readArchive } from '../../control/copy-out.ts'
import type { ShellOpener } from '../../control/guest-program.ts'
import { Shell } from '../../control/shell.ts'
import { encodeEnd, encodeEntry, encodePadding, type TarEntry } from '../../control/tar.ts'

/** @param replace the program to run in the place of the one that is asked for */
function opener(replace: (argv: string[]) => string[] = (argv) => argv): ShellOpener {
  return {
    openShell: async ({ argv }) => {
      const [here, there] = duplexPair()
      const [program = '', ...args] = replace([...argv])
      const child = spawn(program, args)
      const frames = new FramedStream(there)
      child.stdin.on('error', () => undefined)
      void frames.closed.then(() => child.kill('SIGKILL'))
      void (async () => {
        for (let frame = await frames.next(); frame !== null; frame = await frames.next())
          if (frame.payload.length === 0) child.stdin.end()
          else child.stdin.write(frame.payload)
      })().catch(() => undefined)
      const relay = async (from: AsyncIterable<Buffer>, kind: 'stdout' | 'stderr'): Promise<void> => {
        for await (const piece of from) await frames.sendBytes(frameKinds[kind], piece)
      }
      const exited = new Promise<number>((resolve) => child.once('exit', (code) => resolve(code ?? 1)))
      void Promise.all([relay(child.stdout, 'stdout'), relay(child.stderr, 'stderr')]).then(async () => {
        await frames.sendJson({ ok: true, exitCode: await exited, signal: null, oomKilled: false })
        frames.end()
      })
      return new Shell(new FramedStream(here))
    },
  }
}

const vm = opener()

/** A guest that sends these bytes, whatever is asked of it. */
async function forger(archive: Buffer): Promise<ShellOpener> {
  const file = path.join(await temporaryFolder('archive'), 'forged.tar')
  await writeFile(file, archive)
  return opener(() => ['cat', file])
}

type Forged = Partial<Omit<TarEntry, 'size'>> & { readonly path: string; readonly content?: string }

function archive(...entries: readonly Forged[]): Buffer {
  return Buffer.concat([
    ...entries.flatMap(({ content = '', ...entry }) => [
      encodeEntry({ type: 'file', mode: 0o644, mtimeMs: 0, target: '', ...entry, size: content.length }),
      Buffer.from(content),
      encodePadding(content.length),
    ]),
    encodeEnd(),
  ])
}

async function makeTree(folder: string): Promise<string> {
  const tree = path.join(folder, 'tree')
  await mkdir(path.join(tree, 'deep', 'x'.repeat(120)), { recursive: true })
  await writeFile(path.join(tree, 'a.txt'), 'a\n')
  await writeFile(path.join(tree, 'run.sh'), '#!/bin/sh\n')
  await chmod(path.join(tree, 'run.sh'), 0o755)
  await writeFile(path.join(tree, 'deep', 'x'.repeat(120), 'größe €'), Buffer.alloc(300_001, 7))
  await symlink('a.txt', path.join(tree, 'link'))
  await symlink('/etc/passwd', path.join(tree, 'outside'))
  return tree
}

async function expectTree(tree: string): Promise<void> {
  expect((await readdir(tree)).sort()).toEqual(['a.txt', 'deep', 'link', 'outside', 'run.sh'])
  expect(await readFile(path.join(tree, 'a.txt'), 'utf8')).toBe('a\n')
  expect((await stat(path.join(tree, 'run.sh'))).mode & 0o777).toBe(0o755)
  const big = await readFile(path.join(tree, 'deep', 'x'.repeat(120), 'größe €'))
  expect(big.equals(Buffer.alloc(300_001, 7))).toBe(true)
  expect(await readlink(path.join(tree, 'link'))).toBe('a.txt')
  expect(await readlink(path.join(tree, 'outside'))).toBe('/etc/passwd')
}

describe.each([
  ['out of a VM', copyOut],
  ['into a VM', copyIn],
] as const)('a copy %s', (_, copy) => {
  it('brings a directory with modes, long names and links: by a new name, into one that is there, or its content [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const tree = await makeTree(folder)
    const result = await copy(vm, tree, path.join(folder, 'new'))
    expect(result).toMatchObject({ files: 5, bytes: 300_013, leftOutCount: 0 })
    await expectTree(path.join(folder, 'new'))
    await mkdir(path.join(folder, 'there'))
    await copy(vm, tree, path.join(folder, 'there'))
    await expectTree(path.join(folder, 'there', 'tree'))
    await mkdir(path.join(folder, 'content'))
    await copy(vm, `${tree}/.`, path.join(folder, 'content'))
    await expectTree(path.join(folder, 'content'))
  })

  it('brings a file by a new name, over a file, through a link to one, and into a directory, and merges directories [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const tree = await makeTree(folder)
    const source = path.join(tree, 'a.txt')
    const at = (name: string): string => path.join(folder, name)
    await copy(vm, source, at('new'))
    await writeFile(at('old'), 'old')
    await copy(vm, source, at('old'))
    await writeFile(at('behind'), 'old')
    await symlink('behind', at('link'))
    await copy(vm, source, at('link'))
    expect((await lstat(at('link'))).isSymbolicLink()).toBe(true)
    await mkdir(at('directory'))
    await copy(vm, source, at('directory'))
    for (const name of ['new', 'old', 'behind', 'directory/a.txt'])
      expect(await readFile(at(name), 'utf8'), name).toBe('a\n')

    await mkdir(at('merged/tree'), { recursive: true })
    await writeFile(at('merged/tree/own'), 'stays')
    await writeFile(at('merged/tree/a.txt'), 'goes')
    await copy(vm, tree, at('merged'))
    expect(await readFile(at('merged/tree/own'), 'utf8')).toBe('stays')
    expect(await readFile(at('merged/tree/a.txt'), 'utf8')).toBe('a\n')
  })

  it('refuses what Docker refuses, with the path and the reason [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const tree = await makeTree(folder)
    const source = path.join(tree, 'a.txt')
    await writeFile(path.join(folder, 'file'), 'old')
    const refused = async (from: string, to: string, code: string): Promise<void> => {
      await expect(copy(vm, from, path.join(folder, to))).rejects.toMatchObject({ code })
    }
    await refused(path.join(tree, 'missing'), 'new', 'file_not_found')
    await refused(source, 'no/such/directory', 'file_not_found')
    await refused(tree, 'file', 'not_possible_now')
    expect(await readFile(path.join(folder, 'file'), 'utf8')).toBe('old')
  })

  it('leaves out what is neither file, directory nor link, and names with control characters, and says so [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const tree = path.join(folder, 'tree')
    await mkdir(tree)
    await writeFile(path.join(tree, 'bad\u001b[31m\n'), 'x')
    await writeFile(path.join(tree, 'good'), 'x')
    await new Promise((resolve) => spawn('mkfifo', [path.join(tree, 'pipe')]).once('exit', resolve))
    const result = await copy(vm, tree, path.join(folder, 'new'))
    expect(result).toMatchObject({ files: 1, leftOutCount: 2 })
    expect(result.leftOut.map(({ reason }) => reason).sort()).toEqual([
      'control characters or bytes other than UTF-8 in its name',
      'neither file, directory nor symbolic link',
    ])
    expect(await readdir(path.join(folder, 'new'))).toEqual(['good'])
  })

  it('ends with its signal [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const copied = copy(
      opener(() => ['sleep', '1000']),
      await makeTree(folder),
      path.join(folder, 'new'),
      {
        signal: AbortSignal.timeout(50),
      },
    )
    await expect(copied).rejects.toMatchObject({ code: 'cancelled' })
  })
})

describe('a copy out of a hostile VM', () => {
  const outside = { path: '../escaped', content: 'x' }
  it.each<[string, Forged[], string]>([
    [
      'a path with ..',
      [
        { path: 'got/', type: 'directory' },
        { ...outside, path: 'got/../../escaped' },
      ],
      'leads out',
    ],
    ['an absolute path', [{ path: '/escaped', content: 'x' }], 'leads out'],
    ['another path than was asked for', [{ path: 'other', content: 'x' }], 'not below'],
    ['a child before its root', [{ path: 'got/child', content: 'x' }], 'does not begin'],
    [
      'a path that is too deep',
      [{ path: 'got/', type: 'directory' }, { path: `got/${'a/'.repeat(300)}b` }],
      'too long',
    ],
  ])('refuses %s and writes nothing outside [V.13]', async (_, entries, why) => {
    const folder = await temporaryFolder('copy')
    const copied = copyOut(await forger(archive(...entries)), '/x/got', path.join(folder, 'new'))
    await expect(copied).rejects.toMatchObject({
      code: 'protocol_violation',
      message: expect.stringContaining(why),
    })
    expect((await readdir(folder)).filter((name) => name !== 'new')).toEqual([])
  })

  it('writes through no link: neither one of the archive nor one that was there [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const victim = path.join(folder, 'victim')
    await mkdir(victim)
    const forged = await forger(
      archive(
        { path: 'got/', type: 'directory' },
        { path: 'got/way', type: 'link', target: victim },
        { path: 'got/way/file', content: 'x' },
        { path: 'got/two', type: 'link', target: victim },
        { path: 'got/two/link', type: 'link', target: 'x' },
      ),
    )
    await expect(copyOut(forged, '/x/got', path.join(folder, 'new'))).rejects.toThrow('it is a directory')
    expect(await readdir(victim)).toEqual([])

    await mkdir(path.join(folder, 'there/got'), { recursive: true })
    await symlink(victim, path.join(folder, 'there/got/way'))
    const below = await forger(
      archive({ path: 'got/', type: 'directory' }, { path: 'got/way/file', content: 'x' }),
    )
    await expect(copyOut(below, '/x/got', path.join(folder, 'there'))).rejects.toThrow('cannot replace')
    await writeFile(path.join(victim, 'kept'), 'kept')
    await symlink(path.join(victim, 'kept'), path.join(folder, 'there/got/over'))
    const over = await forger(
      archive({ path: 'got/', type: 'directory' }, { path: 'got/over', content: 'new' }),
    )
    await copyOut(over, '/x/got', path.join(folder, 'there'))
    expect(await readFile(path.join(victim, 'kept'), 'utf8')).toBe('kept')
    expect(await readFile(path.join(folder, 'there/got/over'), 'utf8')).toBe('new')
    expect(await readdir(victim)).toEqual(['kept'])
  })

  it('stops at its bound, before the disk is full, without a byte for too long, and at what is no archive [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const to = path.join(folder, 'new')
    const big = await forger(archive({ path: 'got', content: 'x'.repeat(5_000) }))
    await expect(copyOut(big, '/x/got', to, { maxBytes: 4_999 })).rejects.toMatchObject({
      code: 'limit_reached',
    })
    const announced = encodeEntry({
      path: 'got',
      type: 'file',
      mode: 0,
      mtimeMs: 0,
      target: '',
      size: 2 ** 46,
    })
    const huge = await forger(announced)
    await expect(copyOut(huge, '/x/got', to, { maxBytes: 2 ** 50 })).rejects.toMatchObject({
      code: 'no_space',
    })
    const endless = opener(() => ['cat', '/dev/zero'])
    const pieces = readArchive(endless, '/x/got', { maxBytes: 1_000_000 })
    const readAll = async (): Promise<void> => {
      for await (const _ of pieces);
    }
    await expect(readAll()).rejects.toMatchObject({ code: 'limit_reached' })
    const unnamed = {
      path: 'got/\u0007',
      type: 'file',
      mode: 0,
      mtimeMs: 0,
      target: '',
      size: 5_000,
    } as const
    const root = archive({ path: 'got/', type: 'directory' }).subarray(0, 512)
    const leftOut = await forger(Buffer.concat([root, encodeEntry(unnamed)]))
    await expect(copyOut(leftOut, '/x/got', to, { maxBytes: 4_999 })).rejects.toMatchObject({
      code: 'limit_reached',
    })
    await rm(to, { recursive: true })
    const silent = opener(() => ['sleep', '1000'])
    await expect(copyOut(silent, '/x/got', to, { silenceMs: 50 })).rejects.toThrow('did nothing')
    const noise = await forger(Buffer.alloc(2_000, 'noise '))
    await expect(copyOut(noise, '/x/got', to)).rejects.toMatchObject({ code: 'protocol_violation' })
    const cut = await forger(archive({ path: 'got', content: 'x'.repeat(5_000) }).subarray(0, 3_000))
    await expect(copyOut(cut, '/x/got', to)).rejects.toMatchObject({ code: 'protocol_violation' })
    expect(await readdir(folder)).toEqual([])
  })

  it('holds no more names than its bounds: of one entry, of a target, of all links [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const entry = { type: 'link', mode: 0, mtimeMs: 0, size: 0 } as const
    const longName = encodeEntry({ ...entry, path: 'got/'.padEnd(200, 'x'), target: '' }).subarray(0, 1024)
    const twice = await forger(Buffer.concat([longName, longName, encodeEnd()]))
    await expect(copyOut(twice, '/x/got', path.join(folder, 'twice'))).rejects.toThrow('two long names')

    const target = 'x'.repeat(4_000)
    const root = { path: 'got/', type: 'directory' } as const
    const links = archive(root, { path: 'got/long', ...entry, target: 'x'.repeat(4_096) })
    const { leftOut } = await copyOut(await forger(links), '/x/got', path.join(folder, 'one'))
    expect(leftOut).toEqual([{ path: 'got/long', reason: 'a link to no usable name' }])

    const many = Array.from({ length: 17_000 }, (_, at) => ({ path: `got/${at}`, ...entry, target }))
    const copied = copyOut(await forger(archive(root, ...many)), '/x/got', path.join(folder, 'many'))
    await expect(copied).rejects.toMatchObject({ code: 'limit_reached' })
    expect(await readdir(path.join(folder, 'many'))).toEqual([])
  })
})

describe('an archive of a VM', () => {
  it('goes out as bytes, and into a directory that exists [V.13]', async () => {
    const folder = await temporaryFolder('copy')
    const tree = await makeTree(folder)
    await mkdir(path.join(folder, 'new'))
    await writeArchive(vm, readArchive(vm, tree), path.join(folder, 'new'))
    await expectTree(path.join(folder, 'new', 'tree'))
    const lost = writeArchive(vm, readArchive(vm, tree), path.join(folder, 'missing'))
    await expect(lost).rejects.toMatchObject({ code: 'not_possible_now' })
  })
})

describe('a path of a VM', () => {
  it('begins at the workspace unless it is absolute [V.13]', () => {
    expect(readGuestPath('a/b')).toMatchObject({ directory: '/mnt/workspace/a', name: 'b' })
    expect(readGuestPath('/etc/passwd')).toMatchObject({ directory: '/etc', name: 'passwd' })
    expect(readGuestPath('.')).toMatchObject({ directory: '/mnt/workspace', name: '.' })
    expect(readGuestPath('a/.')).toMatchObject({ directory: '/mnt/workspace/a', name: '.' })
    expect(readGuestPath('a/')).toMatchObject({ directory: '/mnt/workspace', name: 'a', isDirectory: true })
    expect(() => readGuestPath('a\0b')).toThrow('NUL')
  })
})
