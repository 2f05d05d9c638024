// Folders beside the workspace: tools that read reach them, by absolute path alone; tools that write name the reason.
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { createFileTools } from '../../tools/file-tools.ts'
import { createListFiles } from '../../tools/files/file-list.ts'
import { createReadFile } from '../../tools/files/file-read.ts'
import { call, callAsModel, callGood, runInFolder } from '../support/tools.ts'
import { snapshot, temporaryFolder } from '../support/trees.ts'

function prepare() {
  const home = temporaryFolder()
  const [root, folders] = [join(home.path, 'workspace'), join(home.path, 'folders')]
  mkdirSync(root)
  mkdirSync(join(folders, 'data/in'), { recursive: true })
  writeFileSync(join(root, 'own.txt'), 'own\n')
  writeFileSync(join(folders, 'data/in/a.txt'), 'content\n')
  writeFileSync(join(home.path, 'outside.txt'), 'outside\n')
  symlinkSync('in/a.txt', join(folders, 'data/inside'))
  symlinkSync('../../outside.txt', join(folders, 'data/outside'))
  symlinkSync(join(folders, 'data/in/a.txt'), join(root, 'link'))
  return { home, root, folders, options: { root, folders } }
}

describe('a folder beside the workspace', () => {
  it('is read and listed by its absolute path, links in it too [W.08]', async () => {
    const { home, folders, options } = prepare()
    using _ = home
    const file = join(folders, 'data/in/a.txt')
    const read = createReadFile(options)
    expect(await callGood(read, { path: file })).toMatchObject({ path: file, content: 'content' })
    expect(await callGood(read, { path: join(folders, 'data/inside') })).toMatchObject({ path: file })
    const listed = await callGood(createListFiles(options), { path: folders })
    expect(listed.entries.map(({ path }) => path)).toContain(file)
  })

  it('leads nowhere else: not by a link, not by .., and not from the workspace [W.08 S1.08]', async () => {
    const { home, folders, options } = prepare()
    using _ = home
    const read = createReadFile(options)
    for (const path of [
      join(folders, 'data/outside'),
      `${folders}/../outside.txt`,
      `${folders}-other/x`,
      'link',
    ])
      expect(await call(read, { path }), path).toMatchObject({
        ok: false,
        error: { code: 'outside_workspace' },
      })
  })

  it('is said not to be there where the run has none [W.08]', async () => {
    const { home, root } = prepare()
    using _ = home
    const read = createReadFile({ root, folders: join(home.path, 'none') })
    expect(await call(read, { path: join(home.path, 'none/a') })).toMatchObject({
      error: { code: 'not_found', message: expect.stringContaining('no folders besides the workspace') },
    })
  })

  it('cannot be changed by any tool, and the error says that it is read-only [W.08 S1.08]', async () => {
    const { home, root, folders, options } = prepare()
    using _ = home
    const tools = createFileTools(runInFolder(root), options)
    const path = join(folders, 'data/in/a.txt')
    const before = snapshot(home.path)
    const patch = `*** Begin Patch\n*** Update File: ${path}\n@@\n-content\n+changed\n*** End Patch\n`
    for (const [name, input] of [
      ['write_file', { path, content: 'x' }],
      ['write_file', { path: join(folders, 'new/x.txt'), content: 'x' }],
      ['edit_file', { path, oldText: 'content', newText: 'x' }],
      ['move_file', { from: path, to: 'a.txt' }],
      ['move_file', { from: 'own.txt', to: join(folders, 'data/own.txt') }],
      ['delete_file', { path }],
      ['apply_patch', { patch }],
    ] as const) {
      const { error } = await callAsModel(tools, name, input)
      expect(error, name).toMatchObject({
        code: 'permission_denied',
        message: expect.stringContaining('read-only'),
      })
    }
    expect(snapshot(home.path)).toEqual(before)
  })
})
