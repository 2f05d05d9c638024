import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { Transform, Writable } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { PathChange } from '#specs/node/change-encoder.ts'
import { type ChangeStreamError, decodeChanges } from '#specs/node/change-stream.ts'
import { perTier } from '#specs/testing/tier.ts'
import { type CollectOptions, collectChanges } from '../../workspace/collect.ts'
import { applyChanges, operations, perform, snapshot, temporaryFolder } from '../support/trees.ts'

/** Both trees, a copy of the base to apply to, and no overlay. */
function makeTrees(root: string): { merged: string; base: string; copy: string; upper: string } {
  const trees = { merged: join(root, 'merged'), base: join(root, 'base'), copy: join(root, 'copy') }
  for (const path of Object.values(trees)) mkdirSync(path)
  return { ...trees, upper: join(root, 'no-upper') }
}

/** As a port is: what was written is somewhere else when the writer hears that it is done. */
const copyingStream = (): Transform =>
  new Transform({ transform: (chunk: Buffer, _encoding, done) => done(null, Buffer.from(chunk)) })

/** With all modes, which Node's cpSync loses for directories. */
const copyTree = (from: string, to: string): void => void execFileSync('cp', ['-a', `${from}/.`, to])

async function entriesOf(options: CollectOptions): Promise<PathChange[]> {
  const stream = copyingStream()
  const collecting = collectChanges(stream, options).then((result) => {
    stream.end()
    return result
  })
  const entries: PathChange[] = []
  for await (const { entry } of decodeChanges(stream)) entries.push(entry)
  expect(await collecting).toMatchObject({ ok: true, value: { entries: entries.length } })
  return entries
}

describe('collecting the change set', () => {
  it('gives the merged tree when it is applied to the base, for any work [W.02]', async () => {
    await fc.assert(
      fc.asyncProperty(operations, operations, async (before, work) => {
        using folder = temporaryFolder()
        const trees = makeTrees(folder.path)
        perform(trees.base, before)
        copyTree(trees.base, trees.merged)
        copyTree(trees.base, trees.copy)
        perform(trees.merged, work)
        const stream = copyingStream()
        const collecting = collectChanges(stream, trees).finally(() => stream.end())
        expect(await applyChanges(trees.copy, stream)).toEqual([])
        expect((await collecting).ok).toBe(true)
        expect(snapshot(trees.copy)).toEqual(snapshot(trees.merged))
      }),
      { numRuns: perTier(40, 120), seed: 5 },
    )
  })

  it('names what changed and nothing else [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    mkdirSync(join(trees.base, 'src/deep'), { recursive: true })
    mkdirSync(join(trees.base, 'swap'))
    for (const name of [
      'same',
      'grown',
      'flipped',
      'chmod',
      'gone',
      'src/deep/x',
      'swap/inner',
      'to-directory',
    ]) {
      writeFileSync(join(trees.base, name), `content of ${name}`)
    }
    symlinkSync('same', join(trees.base, 'link'))
    copyTree(trees.base, trees.merged)
    appendFileSync(join(trees.merged, 'grown'), '!')
    writeFileSync(join(trees.merged, 'flipped'), 'CONTENT of flipped')
    chmodSync(join(trees.merged, 'chmod'), 0o755)
    rmSync(join(trees.merged, 'gone'))
    renameSync(join(trees.merged, 'src'), join(trees.merged, 'source'))
    rmSync(join(trees.merged, 'link'))
    symlinkSync('/etc/passwd', join(trees.merged, 'link'))
    rmSync(join(trees.merged, 'swap'), { recursive: true })
    writeFileSync(join(trees.merged, 'swap'), 'now a file')
    rmSync(join(trees.merged, 'to-directory'))
    mkdirSync(join(trees.merged, 'to-directory/empty'), { recursive: true })
    const entries = await entriesOf(trees)
    expect(entries.map((entry) => `${entry.kind} ${entry.path}`)).toEqual([
      'mode chmod',
      'file flipped',
      'deleted gone',
      'file grown',
      'link link',
      'directory source',
      'directory source/deep',
      'file source/deep/x',
      'deleted src',
      'file swap',
      'directory to-directory',
      'directory to-directory/empty',
    ])
    expect(entries.find(({ kind }) => kind === 'link')).toMatchObject({ target: '/etc/passwd' })
  })

  it('takes a missing base for an empty one [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    writeFileSync(join(trees.merged, 'new'), '')
    const entries = await entriesOf({ ...trees, base: join(folder.path, 'nothing') })
    expect(entries).toMatchObject([{ kind: 'file', path: 'new', size: 0 }])
  })

  it('passes over names that the overlay never touched, and over no others [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = { ...makeTrees(folder.path), upper: join(folder.path, 'upper') }
    mkdirSync(join(trees.upper, 'touched'), { recursive: true })
    for (const name of ['touched', 'untouched']) {
      mkdirSync(join(trees.base, name))
      mkdirSync(join(trees.merged, name))
      writeFileSync(join(trees.base, name, 'f'), 'a')
      writeFileSync(join(trees.merged, name, 'f'), 'b')
    }
    writeFileSync(join(trees.merged, 'new'), 'new')
    writeFileSync(join(trees.base, 'old'), 'old')
    const entries = await entriesOf(trees)
    expect(entries.map(({ path }) => path)).toEqual(['new', 'old', 'touched/f'])
  })

  it('sends a small file that was written to without asking whether it differs, unless there is no room [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = { ...makeTrees(folder.path), upper: join(folder.path, 'upper') }
    mkdirSync(join(trees.base, 'sub'))
    for (const name of ['sub/written', 'sub/not', 'top']) writeFileSync(join(trees.base, name), 'same')
    writeFileSync(join(trees.base, 'sub/large'), Buffer.alloc(70_000))
    copyTree(trees.base, trees.merged)
    copyTree(trees.base, trees.upper)
    rmSync(join(trees.upper, 'sub/not'))
    expect((await entriesOf(trees)).map(({ path }) => path)).toEqual(['sub/written', 'top'])
    expect(await entriesOf({ ...trees, maxContentBytes: 3 })).toEqual([])
  })

  it('names FIFOs, sockets and what is nested too deep, and does not hang on them [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    execFileSync('mkfifo', [join(trees.merged, 'pipe')])
    // One name at a time: the whole path is longer than the system takes at once.
    const shell = 'cd "$0"; for i in $(seq 300); do mkdir d; cd d; done; echo x > bottom'
    execFileSync('sh', ['-c', shell, trees.merged])
    const entries = await entriesOf(trees)
    const left = entries.filter(({ kind }) => kind === 'unsupported')
    expect(left).toHaveLength(2)
    expect(left[0]).toMatchObject({ reason: 'it is nested too deep' })
    expect(left[1]).toMatchObject({ path: 'pipe', reason: 'it is a device, FIFO or socket' })
  })

  it('keeps names that are not UTF-8 [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    const bytes = Buffer.concat([Buffer.from(`${trees.merged}/caf`), Buffer.from([0xe9])])
    writeFileSync(bytes, 'latin')
    const entries = await entriesOf(trees)
    expect(entries).toMatchObject([{ kind: 'file', path: 'caf\udce9', size: 5 }])
  })

  it('names a file that the change set has no space for, and continues [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    writeFileSync(join(trees.merged, 'a'), 'x'.repeat(10))
    writeFileSync(join(trees.merged, 'huge'), '')
    truncateSync(join(trees.merged, 'huge'), 2 ** 40)
    writeFileSync(join(trees.merged, 'z'), 'x')
    const entries = await entriesOf({ ...trees, maxContentBytes: 100 })
    expect(entries.map(({ kind }) => kind)).toEqual(['file', 'unsupported', 'file'])
  })

  it('stops at its bound of entries, when cancelled and when the receiver goes away [T.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    for (let at = 0; at < 30; at++) writeFileSync(join(trees.merged, `f${at}`), Buffer.alloc(60_000, at))
    const sink = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() })
    const many = await collectChanges(sink(), { ...trees, maxEntries: 3 })
    expect(many).toMatchObject({ ok: false, error: { code: 'limit_reached' } })
    const slow = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, done) => void setTimeout(done, 20),
    })
    const cancelled = await collectChanges(slow, { ...trees, signal: AbortSignal.abort() })
    expect(cancelled).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    const gone = new Writable({ highWaterMark: 1, write: () => undefined })
    setTimeout(() => gone.destroy(), 20)
    const lost = await collectChanges(gone, trees)
    expect(lost).toMatchObject({ ok: false, error: { code: 'unavailable' } })
  })

  it('does not end the stream when a large file changed while it was sent [W.02]', async () => {
    using folder = temporaryFolder()
    const trees = makeTrees(folder.path)
    const large = join(trees.merged, 'large')
    writeFileSync(large, Buffer.alloc(4 * 1024 * 1024, 'x'))
    const chunks: Buffer[] = []
    const sink = new Writable({
      highWaterMark: 1,
      write(chunk: Buffer, _encoding, done) {
        if (chunks.length === 1) truncateSync(large, 1000)
        chunks.push(Buffer.from(chunk))
        setImmediate(done)
      },
    })
    const result = await collectChanges(sink, trees)
    expect(result).toMatchObject({ ok: false, error: { code: 'unavailable', retryable: true } })
    const receive = async (): Promise<void> => {
      for await (const _ of decodeChanges(asyncOf(chunks)));
    }
    await expect(receive()).rejects.toMatchObject({
      name: 'ChangeStreamError' satisfies ChangeStreamError['name'],
    })
    expect(existsSync(large) && readFileSync(large)).toHaveLength(1000)
  })
})

async function* asyncOf<T>(all: readonly T[]): AsyncGenerator<T> {
  yield* all
}
