import { open } from 'node:fs/promises'
import path from 'node:path'
import { performance } from 'node:perf_hooks'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findContent, readMap } from '../../archive/holes.ts'
import { decodeSparse, encodeSparse, findExtents } from '../../archive/sparse.ts'

const MIB = 1024 ** 2
const block = 64 * 1024

/** Content at these positions, holes between them. */
async function sparseFile(bytes: number, content: ReadonlyMap<number, Buffer>): Promise<string> {
  const file = path.join(await temporaryFolder('sparse'), 'disk')
  await using handle = await open(file, 'wx')
  await handle.truncate(bytes)
  for (const [at, piece] of content) await handle.write(piece, 0, piece.length, at)
  return file
}

it('content of a large disk is found without reading its holes, and comes back byte by byte', async () => {
  const size = 64 * 1024 * MIB + 3
  const content = new Map([
    [5, Buffer.from('first')],
    [block, Buffer.alloc(2 * block, 7)],
    [20 * 1024 * MIB - 2, Buffer.from('over the edge of a block')],
    [40 * 1024 * MIB, Buffer.alloc(block)],
    [size - 3, Buffer.from('end')],
  ])
  const file = await sparseFile(size, content)
  const began = performance.now()
  const extents = await findExtents(file)
  // 64 GiB are read in a minute on a fast machine.
  expect(performance.now() - began).toBeLessThan(5_000)
  expect(extents).toEqual([
    { at: 0, bytes: 3 * block },
    { at: 20 * 1024 * MIB - block, bytes: 2 * block },
    { at: size - 3, bytes: 3 },
  ])
  const copy = await sparseFile(0, new Map())
  await using from = await open(file, 'r')
  await using to = await open(copy, 'r+')
  await decodeSparse(encodeSparse(from, extents, size), to, size)
  for (const [at, piece] of content) {
    const read = Buffer.alloc(piece.length)
    await to.read(read, 0, piece.length, at)
    expect(read.equals(piece), `at ${at}`).toBe(true)
  }
})

it('a disk is the same whether its holes are known or read', async () => {
  const content = new Map([
    [MIB + 9, Buffer.from('one')],
    [90 * MIB, Buffer.from('two')],
  ])
  const file = await sparseFile(100 * MIB, content)
  expect(await findContent(file, 100 * MIB)).toHaveLength(2)
  const withMap = await findExtents(file)
  const { PATH = '' } = process.env
  process.env.PATH = ''
  try {
    expect(await findContent(file, 100 * MIB)).toBe(undefined)
    expect(await findExtents(file)).toEqual(withMap)
  } finally {
    process.env.PATH = PATH
  }
  // What is known to be zeros behind a position is left out.
  expect(await findExtents(file, 50 * MIB)).toEqual(withMap.slice(0, 1))
})

it.each([
  ['nothing', Buffer.alloc(0), 'more'],
  ['no archive', Buffer.alloc(512, 'a'), undefined],
  ['an archive without a map', Buffer.alloc(512, 0), undefined],
])('%s has no map of content', (_, bytes, found) => {
  expect(readMap(bytes, 10)).toBe(found)
})
