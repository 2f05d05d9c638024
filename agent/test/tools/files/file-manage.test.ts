import { execFileSync } from 'node:child_process'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createListFiles } from '../../../tools/files/file-list.ts'
import { createDeleteFile, createMoveFile } from '../../../tools/files/file-manage.ts'
import { call, callGood, quietContext } from '../../support/tools.ts'
import { snapshot, temporaryFolder } from '../../support/trees.ts'

describe('list_files', () => {
  it('gives types and sizes down to its depth, and says when there is more [S1.04]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd/e/f'), { recursive: true })
    writeFileSync(join(folder.path, 'd/e/f/deep'), 'x')
    writeFileSync(join(folder.path, 'a.txt'), '123')
    symlinkSync('/etc', join(folder.path, 'link'))
    const list = createListFiles({ root: folder.path })
    const value = await callGood(list, { path: '.', depth: 2 })
    expect(value).toMatchObject({
      path: '.',
      truncated: true,
      entries: [
        { path: 'a.txt', type: 'file', sizeBytes: 3 },
        { path: 'd', type: 'directory' },
        { path: 'd/e', type: 'directory' },
        { path: 'link', type: 'link' },
      ],
    })
    expect(list.render?.(value)).toBe(
      '[.: 4 entries; there is more: list a directory below, or raise depth or limit]\na.txt (3 bytes)\nd/\nd/e/\nlink (link)',
    )
    expect(await callGood(list, { path: 'd', depth: 3 })).toMatchObject({ truncated: false })
  })

  it('returns no more than its limit, the nearest first, and does not enter .git [T.02]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'a/b'), { recursive: true })
    mkdirSync(join(folder.path, '.git/objects'), { recursive: true })
    for (let at = 0; at < 20; at++) writeFileSync(join(folder.path, 'a/b', `f${at}`), '')
    const list = createListFiles({ root: folder.path })
    const value = await callGood(list, { limit: 5 })
    expect(value.truncated).toBe(true)
    expect(value.entries.map(({ path }) => path)).toEqual(['.git', 'a', 'a/b', 'a/b/f0', 'a/b/f1'])
    expect((await callGood(list, { path: '.git' })).entries).toMatchObject([{ path: '.git/objects' }])
  })

  it('says which directories it did not enter [S1.04]', async () => {
    using folder = temporaryFolder()
    for (const below of ['.git/objects', 'web/node_modules/x'])
      mkdirSync(join(folder.path, below), { recursive: true })
    const list = createListFiles({ root: folder.path })
    const value = await callGood(list, { depth: 5 })
    expect(value).toMatchObject({
      truncated: false,
      notes: [expect.stringContaining('not entered: .git, web/node_modules')],
    })
    expect(list.render?.(value)).toContain('not entered: .git, web/node_modules; ask for one by its path')
    expect((await callGood(list, { depth: 1 })).notes).toEqual([])
  })

  it('says what to do about a file and a missing directory [S1.09]', async () => {
    using folder = temporaryFolder()
    writeFileSync(join(folder.path, 'f'), '')
    const list = createListFiles({ root: folder.path })
    expect(await call(list, { path: 'f' })).toMatchObject({ ok: false, error: { code: 'not_a_directory' } })
    expect(await call(list, { path: 'x/y' })).toMatchObject({ ok: false, error: { code: 'not_found' } })
  })
})

describe('move_file', () => {
  it('moves files and directories, making what is missing on the way [S1.04]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd'))
    writeFileSync(join(folder.path, 'd/f'), 'x')
    const move = createMoveFile({ root: folder.path })
    await callGood(move, { from: 'd/f', to: 'new/place/g' })
    await callGood(move, { from: 'new', to: 'd/new/' })
    expect(Object.keys(snapshot(folder.path)).sort()).toEqual(['d', 'd/new', 'd/new/place', 'd/new/place/g'])
  })

  it('replaces a file only on request, a directory never [S1.04]', async () => {
    using folder = temporaryFolder()
    for (const name of ['a', 'b']) writeFileSync(join(folder.path, name), name)
    mkdirSync(join(folder.path, 'd'))
    const move = createMoveFile({ root: folder.path })
    const taken = await call(move, { from: 'a', to: 'b' })
    expect(taken).toMatchObject({ ok: false, error: { code: 'already_exists' } })
    expect(await call(move, { from: 'a', to: 'd', overwrite: true })).toMatchObject({
      ok: false,
      error: { code: 'already_exists', message: expect.stringContaining('"d/a"') },
    })
    expect(await call(move, { from: 'd', to: 'a', overwrite: true })).toMatchObject({ ok: false })
    await callGood(move, { from: 'a', to: 'b', overwrite: true })
    expect(readFileSync(join(folder.path, 'b'), 'utf8')).toBe('a')
  })

  it('moves a link itself, and nothing into itself or out of the workspace [S1.08]', async () => {
    using folder = temporaryFolder()
    symlinkSync('/etc/passwd', join(folder.path, 'link'))
    symlinkSync('/tmp', join(folder.path, 'out'))
    mkdirSync(join(folder.path, 'd'))
    const move = createMoveFile({ root: folder.path })
    await callGood(move, { from: 'link', to: 'd/link' })
    expect(lstatSync(join(folder.path, 'd/link')).isSymbolicLink()).toBe(true)
    const codes = []
    for (const [from, to] of [
      ['d', 'd/e'],
      ['d', '../d'],
      ['d', 'out/d'],
      ['.', 'x'],
      ['/etc/passwd', 'x'],
      ['none', 'x'],
    ] as const) {
      const result = await call(move, { from, to })
      codes.push(result.ok ? 'ok' : result.error.code)
    }
    expect(codes).toEqual([
      'invalid_input',
      'outside_workspace',
      'outside_workspace',
      'invalid_input',
      'outside_workspace',
      'not_found',
    ])
  })
})

describe('delete_file', () => {
  it('asks, and shows what would go: names, number and size [S1.11]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd/e'), { recursive: true })
    for (let at = 0; at < 30; at++) writeFileSync(join(folder.path, 'd/e', `f${at}`), '')
    truncateSync(join(folder.path, 'd/e/f0'), 2_500_000)
    const remove = createDeleteFile({ root: folder.path })
    expect(remove.requiresApproval).toBe(true)
    const preview = await remove.preview?.({ path: 'd', recursive: true }, quietContext)
    expect(preview).toContain('the directory "d" with 30 files and 1 directories, 2.5 MB')
    expect(preview).toContain('… and 11 more')
    expect(await remove.preview?.({ path: '../x', recursive: false }, quietContext)).toContain('will fail')
    expect(readdirSync(join(folder.path, 'd/e'))).toHaveLength(30)
  })

  it('deletes a directory with all in it only on request [S1.04]', async () => {
    using folder = temporaryFolder()
    mkdirSync(join(folder.path, 'd/e'), { recursive: true })
    writeFileSync(join(folder.path, 'd/e/f'), '123')
    execFileSync('mkfifo', [join(folder.path, 'd/fifo')])
    const remove = createDeleteFile({ root: folder.path })
    expect(await call(remove, { path: 'd' })).toMatchObject({ ok: false, error: { code: 'already_exists' } })
    const value = await callGood(remove, { path: 'd', recursive: true })
    expect(value).toEqual({ path: 'd', files: 2, directories: 2, bytes: 3 })
    expect(readdirSync(folder.path)).toEqual([])
  })

  it('deletes links, never what they point to [S1.08]', async () => {
    using folder = temporaryFolder()
    using outside = temporaryFolder()
    writeFileSync(join(outside.path, 'f'), 'stays')
    mkdirSync(join(folder.path, 'd'))
    symlinkSync(outside.path, join(folder.path, 'link'))
    symlinkSync(outside.path, join(folder.path, 'd/link'))
    const remove = createDeleteFile({ root: folder.path })
    expect(await call(remove, { path: 'link/f' })).toMatchObject({
      ok: false,
      error: { code: 'outside_workspace' },
    })
    await callGood(remove, { path: 'link', recursive: true })
    await callGood(remove, { path: 'd', recursive: true })
    expect(readdirSync(folder.path)).toEqual([])
    expect(readdirSync(outside.path)).toEqual(['f'])
  })

  it('refuses the workspace itself and what is not there [S1.09]', async () => {
    using folder = temporaryFolder()
    const remove = createDeleteFile({ root: folder.path })
    expect(await call(remove, { path: '.', recursive: true })).toMatchObject({
      ok: false,
      error: { code: 'invalid_input' },
    })
    expect(await call(remove, { path: 'x' })).toMatchObject({ ok: false, error: { code: 'not_found' } })
    expect(existsSync(folder.path)).toBe(true)
  })

  it('says so when a tree is too deep for it, and stops when cancelled [T.02]', async () => {
    using folder = temporaryFolder()
    execFileSync('sh', ['-c', 'cd "$0"; for i in $(seq 300); do mkdir d; cd d; done', folder.path])
    const remove = createDeleteFile({ root: folder.path })
    const deep = await call(remove, { path: 'd', recursive: true })
    expect(deep).toMatchObject({ ok: false, error: { code: 'limit_reached' } })
    const cancelled = { ...quietContext, signal: AbortSignal.abort() }
    const result = await call(remove, { path: 'd', recursive: true }, cancelled)
    expect(result).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    expect(existsSync(join(folder.path, 'd'))).toBe(true)
    execFileSync('rm', ['-r', join(folder.path, 'd')])
  })
})
