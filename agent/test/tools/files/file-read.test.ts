import { Buffer } from 'node:buffer'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createReadFile } from '../../../tools/files/file-read.ts'
import { call, callGood } from '../../support/tools.ts'
import { temporaryFolder } from '../../support/trees.ts'

describe('read_file', () => {
  it('pages through a file from line 1, saying how many lines there are [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(
      join(folder.path, 'f'),
      Array.from({ length: 2500 }, (_, at) => `line ${at + 1}\n`).join(''),
    )
    const read = createReadFile({ root: folder.path })
    const first = await callGood(read, { path: 'f' })
    expect(first).toMatchObject({
      offset: 1,
      lines: 1000,
      totalLines: 2500,
      nextOffset: 1001,
      lossy: false,
      notes: [],
    })
    const last = await callGood(read, { path: 'f', offset: 2499, limit: 50 })
    expect(last).toMatchObject({ content: 'line 2499\nline 2500', lines: 2, nextOffset: null })
    const beyond = await call(read, { path: 'f', offset: 2501 })
    expect(beyond).toMatchObject({ ok: false, error: { code: 'invalid_input' } })
  })

  it('gives every line once when its pages are put together, for any text [S1.04]', async () => {
    using folder = temporaryFolder()
    const read = createReadFile({ root: folder.path })
    const line = fc.string({ unit: fc.constantFrom('a', 'é', '😀', ' ', '\t'), maxLength: 30 })
    await fc.assert(
      fc.asyncProperty(
        fc.array(line, { maxLength: 30 }),
        fc.boolean(),
        fc.integer({ min: 1, max: 7 }),
        async (lines, ends, limit) => {
          const text = lines.join('\n') + (ends && lines.length > 0 ? '\n' : '')
          writeFileSync(join(folder.path, 'f'), text)
          const found: string[] = []
          for (let offset: number | null = 1; offset !== null; ) {
            const page: { content: string; lines: number; nextOffset: number | null } = await callGood(read, {
              path: 'f',
              offset,
              limit,
            })
            if (page.lines > 0) found.push(page.content)
            offset = page.nextOffset
          }
          expect(found.join('\n')).toBe(text.replace(/\n$/, ''))
        },
      ),
      { numRuns: 100, seed: 6 },
    )
  })

  it('names a binary file with its size instead of dumping it [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'b'), Buffer.from([0x7f, 0x45, 0x4c, 0x46, 0, 1, 2]))
    const result = await call(createReadFile({ root: folder.path }), { path: 'b' })
    expect(result).toMatchObject({ ok: false, error: { code: 'binary_file' } })
    expect(result.ok || result.error.message).toContain('7 bytes')
  })

  it('refuses 200 MB of zeroes at once, without holding them [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'sparse'), '')
    truncateSync(join(folder.path, 'sparse'), 200 * 1024 * 1024)
    const result = await call(createReadFile({ root: folder.path }), { path: 'sparse' })
    expect(result).toMatchObject({ ok: false, error: { code: 'binary_file' } })
  })

  it('refuses a page with zeroes far into 200 MB of a file that begins as text [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'sparse'), `${'text\n'.repeat(5000)}`)
    truncateSync(join(folder.path, 'sparse'), 200 * 1024 * 1024)
    const read = createReadFile({ root: folder.path })
    expect(await callGood(read, { path: 'sparse', limit: 10 })).toMatchObject({ lines: 10, totalLines: 5001 })
    expect(await call(read, { path: 'sparse', offset: 5001 })).toMatchObject({
      ok: false,
      error: { code: 'binary_file' },
    })
  })

  it('tells of CR LF, a byte order mark, a missing last newline and bytes that are not UTF-8 [S1.04]', async () => {
    using folder = temporaryFolder()
    const write = (name: string, content: string | Buffer): void =>
      writeFileSync(join(folder.path, name), content)
    write('crlf', '\ufeffa\r\nb\r\n')
    write('open', 'a\nb')
    write('latin', Buffer.from([0x63, 0x61, 0x66, 0xe9, 0x0a]))
    const read = createReadFile({ root: folder.path })
    expect(await callGood(read, { path: 'crlf' })).toMatchObject({
      content: 'a\nb',
      notes: ['lines end in CR LF', 'begins with a byte order mark'],
    })
    expect(await callGood(read, { path: 'open' })).toMatchObject({
      totalLines: 2,
      notes: ['no newline at the end of the file'],
    })
    expect(await callGood(read, { path: 'latin' })).toMatchObject({ content: 'caf\ufffd', lossy: true })
  })

  it('reads an empty file as no lines, and renders it as such [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'empty'), '')
    const read = createReadFile({ root: folder.path })
    const value = await callGood(read, { path: 'empty' })
    expect(value).toMatchObject({ content: '', lines: 0, totalLines: 0, nextOffset: null, sizeBytes: 0 })
    expect(read.render?.(value)).toBe('[empty: empty file]\n')
  })

  it('cuts a huge line and continues after it [S1.04]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'f'), `short\n${'ä'.repeat(1_000_000)}\nafter\n`)
    const read = createReadFile({ root: folder.path })
    const first = await callGood(read, { path: 'f' })
    expect(first).toMatchObject({ content: 'short', lines: 1, totalLines: 3, nextOffset: 2 })
    const second = await callGood(read, { path: 'f', offset: 2 })
    expect(second).toMatchObject({
      lines: 1,
      nextOffset: 3,
      lossy: false,
      notes: ['cut because too long: line 2'],
    })
    expect(second.content).toHaveLength(2_001)
    expect(await callGood(read, { path: 'f', offset: 3 })).toMatchObject({
      content: 'after',
      nextOffset: null,
    })
  })

  it('says what to do about a directory and a missing file [S1.09]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd'))
    const read = createReadFile({ root: folder.path })
    expect(await call(read, { path: 'd' })).toMatchObject({
      ok: false,
      error: { code: 'not_a_file', message: expect.stringContaining('list_files') },
    })
    expect(await call(read, { path: 'none' })).toMatchObject({
      ok: false,
      error: { code: 'not_found', message: expect.stringContaining('search_files') },
    })
  })
})
