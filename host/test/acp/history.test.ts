// Sessions of an editor as the journals have them: whose they are, where, and what a wrong request for one does.
import { symlink } from 'node:fs/promises'
import path from 'node:path'
import { methods } from '@agentclientprotocol/sdk'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { deleteSession, findSession, listSessions } from '../../acp/history.ts'
import { CaissonError, type Host } from '../../index.ts'
import { ownerField } from '../../service/ownership.ts'
import { beginChanging, placeOfRuns } from '../support/changed-run.ts'
import { treeOf } from '../workspace/support.ts'
import { serveNear, words } from './support.ts'

const sessionId = `session-${'0a'.repeat(10)}`
const mine = { 'acp.session': sessionId, 'acp.mode': 'ask' }
const [ofUser, ofKey] = ['run-00000000000000000001', 'run-00000000000000000002'] as const

async function addRun(host: Host, directory: string, runId: string, metadata: Record<string, string>) {
  const end = await beginChanging(host, directory, runId, metadata)
  await end(treeOf({}), treeOf({}))
}

it('a session has the runs of the user alone, whatever metadata a key gives to its own [H.03 H.02]', async () => {
  const { host, directory } = await placeOfRuns({})
  await addRun(host, directory, ofUser, mine)
  const others = { [ownerField]: 'other (0123456789ab)', 'acp.mode': 'apply' }
  await addRun(host, directory, ofKey, { ...mine, ...others })
  const idsOf = async () => (await findSession(host, sessionId, directory)).map(({ id }) => id)
  expect(await idsOf()).toEqual([ofUser])
  expect(await listSessions(host, directory, words)).toHaveLength(1)
  await deleteSession(host, sessionId)
  await expect(idsOf()).rejects.toMatchObject({ code: -32002 })
  expect(await listSessions(host, null, words)).toEqual([])
  expect((await host.runs.list()).map(({ id }) => id)).toEqual([ofKey])
})

it('a session is found by a link to its directory, and by no other directory [H.03]', async () => {
  const { host, directory } = await placeOfRuns({})
  await addRun(host, directory, ofUser, mine)
  const elsewhere = await temporaryFolder('elsewhere')
  const link = path.join(elsewhere, 'link')
  await symlink(directory, link)
  expect(await listSessions(host, link, words)).toMatchObject([{ sessionId }])
  expect(await findSession(host, sessionId, link)).toHaveLength(1)
  await expect(findSession(host, sessionId, elsewhere)).rejects.toMatchObject({ code: -32002 })
})

it('a session that is open stays so when it is asked for in another directory [H.03]', async () => {
  const { host, directory } = await placeOfRuns({})
  await addRun(host, directory, ofUser, mine)
  const agent = await serveNear(host, async () => ofUser)
  const load = (cwd: string) => agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] })
  const setMode = () => agent.request(methods.agent.session.setMode, { sessionId, modeId: 'plan' })
  await load(directory)
  await setMode()
  await expect(load(await temporaryFolder('elsewhere'))).rejects.toMatchObject({ code: -32002 })
  await setMode()
})

it.each([
  ['invalid_options', -32602],
  ['not_possible_now', -32600],
  ['image_unavailable', -32603],
] as const)(
  'a run that cannot start for %s is an error of its prompt that says why, and the next prompt may start [H.03]',
  async (code, expected) => {
    const { host, directory } = await placeOfRuns({})
    const agent = await serveNear(host, () =>
      Promise.reject(new CaissonError(code, 'there is no such model')),
    )
    const session = await agent.request(methods.agent.session.new, { cwd: directory, mcpServers: [] })
    const prompt = [{ type: 'text' as const, text: 'Do it.' }]
    for (let at = 0; at < 2; at++)
      await expect(
        agent.request(methods.agent.session.prompt, { sessionId: session.sessionId, prompt }),
      ).rejects.toMatchObject({ code: expected, message: expect.stringContaining('no such model') })
  },
)
