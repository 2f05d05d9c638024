import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { readManifest, writeManifest } from '../../../workspace/manifest.ts'
import { buildDisk } from '../../../workspace/scan/disk.ts'
import { Bench, digest, snapshot, treeOf, unwrap } from '../support.ts'

/** Reads the disk back with the erofs tools, which did not write it. */
function extract(bench: Bench, disk: string): Record<string, string> {
  const to = path.join(bench.home, 'extracted')
  execFileSync('fsck.erofs', [`--extract=${to}`, '--preserve-perms', disk], { stdio: 'pipe' })
  return snapshot(to)
}

describe('the workspace disk', () => {
  it('holds exactly the tree: modes, links, empty, binary and large files, odd names [W.02]', async () => {
    const names = Object.fromEntries(
      Array.from({ length: 400 }, (_, n) => [`many/${'name '.repeat(8)}${n}`, `${n}`]),
    )
    const tree = treeOf({
      ...names,
      '!before-dot': 'x',
      'run.sh': { kind: 'file', mode: 0o755, content: '#!/bin/sh\n' },
      'ro.txt': { kind: 'file', mode: 0o444, content: 'r' },
      'empty.txt': '',
      'empty/dir': null,
      private: { kind: 'directory', mode: 0o700 },
      'exact.bin': Buffer.alloc(8_192, 7),
      'tail.bin': Buffer.alloc(4_096 * 3 + 4_060, 9),
      'inline.bin': Buffer.alloc(4_032, 1),
      'large.bin': Buffer.alloc(5 * 1024 * 1024 + 17, 3),
      link: '-> run.sh',
      dangling: '-> no/where',
      'long-link': `-> ${'d/'.repeat(2_030)}x`,
      'caf\udce9': 'latin-1 name',
      ümläut: 'crlf\r\n',
      [`${'n'.repeat(255)}`]: 'long name',
    })
    using bench = new Bench(tree)
    const { manifest, disk } = await bench.takeIn()
    expect(extract(bench, disk)).toEqual(snapshot(bench.root))
    expect(manifest.entries.get('caf\udce9')).toMatchObject({ kind: 'file', sha256: digest('latin-1 name') })
    expect(statSync(disk).size).toBe(64 * 1024 * 1024)
    expect(statSync(disk).mode & 0o777).toBe(0o600)
  })

  it('is written into a longer file of zeros that somebody has open, and leaves its length [W.02 V.01]', async () => {
    using bench = new Bench(
      treeOf({ 'a.txt': 'a\n', 'deep/b.bin': Buffer.alloc(70_000, 5), link: '-> a.txt' }),
    )
    const file = path.join(bench.home, 'drive')
    const length = 4 * 1024 ** 3
    writeFileSync(file, '', { mode: 0o600 })
    truncateSync(file, length)
    const opened = openSync(file, 'r')
    try {
      const scan = unwrap(await bench.scan())
      const { usedBytes } = unwrap(
        await buildDisk({ scan, file, isInPlace: true, diskBytes: 64 * 1024 ** 2 }),
      )
      expect(statSync(file)).toMatchObject({ size: length, ino: fstatSync(opened).ino })
      expect(statSync(file).blocks * 512).toBeLessThan(1024 ** 2)
      const seen = Buffer.alloc(usedBytes)
      readSync(opened, seen, 0, usedBytes, 0)
      const copy = path.join(bench.home, 'copy')
      writeFileSync(copy, seen)
      expect(extract(bench, copy)).toEqual(snapshot(bench.root))
    } finally {
      closeSync(opened)
    }
    const scan = unwrap(await bench.scan())
    expect(await buildDisk({ scan, file: path.join(bench.home, 'none'), isInPlace: true })).toMatchObject({
      ok: false,
    })
  })

  it('holds added folders beside the workspace, and none of them in the manifest [W.08]', async () => {
    using bench = new Bench(treeOf({ 'a.txt': 'own', 'd/b.txt': 'deep', 'folders/x': 'no folder' }))
    using first = new Bench(
      treeOf({ 'a.txt': 'first', 'd/e/f.txt': 'f', '.env': 'KEY=1', l: { kind: 'link', target: '/etc' } }),
    )
    using empty = new Bench()
    const scan = unwrap(await bench.scan())
    const folders = [
      { name: 'first', scan: unwrap(await first.scan({ isFolder: true })) },
      { name: 'größe-2', scan: unwrap(await empty.scan({ isFolder: true })) },
    ]
    const file = path.join(bench.home, 'disk')
    const disk = unwrap(await buildDisk({ scan, folders, file, diskBytes: 64 * 1024 ** 2 }))
    expect([...disk.manifest.entries.keys()]).toEqual(['a.txt', 'd', 'd/b.txt', 'folders', 'folders/x'])
    expect(disk.folders).toEqual([
      { name: 'first', root: first.root, files: 2, bytes: 6, leftOut: [{ path: '.env', reason: 'secret' }] },
      { name: 'größe-2', root: empty.root, files: 0, bytes: 0, leftOut: [] },
    ])
    const onDisk = extract(bench, file)
    expect(Object.keys(onDisk).toSorted()).toEqual([
      ...['folders', 'folders/first', 'folders/first/a.txt', 'folders/first/d', 'folders/first/d/e'],
      ...['folders/first/d/e/f.txt', 'folders/first/l', 'folders/größe-2'],
      ...['workspace', 'workspace/a.txt', 'workspace/d', 'workspace/d/b.txt'],
      ...['workspace/folders', 'workspace/folders/x'],
    ])
    expect(onDisk['folders/first/a.txt']).toContain(digest('first'))
    expect(onDisk['workspace/a.txt']).toContain(digest('own'))
    // Only the name of the volume tells the guest that there are folders; a workspace cannot feign it.
    const volume = (of: string) => readFileSync(of).subarray(1088, 1104).toString('latin1')
    expect(volume(file)).toBe('caisson-folders\0')
    expect(volume((await bench.takeIn()).disk)).toBe('caisson-work\0\0\0\0')
  })

  it('is an empty file system for an empty directory [W.02]', async () => {
    using bench = new Bench()
    const { disk } = await bench.takeIn()
    expect(extract(bench, disk)).toEqual({})
  })

  it('agrees with its manifest about files that changed between scan and copy [W.02]', async () => {
    using bench = new Bench(treeOf({ grows: 'one', goes: 'x', 'd/swapped': 'x', kept: 'k' }))
    const scan = unwrap(await bench.scan())
    appendFileSync(bench.file('grows'), ' and more')
    rmSync(bench.file('goes'))
    rmSync(bench.file('d'), { recursive: true })
    mkdirSync(path.join(bench.home, 'outside'))
    writeFileSync(path.join(bench.home, 'outside/swapped'), 'secret')
    symlinkSync(path.join(bench.home, 'outside'), bench.file('d'))
    const disk = path.join(bench.home, 'disk')
    const { manifest } = unwrap(await buildDisk({ scan, file: disk }))
    expect(manifest.entries.get('grows')).toMatchObject({ sha256: digest('one and more') })
    expect([...manifest.entries.keys()]).toEqual(['d', 'grows', 'kept'])
    const onDisk = extract(bench, disk)
    expect(onDisk.grows).toContain(digest('one and more'))
    expect(Object.keys(onDisk)).toEqual(['d', 'grows', 'kept'])
  })

  it('drops set-uid and set-gid bits on the way in [W.02]', async () => {
    using bench = new Bench(treeOf({ tool: 'x' }))
    chmodSync(bench.file('tool'), 0o4755)
    const { manifest, disk } = await bench.takeIn()
    expect(extract(bench, disk).tool).toMatch(/^file 755/)
    expect(manifest.entries.get('tool')?.mode).toBe(0o4755)
  })

  it('refuses a workspace larger than the disk and leaves no file behind [V.06]', async () => {
    using bench = new Bench(treeOf({ big: Buffer.alloc(100_000) }))
    const scan = unwrap(await bench.scan())
    const file = path.join(bench.home, 'disk')
    const result = await buildDisk({ scan, file, diskBytes: 50_000 })
    expect(result).toMatchObject({ ok: false, error: { code: 'too_large' } })
    expect(() => statSync(file)).toThrow('ENOENT')
  })
})

describe('the manifest', () => {
  it('reads back what was written, and refuses any changed byte', async () => {
    using bench = new Bench(treeOf({ 'a/b': 'x', '.env': 's', link: '-> a' }))
    const { manifest } = await bench.takeIn()
    const file = path.join(bench.home, 'manifest.jsonl')
    const sha256 = await writeManifest(file, manifest)
    expect(unwrap(await readManifest(file, sha256))).toEqual(manifest)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    const text = readFileSync(file, 'utf8')
    for (const broken of [
      text.slice(0, -1),
      text.replace('"a/b"', '"../b"'),
      text.replace('"a"', '"link"'),
      text.split('\n').slice(1).join('\n'),
      '',
    ]) {
      writeFileSync(file, broken)
      expect(await readManifest(file)).toMatchObject({ ok: false, error: { code: 'damaged' } })
      expect(await readManifest(file, sha256)).toMatchObject({ ok: false, error: { code: 'damaged' } })
    }
  })
})
