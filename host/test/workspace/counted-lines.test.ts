import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { limits } from '#specs/protocol/limits.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { readChangeSet } from '../../workspace/change-set.ts'
import { readCountedLines } from '../../workspace/counted-lines.ts'
import { readManifest } from '../../workspace/manifest.ts'

const count = (line: string) => ({ end: line, count: Number(line) })

it('lines are read only if they are as many as the last one says [R.09]', () => {
  const read = (text: string) => readCountedLines(Buffer.from(text), count)
  expect(read('a\nb\n2\n')).toEqual({ end: '2', lines: ['a', 'b'] })
  expect(read('0\n')).toEqual({ end: '0', lines: [] })
  for (const text of ['a\n2\n', 'a\nb\nc\n2\n']) expect(read(text)).toBe('lines are missing or doubled')
  for (const text of ['', 'a\nb\n2']) expect(read(text)).toBe('its last line is not complete')
})

it('a manifest and changes of millions of entries are refused for their number, before they are read [R.09]', async () => {
  const folder = await temporaryFolder('entries')
  const file = path.join(folder, 'manifest.jsonl')
  const entries = limits.workspaceMaxEntries + 1
  const end = (numbers: object) => `{}\n${JSON.stringify({ end: true, ...numbers })}\n`
  await writeFile(file, end({ entries, leftOut: 0, bytes: 0 }))
  const many = new RegExp(
    `has ${entries} files and directories, expected at most ${limits.workspaceMaxEntries}`,
  )
  expect(await readManifest(file)).toMatchObject({
    error: { code: 'damaged', message: expect.stringMatching(many) },
  })
  await writeFile(file, end({ entries: 1, leftOut: 9, bytes: 0 }))
  expect(await readManifest(file, undefined, 8)).toMatchObject({
    error: { message: expect.stringContaining('9 excluded paths, expected at most 8') },
  })
  const changes = limits.changeMaxEntries + 1
  await writeFile(path.join(folder, 'changes.jsonl'), end({ entries: changes, contentBytes: 0 }))
  expect(await readChangeSet(folder)).toMatchObject({
    error: { code: 'damaged', message: expect.stringContaining(`${changes} changes, expected at most`) },
  })
})
