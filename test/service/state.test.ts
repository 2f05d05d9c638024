// Notes, permanent answers, skills and the machine over HTTP: what the library says, for the owner and `admin` alone. No VM.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { prepareFolders } from '../../host/state/folders.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { codeOf, holderOf } from './keys-support.ts'
import { serveHost } from './support.ts'

const paths = ['/v1/notes', '/v1/grants', '/v1/skills', '/v1/doctor', '/v1/templates']

async function serveState() {
  const home = await temporaryFolder('service-state')
  const skill = path.join(home, 'caisson/skills/release')
  await mkdir(skill, { recursive: true, mode: 0o700 })
  const text = '---\nname: release\ndescription: Makes a release\n---\nTag it.\n'
  await writeFile(path.join(skill, 'SKILL.md'), text, { mode: 0o600 })
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home }
  const host = new Host({ env: { ...env, PATH: process.env.PATH } })
  return { home, host, ...(await serveHost(host)) }
}

it('notes, permanent answers, skills and the machine are shown as the library has them [H.02]', async () => {
  const { host, home, client } = await serveState()
  await prepareFolders(host.folders)
  await host.notes.change((notes) => [
    ...notes,
    {
      kind: 'memory',
      noteId: 'mem-000000000001',
      workspace: home,
      text: 'Tests run with make',
      tags: [],
      at: 1,
    },
    {
      kind: 'governance',
      noteId: 'gov-000000000001',
      proposalId: 'PROP-1',
      text: 'Reviewed',
      author: runId,
      at: 2,
    },
  ])
  const { notes } = await client.call('listNotes', {})
  expect(notes).toEqual(await host.notes.list())
  const own = await client.call('listNotes', { query: { workspace: home } })
  expect(own.notes.map(({ noteId }) => noteId)).toEqual(['mem-000000000001'])

  const rule = { effect: 'allow', host: 'example.com' } as const
  await host.grants.add([rule], runId)
  const { grants } = await client.call('listGrants', {})
  expect(grants).toMatchObject([{ id: 1, rule, runId }])
  await client.call('revokeGrant', { params: { grant: '1' } })
  expect(host.grants.list()).toEqual([])
  await expect(client.call('revokeGrant', { params: { grant: '1' } })).rejects.toMatchObject({ status: 404 })

  expect(await client.call('listSkills', {})).toEqual({
    roots: [path.join(home, 'caisson/skills')],
    skills: [{ skillId: 'release', description: 'Makes a release' }],
    problems: [],
  })
  await mkdir(path.join(host.folders.cache, 'templates', '0'.repeat(32)), { recursive: true })
  const { templates } = await client.call('listTemplates', {})
  expect(templates).toEqual(await host.templates())
  expect(templates).toMatchObject([{ name: '0'.repeat(32), isIntact: false, kind: null }])
  const { findings } = await client.call('inspectMachine', {})
  expect(findings.map(({ id }) => id)).toEqual((await host.doctor()).map(({ id }) => id))
})

it('a key without the scope admin sees none of it [H.02, S4.11]', async () => {
  const { host, ...served } = await serveState()
  const holder = await holderOf(host, served, 'ci')
  for (const at of paths) {
    const answer = await holder.send('GET', at)
    expect([at, answer.status, codeOf(answer)]).toEqual([at, 403, 'forbidden'])
  }
  expect((await holder.send('DELETE', '/v1/grants/1')).status).toBe(403)
  const boss = await holderOf(host, served, 'boss', { scopes: ['admin'] })
  for (const at of paths) expect([at, (await boss.send('GET', at)).status]).toEqual([at, 200])
})
