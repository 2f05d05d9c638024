import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ChangeEncoder, type PathChange } from '#specs/node/change-encoder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { collectChanges } from '../../workspace/collect.ts'
import { writeChanges } from '../../workspace/write-changes.ts'
import { operations, perform, snapshot, temporaryFolder } from '../support/trees.ts'

const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }

/** The bytes of a change set with these entries. */
async function streamOf(...entries: readonly (readonly [PathChange, string?])[]): Promise<Buffer> {
  const chunks: Buffer[] = []
  const encoder = new ChangeEncoder(async (chunk) => void chunks.push(Buffer.from(chunk)))
  for (const [entry, content] of entries)
    await encoder.entry(entry, content === undefined ? undefined : Buffer.from(content))
  await encoder.end()
  return Buffer.concat(chunks)
}

async function* piecesOf(bytes: Buffer, size = 7): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

const file = (path: string, content: string, mode = 0o644) =>
  [{ kind: 'file', path, mode, size: Buffer.byteLength(content) }, content] as const

describe('changes of another VM', () => {
  it('make a tree what their sender had, whatever was done there [A.07]', async () => {
    await fc.assert(
      fc.asyncProperty(operations, async (work) => {
        using folder = temporaryFolder()
        const [before, after, target] = ['before', 'after', 'target'].map((name) => join(folder.path, name))
        if (before === undefined || after === undefined || target === undefined) return
        mkdirSync(before)
        perform(before, work.slice(0, work.length / 2))
        for (const copy of [after, target]) execFileSync('cp', ['-a', before, copy])
        perform(after, work.slice(work.length / 2))
        const sink = new PassThrough()
        const written = writeChanges(sink, target, owner)
        const collected = await collectChanges(sink, {
          merged: after,
          base: before,
          upper: join(folder.path, 'none'),
        })
        sink.end()
        expect(collected.ok).toBe(true)
        expect(await written).toEqual([])
        expect(snapshot(target)).toEqual(snapshot(after))
      }),
      { numRuns: perTier(25, 500) },
    )
  })

  it('never follow a link that the tree has, nor leave the tree [A.07 S1.04]', async () => {
    using folder = temporaryFolder()
    const [root, outside] = [join(folder.path, 'root'), join(folder.path, 'outside')]
    for (const made of [root, outside]) mkdirSync(made)
    writeFileSync(join(outside, 'kept'), 'kept')
    symlinkSync(outside, join(root, 'folder'))
    symlinkSync(join(outside, 'kept'), join(root, 'link'))
    const bytes = await streamOf(
      [{ kind: 'deleted', path: 'folder/kept' }],
      file('folder/new', 'x'),
      file('link', 'replaced'),
      [{ kind: 'link', path: 'out', target: '../outside/kept' }],
    )
    const leftOut = await writeChanges(piecesOf(bytes), root, owner)
    expect(leftOut.map(({ path }) => path)).toEqual(['folder/kept', 'folder/new'])
    expect(readFileSync(join(outside, 'kept'), 'utf8')).toBe('kept')
    expect(readdirSync(outside)).toEqual(['kept'])
    expect(snapshot(root)).toMatchObject({
      link: expect.stringMatching(/^file 644/),
      out: 'link ../outside/kept',
    })
  })

  it('leave out a path that cannot be written, and continue; a cut stream is an error [A.07]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'plain'), 'x')
    chmodSync(join(folder.path, 'plain'), 0o644)
    const bytes = await streamOf(
      file('a', 'one'),
      [{ kind: 'mode', path: 'missing', mode: 0o600 }],
      file('plain/below', 'two'),
      [{ kind: 'unsupported', path: 'socket', reason: 'it is a socket' }],
      file('z', 'three', 0o755),
    )
    const leftOut = await writeChanges(piecesOf(bytes), folder.path, owner)
    expect(leftOut.map(({ path }) => path)).toEqual(['missing', 'plain/below', 'socket'])
    expect(readFileSync(join(folder.path, 'z'), 'utf8')).toBe('three')
    await expect(writeChanges(piecesOf(bytes.subarray(0, -9)), folder.path, owner)).rejects.toThrow('cut')
    const cut = await streamOf(file('cut', 'a content of some length'))
    await expect(writeChanges(piecesOf(cut.subarray(0, 70)), folder.path, owner)).rejects.toThrow()
    expect(existsSync(join(folder.path, 'cut'))).toBe(false)
    expect(readdirSync(folder.path).filter((name) => name.startsWith('.caisson-'))).toEqual([])
  })
})
