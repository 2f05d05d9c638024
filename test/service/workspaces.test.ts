// Workspaces that the HTTP service makes for runs that name none: which paths may be one, and when one is removed.
import { mkdir, readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { beginChanging, placeOfRuns } from '../../host/test/support/changed-run.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import { serveHost } from './support.ts'

const [one, two] = ['run-00000000000000000001', 'run-00000000000000000002'] as const

/** A run that ended in a workspace of the service. */
async function runInServiceWorkspace(runs: readonly string[] = [one]) {
  const { host, env } = await placeOfRuns({})
  const folder = path.join(host.folders.home, 'service/workspaces')
  const directory = path.join(folder, '1-a')
  await mkdir(directory, { recursive: true, mode: 0o700 })
  for (const id of runs) {
    const end = await beginChanging(host, directory, id)
    await end(treeOf({}), treeOf({ 'new.txt': 'new\n' }))
  }
  return { host, env, folder, directory }
}

describe('a workspace that the service made', () => {
  it('is removed with its run while it is empty [H.02]', async () => {
    const { host, folder } = await runInServiceWorkspace()
    const { client } = await serveHost(host)
    await client.call('removeRun', { params: { run: one } })
    expect(await readdir(folder)).toEqual([])
  })

  it('stays when changes were applied to it, or another run names it [H.02]', async () => {
    const { host, folder, directory } = await runInServiceWorkspace([one, two])
    const { client } = await serveHost(host)
    await client.call('removeRun', { params: { run: one } })
    expect(await readdir(folder)).toEqual(['1-a'])
    await client.call('applyChanges', { params: { run: two }, body: { select: 'all' } })
    await client.call('removeRun', { params: { run: two } })
    expect(await readdir(directory)).toEqual(['new.txt'])
  })

  it('is the only folder within the state folder that may be a workspace [H.02 W.01]', async () => {
    const { host, directory, folder, env } = await runInServiceWorkspace()
    const within = path.join(directory, 'deeper')
    await mkdir(within)
    const another = new Host({ env })
    for (const workspace of [folder, within, host.folders.home, host.folders.runs])
      await expect(another.run({ prompt: 'x', workspace })).rejects.toMatchObject({
        code: 'workspace_refused',
      })
    const { send } = await serveHost(host)
    const refused = await send('POST', '/v1/runs', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'x', workspace: within }),
    })
    expect([refused.status, refused.json]).toMatchObject([403, { code: 'workspace_refused' }])
  })

  it('is removed when the run cannot start [H.02]', async () => {
    const { host } = await placeOfRuns({})
    const { client } = await serveHost(host)
    const started = client.call('createRun', { body: { prompt: 'x', model: 'no/such-model' } })
    await expect(started).rejects.toMatchObject({
      ...{ status: 400, code: 'invalid_options' },
      message: expect.stringContaining('No model server is set for the model "no/such-model"'),
    })
    const folder = path.join(host.folders.home, 'service/workspaces')
    expect(await readdir(folder)).toEqual([])
    expect((await stat(folder)).mode & 0o777).toBe(0o700)
  })
})
