// A directory that another run's changes, or a program of the host, replaced by a link after a run had copied it.
import { mkdir, readdir, rename, symlink } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { scanFolders } from '../../runs/added-folders.ts'
import { prepareWorkspace } from '../../runs/prepare.ts'
import { beginRun } from '../support/begun-run.ts'
import { changedRunId, placeOfRuns, runThatChanged } from '../support/changed-run.ts'

describe('a directory that became a link', () => {
  it('gets no changes, and none are undone through it [W.01]', async () => {
    const { host, directory } = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'a', 'tasks.json': 'x' })
    const other = `${directory}-vscode`
    await mkdir(other)
    await rename(directory, `${directory}-before`)
    await symlink(other, directory)
    const changes = await host.changes(changedRunId)
    const refused = { code: 'workspace_refused', message: expect.stringContaining('is a link now') }
    await expect(changes.review()).rejects.toMatchObject(refused)
    await expect(changes.apply('all')).rejects.toMatchObject(refused)
    expect(await readdir(other)).toEqual([])
    // Where the directory is back, everything is as before.
    await rename(directory, `${directory}-link`)
    await rename(`${directory}-before`, directory)
    expect((await changes.apply('all')).applied).toEqual(['tasks.json'])
    await rename(directory, other.replace('vscode', 'applied'))
    await rename(`${directory}-link`, directory)
    await expect(changes.undo()).rejects.toMatchObject(refused)
  })

  it('is not copied in the place of the one that was checked, as workspace or as a further folder [W.02 W.08]', async () => {
    const { host, directory } = await placeOfRuns({ 'pkg/a.txt': 'a', 'private/b.txt': 'b' })
    const at = (name: string) => path.join(directory, name)
    await rename(at('pkg'), at('before'))
    await symlink('private', at('pkg'))
    const { signal } = new AbortController()
    const named = [{ name: 'pkg', root: at('pkg') }]
    expect(await scanFolders(named, host.folders, signal)).toMatchObject({
      ok: false,
      error: { code: 'refused_directory', message: expect.stringContaining('is a link now') },
    })
    const runId = changedRunId
    await using record = (await beginRun(host, runId, at('pkg'))).record
    const plan = { folders: host.folders, directory: at('pkg'), include: [], runId }
    await expect(prepareWorkspace(plan, record, signal)).rejects.toMatchObject({ code: 'workspace_refused' })
  })
})
