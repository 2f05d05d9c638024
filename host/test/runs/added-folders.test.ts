// Folders that a run gets besides its workspace: their names in the VM, what is refused, and what the journal and the model get.
import { mkdir, realpath, symlink, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { searchProgram } from '../../processes/programs.ts'
import { type AddedFolder, foldersContext, nameFolders, scanFolders } from '../../runs/added-folders.ts'
import { prepareWorkspace } from '../../runs/prepare.ts'
import { prepareFolders } from '../../state/folders.ts'
import { beginRun } from '../support/begun-run.ts'
import { runId } from '../support/run-values.ts'

async function bench() {
  const base = await realpath(await temporaryFolder('folders'))
  const at = (...names: string[]) => path.join(base, ...names)
  const make = async (...names: string[]) => {
    await mkdir(at(...names), { recursive: true })
    return { path: at(...names) }
  }
  await make('workspace')
  const host = new Host({ env: { HOME: base, CAISSON_HOME: at('state') } })
  await prepareFolders(host.folders)
  const names = (given: readonly AddedFolder[]) => nameFolders(given, at('workspace'), host.folders)
  return { base, at, make, host, names }
}

describe('the folders of a run', () => {
  it('are named by their last name, each differently, whatever it holds [W.08]', async () => {
    const { at, make, names } = await bench()
    const odd = ['a b\n\u001b[2Jc', '.hidden', '-rf', '\u202egnp', 'größe', '---', 'x'.repeat(200)]
    await symlink((await make('target')).path, at('link'))
    const given = [
      await make('one', 'data'),
      await make('two', 'data'),
      { ...(await make('three', 'data')), name: 'data-2' },
      { path: at('link') },
      ...(await Promise.all(odd.map((name) => make('odd', name)))),
    ]
    const named = names(given)
    expect(named.map(({ name }) => name)).toEqual([
      ...['data', 'data-3', 'data-2', 'link'],
      ...['a-b-2Jc', 'hidden', 'rf', 'gnp', 'größe', 'folder', 'x'.repeat(48)],
    ])
    expect(named[3]?.root).toBe(at('target'))
  })

  it('may lie in the workspace, or hold it [W.08]', async () => {
    const { at, make, names } = await bench()
    const inside = await make('workspace', 'node_modules')
    await make('mono', 'part')
    expect(names([inside])).toEqual([{ name: 'node_modules', root: inside.path }])
    expect(names([{ path: at('mono') }, { path: at('mono', 'part') }])).toHaveLength(2)
  })

  it('are refused where they cannot be copied, with the path and the reason [W.08]', async () => {
    const { base, at, make, names, host } = await bench()
    const one = await make('one')
    await writeFile(at('file'), 'x')
    await symlink(one.path, at('same'))
    const refused = (given: readonly AddedFolder[], why: RegExp, code: string) => {
      expect(() => names(given)).toThrow(why)
      expect(() => names(given)).toThrow(expect.objectContaining({ code }))
    }
    const refusal = 'workspace_refused'
    refused([{ path: at('missing') }], /"[^"]*\/missing" cannot be added: .* does not exist/, refusal)
    refused([{ path: at('file') }], /is not a directory/, refusal)
    refused([{ path: '/' }], /root of the file system/, refusal)
    refused([{ path: process.env.HOME ?? base }], /home directory/, refusal)
    refused([{ path: host.folders.home }], /Caisson keeps its own files/, refusal)
    refused([{ path: at('workspace') }], /is the workspace itself/, 'invalid_options')
    refused([one, { path: at('same') }], /"[^"]*\/same" is already added as one/, 'invalid_options')
    const named = await make('two')
    refused(
      [
        { ...one, name: 'a' },
        { ...named, name: 'a' },
      ],
      /two of them are named a/,
      'invalid_options',
    )
  })

  it('keep the limits of one workspace together, and let programs of the host be found in them [W.08 V.10]', async () => {
    const { at, make, names, host } = await bench()
    const added = [await make('one', 'bin'), await make('two')]
    for (const { path: folder } of added) {
      await writeFile(path.join(folder, 'large'), '')
      await truncate(path.join(folder, 'large'), 5 * 1024 ** 3)
    }
    const signal = new AbortController().signal
    expect(await scanFolders(names(added.slice(0, 1)), host.folders, signal)).toMatchObject({ ok: true })
    expect(await scanFolders(names(added), host.folders, signal)).toMatchObject({
      ok: false,
      error: {
        code: 'too_large',
        message: expect.stringMatching(/"[^"]*\/two" holds more .* count together/),
      },
    })
    await writeFile(at('one', 'bin', 'some-tool'), '#!/bin/sh\n', { mode: 0o755 })
    expect((await searchProgram('some-tool', at('one', 'bin'))).path).toBe(at('one', 'bin', 'some-tool'))
  })

  it('keep likely secrets out that only the directories around them give away [W.08 W.02]', async () => {
    const { at, make, names, host } = await bench()
    const url = '[remote "o"]\n\turl = https://user:token@git.example/x\n'
    const secrets = { '.docker/config.json': '{}', '.config/gh/hosts.yml': '', '.cargo/credentials.toml': '' }
    const files = { ...secrets, 'repo/.git/config': url, 'repo/.git/modules/lib/config': url }
    for (const [file, text] of Object.entries(files)) {
      await make(path.dirname(file))
      await writeFile(at(file), text)
    }
    const given = [...new Set(Object.keys(files).map((file) => path.dirname(file)))]
    const scans = await scanFolders(
      names(given.map((folder) => ({ path: at(folder) }))),
      host.folders,
      new AbortController().signal,
    )
    if (!scans.ok) throw new Error(scans.error.message)
    expect(scans.value.flatMap(({ scan }) => scan.entries.filter(({ kind }) => kind === 'file'))).toEqual([])
    await make('.config', 'gcloud', 'logs')
    expect(() => names([{ path: at('.config', 'gcloud', 'logs') }])).toThrow(/directory of credentials/)
  })

  it('are in the journal with what stayed out, in the model’s context, and not in the manifest [W.08]', async () => {
    const { at, make, names, host } = await bench()
    await writeFile(at('workspace', 'own.txt'), 'own')
    const { path: data } = await make('data')
    for (const [name, content] of Object.entries({
      'a.txt': 'abc',
      '.env': 'K=1',
      '.gitignore': '*.log',
      'x.log': '',
    }))
      await writeFile(path.join(data, name), content)
    const addedFolders = names([{ path: data }])
    await using record = (await beginRun(host, runId, at('workspace'))).record
    const plan = { folders: host.folders, directory: at('workspace'), include: [], runId, addedFolders }
    await using prepared = await prepareWorkspace(plan, record, new AbortController().signal)
    expect([...prepared.manifest.entries.keys()]).toEqual(['own.txt'])
    const events = (await host.runs.read(runId)).map((line) => line.event)
    const examples = [
      { path: '.env', reason: 'secret' },
      { path: 'x.log', reason: 'ignored' },
    ]
    expect(events.find(({ type }) => type === 'workspace-ready')).toMatchObject({
      files: 1,
      folders: [{ name: 'data', path: data, files: 2, bytes: 8, leftOut: 2, examples }],
    })
    expect(foldersContext(addedFolders).folders).toMatch(/read-only.*\n\/mnt\/folders\/data\/$/s)
    expect(foldersContext([])).toEqual({})
  })
})
