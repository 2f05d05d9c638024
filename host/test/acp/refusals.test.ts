// Requests of an editor that fail: each answer has its code, says what failed, and what to do.
import { appendFile } from 'node:fs/promises'
import path from 'node:path'
import { methods } from '@agentclientprotocol/sdk'
import { describe, expect, it } from 'vitest'
import { beginChanging, placeOfRuns } from '../support/changed-run.ts'
import { treeOf } from '../workspace/support.ts'
import { serveNear } from './support.ts'

const sessionId = `session-${'0a'.repeat(10)}`
const mcpServers: never[] = []

async function open() {
  const place = await placeOfRuns({ 'a.txt': 'a\n' })
  return { ...place, agent: await serveNear(place.host, () => Promise.reject(new Error('no run here'))) }
}

describe('a request of an editor', () => {
  it('for a session that is not there names it, and says how to get one [H.03]', async () => {
    const { agent, directory } = await open()
    const requests = {
      prompt: () => agent.request(methods.agent.session.prompt, { sessionId, prompt: [] }),
      mode: () => agent.request(methods.agent.session.setMode, { sessionId, modeId: 'ask' }),
      option: () =>
        agent.request(methods.agent.session.setConfigOption, { sessionId, configId: 'mode', value: 'ask' }),
      load: () => agent.request(methods.agent.session.load, { sessionId, cwd: directory, mcpServers }),
      resume: () => agent.request(methods.agent.session.resume, { sessionId, cwd: directory, mcpServers }),
    }
    for (const [name, request] of Object.entries(requests))
      await expect(request(), name).rejects.toMatchObject({
        ...{ code: -32002, data: { sessionId } },
        message: expect.stringMatching(`${sessionId}" is not known here; start one with session/new`),
      })
  })

  it('for a session that was closed says so, and closing it again is no failure of the editor [H.03]', async () => {
    const { agent, directory } = await open()
    const opened = await agent.request(methods.agent.session.new, { cwd: directory, mcpServers })
    const id = { sessionId: opened.sessionId }
    await agent.request(methods.agent.session.close, id)
    await expect(agent.request(methods.agent.session.prompt, { ...id, prompt: [] })).rejects.toMatchObject({
      ...{ code: -32002, data: id, message: expect.stringContaining('is closed; open it with session/load') },
    })
    // The SDK's client takes the answer for a success.
    await agent.request(methods.agent.session.close, id)
  })

  it('with a directory that cannot be used says which, and what is expected [H.03]', async () => {
    const { agent, directory } = await open()
    const file = path.join(directory, 'a.txt')
    for (const [cwd, words] of [
      ['relative', 'expected an absolute path, got "relative"'],
      ['', 'expected an absolute path, got ""'],
      [`${directory}\0`, 'expected an absolute path'],
      [path.join(directory, 'missing'), 'missing" cannot be found'],
      [file, 'a.txt" is no directory'],
    ] as const)
      for (const method of [methods.agent.session.new, methods.agent.session.load] as const)
        await expect(
          agent.request(method, { sessionId, cwd, mcpServers } as never),
          `${method} ${cwd}`,
        ).rejects.toMatchObject({ code: -32602, message: expect.stringContaining(words) })
    await expect(agent.request(methods.agent.session.list, { cwd: 'relative' })).rejects.toMatchObject({
      code: -32602,
    })
  })

  it('with a mode, option or value that is not offered lists those that are [H.03]', async () => {
    const { agent, directory } = await open()
    const { sessionId: id } = await agent.request(methods.agent.session.new, { cwd: directory, mcpServers })
    const setOption = (configId: string, value: string) =>
      agent.request(methods.agent.session.setConfigOption, { sessionId: id, configId, value })
    for (const [request, words] of [
      [
        agent.request(methods.agent.session.setMode, { sessionId: id, modeId: 'root' }),
        '"root" is not offered; choose one of ask, plan, apply',
      ],
      [setOption('color', 'blue'), 'no option "color"; choose one of mode, model, effort'],
      [setOption('effort', 'utmost'), 'effort: "utmost" is not offered; choose one of default, none'],
    ] as const)
      await expect(request).rejects.toMatchObject({ code: -32602, message: expect.stringContaining(words) })
  })

  it('for a session with a damaged run names the run; the list stays [H.03 R.09]', async () => {
    const { agent, host, directory } = await open()
    const id = 'run-00000000000000000001'
    const end = await beginChanging(host, directory, id, { 'acp.session': sessionId, 'acp.mode': 'ask' })
    await end(treeOf({}), treeOf({}))
    const { journal } = host.runs.paths(id)
    await appendFile(journal, 'no event\n')
    await expect(
      agent.request(methods.agent.session.load, { sessionId, cwd: directory, mcpServers }),
    ).rejects.toMatchObject({
      ...{ code: -32002, message: expect.stringContaining(`damaged run ${id} may be of it; look at it:`) },
    })
    expect(await agent.request(methods.agent.session.list, { cwd: directory })).toEqual({ sessions: [] })
  })
})
