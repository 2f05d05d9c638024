// A tar archive as a workspace: what real programs write, and what nobody may send. Each refusal leaves nothing behind.
import { lstat, mkdir, readdir, readlink, stat, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { execa } from 'execa'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { unpackWorkspace } from '../../archive/unpack-workspace.ts'
import { encodeEnd, encodeEntry, encodePadding, type TarEntry } from '../../control/tar.ts'
import { readFiles } from '../support/runs.ts'

type Given = Partial<TarEntry> & { readonly path: string; readonly content?: string }

/** One entry with its content. */
function entry({ content = '', ...given }: Given): Buffer {
  const size = Buffer.byteLength(content)
  const header = encodeEntry({
    type: 'file',
    mode: 0o644,
    mtimeMs: 0,
    target: '',
    ...given,
    size: given.size ?? size,
  })
  return Buffer.concat([header, Buffer.from(content), encodePadding(size)])
}

const archive = (...entries: readonly Buffer[]) => Buffer.concat([...entries, encodeEnd()])
const link = (name: string, target: string) => entry({ path: name, type: 'link', target })

/** Changes the header of an entry and corrects its checksum. */
function forge(bytes: Buffer, change: (header: Buffer) => void): Buffer {
  change(bytes)
  bytes.fill(0x20, 148, 156)
  const sum = bytes.subarray(0, 512).reduce((total, byte) => total + byte, 0)
  bytes.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return bytes
}

const ofType = (type: string, given: Given = { path: 'a' }) =>
  forge(entry(given), (header) => void header.write(type, 156, 'latin1'))

/** An extended header with these records. */
function extended(type: 'x' | 'g', records: Readonly<Record<string, string>>): Buffer {
  const content = Object.entries(records)
    .map(([key, value]) => {
      const rest = ` ${key}=${value}\n`
      const bytes = Buffer.byteLength(rest)
      const length = bytes + String(bytes + String(bytes).length).length
      return `${length}${rest}`
    })
    .join('')
  return ofType(type, { path: 'PaxHeader', content })
}

async function unpack(bytes: Buffer, options = {}) {
  const folder = await temporaryFolder('unpack')
  const to = path.join(folder, 'workspace')
  // In pieces that end anywhere.
  const pieces = Array.from({ length: Math.ceil(bytes.length / 700) }, (_, at) =>
    bytes.subarray(at * 700, (at + 1) * 700),
  )
  const made = await unpackWorkspace(Readable.from(pieces), to, options).catch((error: unknown) => error)
  return { made, folder, to }
}

/** The reason of a refusal, which leaves nothing. */
async function refusalOf(bytes: Buffer, options = {}): Promise<string> {
  const { made, folder } = await unpack(bytes, options)
  expect(await readdir(folder)).toEqual([])
  expect(made).toBeInstanceOf(Error)
  const { code, message } = made as { code: string; message: string }
  return `${code}: ${message}`
}

describe('an uploaded workspace', () => {
  it.each(['gnu', 'pax', 'ustar', 'v7'])('is what tar packs in the form %s [H.02]', async (form) => {
    const source = await temporaryFolder('upload-source')
    const deep = path.join(source, 'src', form === 'v7' ? 'short' : 'd'.repeat(60), 'inner')
    await mkdir(deep, { recursive: true })
    await writeFile(path.join(source, 'a.txt'), 'a\n')
    await writeFile(path.join(deep, form === 'v7' ? 'b.txt' : `${'b'.repeat(90)}.txt`), 'x'.repeat(5_000))
    await writeFile(path.join(source, 'run.sh'), '#!/bin/sh\n', { mode: 0o755 })
    await symlink('../a.txt', path.join(source, 'src', 'link'))
    const { stdout } = await execa('tar', [`--format=${form}`, '-C', source, '-cf', '-', '.'], {
      encoding: 'buffer',
    })
    const { made, to } = await unpack(Buffer.from(stdout))
    expect(made).toEqual({ directory: to, entries: 7, contentBytes: 2 + 5_000 + 10 })
    expect(await readFiles(to)).toEqual(await readFiles(source))
    expect(await readlink(path.join(to, 'src/link'))).toBe('../a.txt')
    expect((await stat(path.join(to, 'run.sh'))).mode & 0o777).toBe(0o755)
    expect((await stat(to)).mode & 0o777).toBe(0o700)
  })

  it('may leave out directories, name them late, and have names in extended headers [H.02]', async () => {
    const name = `${'ü'.repeat(100)}/ä.txt`
    const { to } = await unpack(
      archive(
        entry({ path: './b/c.txt', content: 'c' }),
        entry({ path: 'b/', type: 'directory', mode: 0o750 }),
        extended('g', { comment: '0123' }),
        Buffer.concat([extended('x', { path: name, mtime: '1.5' }), entry({ path: 'cut', content: 'ä' })]),
        link('inside', 'b/../b/c.txt'),
        link('nowhere', 'b/missing'),
      ),
    )
    expect(await readFiles(to)).toMatchObject({ 'b/c.txt': 'c', [name]: 'ä' })
    expect((await lstat(path.join(to, 'b'))).mode & 0o777).toBe(0o750)
    expect(await readlink(path.join(to, 'nowhere'))).toBe('b/missing')
  })

  it.each<[string, Buffer, string]>([
    ['an absolute path', archive(entry({ path: '/etc/passwd' })), 'leads out'],
    ['a path with ..', archive(entry({ path: 'a/../../b' })), 'leads out'],
    [
      'an absolute path in an extended header',
      archive(extended('x', { path: '/b' }), entry({ path: 'a' })),
      'leads out',
    ],
    ['an absolute link', archive(link('a', '/etc')), 'leads out'],
    [
      'a link to outside',
      archive(entry({ path: 'd/', type: 'directory' }), link('d/a', '../../b')),
      'leads out',
    ],
    [
      'a link that leads out through another',
      archive(entry({ path: 'a/b/c.txt' }), link('a/b/up', '../..'), link('a/b/out', 'up/../x')),
      'leads out',
    ],
    ['links in a circle', archive(link('a', 'b'), link('b', 'a')), 'in a circle'],
    ['a file below a link', archive(link('a', 'b'), entry({ path: 'a/c.txt' })), 'is no directory'],
    ['a file below a file', archive(entry({ path: 'a' }), entry({ path: 'a/c.txt' })), 'is no directory'],
    ['the same file twice', archive(entry({ path: 'a' }), entry({ path: './a' })), 'has it twice'],
    ['the same link twice', archive(link('a', 'b'), link('a', 'c')), 'has it twice'],
    ['a hard link', archive(ofType('1', { path: 'a', target: 'b' })), 'no ordinary file'],
    ['a device', archive(ofType('3')), 'no ordinary file'],
    ['a FIFO', archive(ofType('6')), 'no ordinary file'],
    ['a sparse file of GNU tar', archive(ofType('S')), 'no ordinary file'],
    [
      'a sparse file of pax',
      archive(extended('x', { 'GNU.sparse.major': '1' }), entry({ path: 'a' })),
      'a sparse file',
    ],
    [
      'a name for all entries',
      archive(extended('g', { path: 'b' }), entry({ path: 'a' })),
      'for all entries',
    ],
    [
      'a size that is none',
      archive(extended('x', { size: '-1' }), entry({ path: 'a' })),
      'no number of bytes',
    ],
    ['a control character', archive(entry({ path: 'a\u001b[2J' })), 'control characters'],
    ['a name that is too long', archive(entry({ path: 'a'.repeat(256) })), 'at most 100 names'],
    ['a path that is too deep', archive(entry({ path: 'a/'.repeat(101) })), 'at most 100 names'],
    ['a file in place of the workspace', archive(entry({ path: '.' })), 'is a directory'],
    ['an entry without its end', entry({ path: 'a', size: 9_999, content: 'a' }), 'middle of an entry'],
    ['something behind its end', Buffer.concat([archive(), entry({ path: 'a' })]), 'behind its end'],
    ['a compressed archive', Buffer.from('1f8b0800'.padEnd(2_048, 'a7'), 'hex'), 'wrong checksum'],
  ])('with %s is refused whole [H.02 S1.08]', async (_, bytes, why) => {
    const good = entry({ path: 'good.txt', content: 'good' })
    const reason = await refusalOf(Buffer.concat([good, bytes]))
    expect(reason).toMatch(/^invalid_archive: /)
    expect(reason).toContain(why)
  })

  it('with more bytes or entries than the bounds is refused whole [H.02]', async () => {
    const large = archive(entry({ path: 'a', content: 'x'.repeat(4_000) }))
    expect(await refusalOf(large, { maxBytes: 2_000 })).toContain('limit_reached: the archive has more than')
    const many = archive(entry({ path: 'a/b/c/d.txt' }))
    expect(await refusalOf(many, { maxEntries: 3 })).toContain(
      'limit_reached: the archive has more than 3 entries',
    )
    expect((await unpack(many, { maxEntries: 4 })).made).toMatchObject({ entries: 4 })
  })

  it('is never outside of its folder, whatever bytes an archive has [H.02 S1.08]', async () => {
    const names = fc.constantFrom('a', 'a/b', '../x', 'a/../../x', '/tmp/x', 'l', 'l/x', './', 'a/')
    const any = fc.oneof(
      fc.record({ path: names, type: fc.constantFrom('file', 'directory', 'link'), target: names }),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(any, { maxLength: 6 }), fc.nat(), fc.nat(255), async (list, at, byte) => {
        const bytes = archive(...list.map((one) => entry(one as Given)))
        bytes[at % (bytes.length * 2)] = byte
        const { folder } = await unpack(bytes)
        expect((await readdir(folder)).filter((name) => name !== 'workspace')).toEqual([])
        for (const name of await readdir(folder, { recursive: true })) {
          const target = await readlink(path.join(folder, name)).catch(() => undefined)
          if (target !== undefined)
            expect(path.resolve(folder, path.dirname(name), target)).toMatch(
              new RegExp(`^${folder}/workspace`),
            )
        }
      }),
      { seed: 20_261_127, numRuns: 150 },
    )
  })
})
