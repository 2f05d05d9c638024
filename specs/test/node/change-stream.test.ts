import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ChangeEncoder, encodeChanges, type PathChange } from '#specs/node/change-encoder.ts'
import { ChangeStreamError, decodeChanges } from '#specs/node/change-stream.ts'
import { comparePaths, decodePath } from '#specs/node/path-text.ts'

interface Sample {
  entry: PathChange
  content?: Buffer
}

const name = fc
  .uint8Array({ minLength: 1, maxLength: 6 })
  .map((bytes) => decodePath(Buffer.from(bytes.map((byte) => (byte === 0 || byte === 0x2f ? 0x61 : byte)))))
  .filter((text) => text !== '.' && text !== '..')
const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join('/'))
const mode = fc.integer({ min: 0, max: 0o777 })
const sample: fc.Arbitrary<Sample> = fc.oneof(
  fc.record({ path, mode, content: fc.uint8Array({ maxLength: 200 }) }).map((it) => {
    const content = Buffer.from(it.content)
    return { entry: { kind: 'file' as const, path: it.path, mode: it.mode, size: content.length }, content }
  }),
  fc.record({ path, target: name }).map((it) => ({ entry: { kind: 'link' as const, ...it } })),
  fc.record({ path, mode }).map((it) => ({ entry: { kind: 'directory' as const, ...it } })),
  path.map((it) => ({ entry: { kind: 'deleted' as const, path: it } })),
)
const samples = fc
  .uniqueArray(sample, { maxLength: 12, selector: (it) => it.entry.path })
  .map((all) => all.sort((left, right) => comparePaths(left.entry.path, right.entry.path)))

/** Cuts `bytes` into chunks of the given sizes, round and round. */
async function* chunked(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  for (let at = 0, turn = 0; at < bytes.length; turn++) {
    const size = sizes[turn % sizes.length] ?? 1
    yield bytes.subarray(at, at + size)
    at += size
  }
}

async function gather<T>(source: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const one of source) all.push(one)
  return all
}

async function encode(all: readonly Sample[]): Promise<Buffer> {
  return Buffer.concat(await gather(encodeChanges(all)))
}

async function decode(source: AsyncIterable<Uint8Array>, readContent = true): Promise<Sample[]> {
  const found: Sample[] = []
  for await (const { entry, content } of decodeChanges(source)) {
    if (entry.kind === 'file' && readContent) {
      found.push({ entry, content: Buffer.concat(await gather(content)) })
    } else found.push({ entry })
  }
  return found
}

function frame(value: unknown): Buffer {
  const json = Buffer.from(JSON.stringify(value))
  const length = Buffer.alloc(4)
  length.writeUInt32BE(json.length)
  return Buffer.concat([length, json])
}
const end = (entries: number, contentBytes: number): Buffer => frame({ kind: 'end', entries, contentBytes })
const file = (of: string, size: number): Buffer => frame({ kind: 'file', path: of, mode: 0o644, size })
const refuse = (bytes: Buffer): Promise<Sample[]> => decode(chunked(bytes, [7]))

describe('the change stream', () => {
  it('gives back what went in, however the bytes are cut [W.02]', async () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 64 }), { minLength: 1, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(samples, sizes, async (all, cut) => {
        expect(await decode(chunked(await encode(all), cut))).toEqual(all)
      }),
      { numRuns: 200, seed: 1 },
    )
  })

  it('passes over content that nobody reads [W.02]', async () => {
    await fc.assert(
      fc.asyncProperty(samples, async (all) => {
        const entries = await decode(chunked(await encode(all), [5]), false)
        expect(entries).toEqual(all.map(({ entry }) => ({ entry })))
      }),
      { numRuns: 50, seed: 2 },
    )
  })

  it('carries content far larger than its chunks without change [W.02]', async () => {
    const large = Buffer.alloc(3_000_001, 'caisson')
    const chunks: Buffer[] = []
    const encoder = new ChangeEncoder(async (chunk) => void chunks.push(Buffer.from(chunk)))
    await encoder.entry({ kind: 'file', path: 'large', mode: 0o600, size: large.length })
    for (let at = 0; at < large.length; at += 700_000) await encoder.content(large.subarray(at, at + 700_000))
    await encoder.entry({ kind: 'deleted', path: 'other' })
    await encoder.end()
    const found = await decode(chunked(Buffer.concat(chunks), [65_536]))
    expect(found[0]?.content?.equals(large)).toBe(true)
    expect(found[1]?.entry.path).toBe('other')
  })

  it('ends in entries or a ChangeStreamError for any bytes, never in another way [W.02]', async () => {
    const damage = fc.record({ all: samples, at: fc.nat(), byte: fc.nat(255), cut: fc.boolean() })
    await fc.assert(
      fc.asyncProperty(damage, async ({ all, at, byte, cut }) => {
        const bytes = await encode(all)
        const place = at % bytes.length
        bytes[place] = byte
        const damaged = cut ? bytes.subarray(0, place) : bytes
        await decode(chunked(damaged, [3, 11])).catch((thrown: unknown) => {
          expect(thrown).toBeInstanceOf(ChangeStreamError)
        })
        if (cut) await expect(decode(chunked(damaged, [13]))).rejects.toBeInstanceOf(ChangeStreamError)
      }),
      { numRuns: 300, seed: 3 },
    )
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (bytes) => {
        await expect(refuse(Buffer.from(bytes))).rejects.toBeInstanceOf(ChangeStreamError)
      }),
      { numRuns: 200, seed: 4 },
    )
  })

  it.each<[string, Buffer]>([
    ['a path that leaves the workspace', Buffer.concat([file('../x', 0), end(1, 0)])],
    ['an absolute path', Buffer.concat([file('/x', 0), end(1, 0)])],
    ['a doubled path', Buffer.concat([file('x', 0), file('x', 0), end(2, 0)])],
    ['a path before its elder', Buffer.concat([file('b', 0), file('a', 0), end(2, 0)])],
    ['a child before its parent', Buffer.concat([file('a/b', 0), file('a', 0), end(2, 0)])],
    ['a second spelling of é', Buffer.concat([file('\udcc3\udca9', 0), end(1, 0)])],
    ['a surrogate that is no byte', Buffer.concat([file('\ud800', 0), end(1, 0)])],
    ['set-uid bits', Buffer.concat([frame({ kind: 'mode', path: 'x', mode: 0o4755 }), end(1, 0)])],
    ['an unknown field', Buffer.concat([frame({ kind: 'deleted', path: 'x', also: 1 }), end(1, 0)])],
    ['content that is cut', Buffer.concat([file('x', 10), Buffer.from('short')])],
    ['no end', file('x', 0)],
    ['a wrong count at the end', Buffer.concat([file('x', 0), end(2, 0)])],
    ['bytes after the end', Buffer.concat([end(0, 0), Buffer.from('x')])],
    ['a header beyond its bound', Buffer.from([0x7f, 0xff, 0xff, 0xff, 0x7b])],
    ['content beyond its bound', file('x', 2 ** 40)],
  ])('refuses %s [W.02]', async (_what, bytes) => {
    await expect(refuse(bytes)).rejects.toBeInstanceOf(ChangeStreamError)
  })

  it('refuses to encode what the decoder would refuse [W.02]', async () => {
    const encoder = new ChangeEncoder(async () => undefined)
    await encoder.entry({ kind: 'file', path: 'b', mode: 0, size: 3 })
    expect(() => encoder.entry({ kind: 'deleted', path: 'c' })).toThrow('3 bytes short')
    expect(() => encoder.content(Buffer.from('1234'))).toThrow('too long')
    await encoder.content(Buffer.from('123'))
    expect(() => encoder.entry({ kind: 'deleted', path: 'a' })).toThrow('out of order')
  })

  it('keeps to the bounds that its reader sets [W.02]', async () => {
    const bytes = await encode([
      { entry: { kind: 'deleted', path: 'a' } },
      { entry: { kind: 'deleted', path: 'b' } },
    ])
    const bounded = decodeChanges(chunked(bytes, [9]), { maxEntries: 1, maxContentBytes: 0 })
    await expect(gather(bounded)).rejects.toThrow('more than 1 entries')
    const bounds = { maxEntries: 9, maxContentBytes: 0, maxHeaderBytes: 40 }
    await expect(gather(decodeChanges(chunked(bytes, [9]), bounds))).rejects.toThrow('more than 40 bytes')
  })
})
