import { readdirSync, readFileSync, statSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodeChanges, type PathChange } from '#specs/node/change-encoder.ts'
import { readChangeSet } from '../../../workspace/change-set.ts'
import { receiveChanges } from '../../../workspace/receive/receive.ts'
import { reviewChanges } from '../../../workspace/review/review.ts'
import { Bench, changesBetween, digest, snapshot, treeOf, unwrap } from '../support.ts'

const base = treeOf({ 'a.txt': 'a', 'dir/in.txt': 'in', 'dir/sub/deep': 'd', link: '-> dir', 'run.sh': 'x' })

async function* chunksOf(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

async function bytesOf(changes: Parameters<typeof encodeChanges>[0]): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of encodeChanges(changes)) chunks.push(Buffer.from(chunk))
  return Buffer.concat(chunks)
}

const file = (path: string, content = 'x') => ({
  entry: { kind: 'file', path, mode: 0o644, size: content.length } satisfies PathChange,
  content: Buffer.from(content),
})
const bare = (entry: PathChange) => ({ entry })

describe('receiving a change set', () => {
  it('keeps entries and contents, readable by the owner alone, and reads them back [W.01]', async () => {
    using bench = new Bench(base)
    const { manifest } = await bench.takeIn()
    const large = Buffer.alloc(3 * 1024 * 1024 + 5, 'z')
    const after = treeOf({
      'a.txt': 'new',
      'dir/sub/deep': 'd',
      'big.bin': large,
      link: '-> ../x',
      'run.sh': { kind: 'file', mode: 0o755, content: 'x' },
    })
    const received = unwrap(await bench.receive(manifest, changesBetween(base, after)))
    expect([...received.entries.values()].map(({ kind, path }) => `${kind} ${path}`)).toEqual([
      'file a.txt',
      'file big.bin',
      'deleted dir/in.txt',
      'link link',
      'mode run.sh',
    ])
    expect(received.entries.get('big.bin')).toMatchObject({ sha256: digest(large), offset: 3 })
    expect(unwrap(await readChangeSet(bench.run, received.sha256))).toEqual(received)
    for (const name of readdirSync(bench.run))
      expect(statSync(`${bench.run}/${name}`).mode & 0o777).toBe(0o600)
  })

  it('keeps of a file that is sent with the content that went in its mode alone, or nothing [W.01]', async () => {
    const large = Buffer.alloc(2 * 1024 * 1024 + 7, 'l')
    const before = treeOf({ 'a.txt': 'a', 'b.bin': large, 'c.txt': 'c', 'run.sh': 'x' })
    using bench = new Bench(before)
    const { manifest } = await bench.takeIn()
    const sent = [file('a.txt', 'a'), file('b.bin', large.toString()), file('c.txt', 'C'), file('d.txt', 'a')]
    const script = {
      entry: { kind: 'file', path: 'run.sh', mode: 0o755, size: 1 },
      content: Buffer.from('x'),
    }
    const changes = [...sent, script as (typeof sent)[number]]
    const received = unwrap(await bench.receive(manifest, changes))
    expect([...received.entries.values()]).toMatchObject([
      { kind: 'file', path: 'c.txt', offset: 0, sha256: digest(Buffer.from('C')) },
      { kind: 'file', path: 'd.txt', offset: 1 },
      { kind: 'mode', path: 'run.sh', mode: 0o755 },
    ])
    expect(received.contentBytes).toBe(2)
    expect(readFileSync(received.paths.contents, 'utf8')).toBe('Ca')
    expect(unwrap(await readChangeSet(bench.run, received.sha256))).toEqual(received)
  })

  it.each<[string, { entry: PathChange; content?: Buffer }[]]>([
    ['a path below a link', [file('link/evil')]],
    ['a path below a file', [file('a.txt/evil')]],
    [
      'a path below a link of the same change set',
      [bare({ kind: 'link', path: 'new', target: '/etc' }), file('new/passwd')],
    ],
    ['a path below what it deletes', [bare({ kind: 'deleted', path: 'dir' }), file('dir/again')]],
    ['a path below a missing directory', [file('nowhere/evil')]],
    [
      'a path far below a new directory',
      [bare({ kind: 'directory', path: 'n', mode: 0o755 }), file('n/m/evil')],
    ],
    [
      'an old path below a link that became a directory',
      [
        bare({ kind: 'directory', path: 'link', mode: 0o755 }),
        bare({ kind: 'deleted', path: 'link/in.txt' }),
      ],
    ],
    ['a deletion of what never went in', [bare({ kind: 'deleted', path: 'ghost' })]],
    ['a mode for what never went in', [bare({ kind: 'mode', path: 'ghost', mode: 0o777 })]],
    ['a mode for a link', [bare({ kind: 'mode', path: 'link', mode: 0o777 })]],
    ['a name longer than any file system takes', [file('n'.repeat(256))]],
  ])('refuses %s [W.02]', async (_, changes) => {
    using bench = new Bench(base)
    const { manifest } = await bench.takeIn()
    expect(await bench.receive(manifest, changes)).toMatchObject({
      ok: false,
      error: { code: 'invalid_changes' },
    })
    expect(readdirSync(bench.run)).toEqual([])
  })

  it('refuses more entries or bytes than allowed [S0.07]', async () => {
    using bench = new Bench(base)
    const { manifest } = await bench.takeIn()
    const source = () => encodeChanges([file('x1', '12345'), file('x2')])
    for (const bounds of [{ maxEntries: 1 }, { maxContentBytes: 5 }]) {
      const result = await receiveChanges({ source: source(), manifest, runDirectory: bench.run, bounds })
      expect(result).toMatchObject({ ok: false, error: { code: 'invalid_changes' } })
    }
  })

  it('stops before the disk of the host is full', async () => {
    using bench = new Bench(base)
    const { manifest } = await bench.takeIn()
    const source = encodeChanges([file('x1')])
    const result = await receiveChanges({
      source,
      manifest,
      runDirectory: bench.run,
      spareBytes: Number.MAX_SAFE_INTEGER,
    })
    expect(result).toMatchObject({ ok: false, error: { code: 'no_space' } })
    expect(readdirSync(bench.run)).toEqual([])
  })

  it('says of a stream cut at any byte that it is cut, and keeps nothing of it [W.01]', async () => {
    using bench = new Bench(base)
    const { manifest } = await bench.takeIn()
    const whole = await bytesOf([file('a.txt', 'changed'), bare({ kind: 'deleted', path: 'dir' })])
    for (let length = 0; length < whole.length; length += 3) {
      const source = chunksOf(whole.subarray(0, length), 64)
      const result = await receiveChanges({ source, manifest, runDirectory: bench.run, spareBytes: 0 })
      expect(result).toMatchObject({ ok: false, error: { code: 'cut_short' } })
    }
    const trailing = chunksOf(Buffer.concat([whole, Buffer.from('x')]), 64)
    const result = await receiveChanges({
      source: trailing,
      manifest,
      runDirectory: bench.run,
      spareBytes: 0,
    })
    expect(result).toMatchObject({ ok: false, error: { code: 'invalid_changes' } })
    expect(readdirSync(bench.run)).toEqual([])
  })

  it('never throws and never touches the workspace, whatever bytes come [C.02]', async () => {
    using bench = new Bench(base)
    const { manifest } = await bench.takeIn()
    const before = snapshot(bench.root)
    const good = await bytesOf([
      file('a.txt', 'changed'),
      bare({ kind: 'directory', path: 'n', mode: 0o755 }),
      file('n/x'),
    ])
    const flips = fc.array(fc.tuple(fc.nat(good.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(flips, fc.integer({ min: 1, max: 50 }), async (changes, chunk) => {
        const bytes = Buffer.from(good)
        for (const [at, value] of changes) bytes[at] = value
        const source = chunksOf(bytes, chunk)
        const received = await receiveChanges({ source, manifest, runDirectory: bench.run, spareBytes: 0 })
        if (!received.ok) expect(['invalid_changes', 'cut_short']).toContain(received.error.code)
        else unwrap(await reviewChanges(manifest, received.value))[Symbol.dispose]()
      }),
      { seed: 20, numRuns: 150 },
    )
    expect(snapshot(bench.root)).toEqual(before)
  })
})
