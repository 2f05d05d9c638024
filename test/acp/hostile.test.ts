// Hostile editors and models against forks and turns of a real `caisson acp`. A program stands in the place of QEMU.
import { createInterface } from 'node:readline'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import {
  ask,
  call,
  editorPlace,
  hasResult,
  newSession,
  openEditor,
  startProgram,
  type TestEditor,
  useMachine,
  vmFlags,
} from './support.ts'

const machine = useMachine()
const flags = [...vmFlags, '--unstable', 'fork', '--unstable', 'v2']

const fork = async ({ agent }: TestEditor, sessionId: string, cwd: string): Promise<{ sessionId: string }> =>
  await agent.request('session/fork' as string, { sessionId, cwd, mcpServers: [] })

describe('a fork', { timeout: 240_000 }, () => {
  it('is refused by the protocol also right behind the first frame of version 2 [H.03]', async () => {
    const place = await cliPlace({})
    const { child, ended } = startProgram(place, flags)
    const answers: { id: unknown; error?: { code: number } }[] = []
    createInterface({ input: child.stdout }).on('line', (line) => {
      answers.push(JSON.parse(line))
      if (answers.length === 3) child.stdin.end()
    })
    const info = { name: 'raw', version: '1' }
    const frames = [
      { id: 'i', method: 'initialize', params: { protocolVersion: 2, info } },
      { id: 1, method: 'session/fork', params: { sessionId: [`session-${'0'.repeat(20)}`], cwd: {} } },
      { id: 2, method: 'session/fork', params: null },
    ]
    child.stdin.write(frames.map((frame) => `${JSON.stringify({ jsonrpc: '2.0', ...frame })}\n`).join(''))
    expect(await ended).toBe(0)
    const codes = [1, 2].map((id) => answers.find((answer) => answer.id === id)?.error?.code)
    expect(codes).toEqual([-32602, -32602])
  })

  it('makes no run where no further session may be open [H.03]', async () => {
    const place = await editorPlace(machine(), {}, () => reply({ text: 'Hello.' }))
    const { workspace: cwd, host } = place
    const editor = await openEditor(place, { flags })
    const sessionId = await newSession(editor, cwd)
    expect(await ask(editor, sessionId, 'Hello')).toBe('end_turn')
    for (let open = 1; open < 256; open += 1) await newSession(editor, cwd)
    await expect(fork(editor, sessionId, cwd)).rejects.toMatchObject({
      ...{ code: -32600, message: expect.stringContaining('close one first') },
    })
    expect(await host.runs.list()).toHaveLength(1)
    await editor.close()
  })

  it('whose run another program continued takes no first prompt, and starts nothing [H.03 S1.11]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
      hasResult(asked) ? reply({ text: 'It is gone.' }) : call('delete_file', { path: 'a.txt' }),
    )
    const { workspace: cwd, host } = place
    const editor = await openEditor(place, { flags, permit: async () => await new Promise(() => undefined) })
    const sessionId = await newSession(editor, cwd)
    void ask(editor, sessionId, 'Delete a.txt').catch(() => undefined)
    await expect.poll(() => editor.permissions.length, { timeout: 60_000 }).toBe(1)
    const { sessionId: forkId } = await fork(editor, sessionId, cwd)
    const [waiting] = await host.runs.select({ metadata: { 'acp.session': forkId } })
    const resumed = await place.run('runs', 'resume', waiting?.id ?? '', '--detach')
    expect(resumed.stderr + resumed.stdout).toContain(waiting?.id)
    await expect
      .poll(async () => (await host.runs.summary(waiting?.id ?? '')).pendingApprovals, { timeout: 60_000 })
      .toBe(1)
    await expect(ask(editor, forkId, 'Do it now.')).rejects.toMatchObject({
      ...{ code: -32600, message: expect.stringContaining('open the session again') },
    })
    const runs = await host.runs.list()
    expect(runs).toHaveLength(2)
    for (const { id } of runs) await host.cancel(id, { by: 'test' })
    await expect
      .poll(async () => (await host.runs.list()).every(({ isLive }) => !isLive), { timeout: 60_000 })
      .toBe(true)
    await editor.close()
  })
})

describe('a call of a tool', { timeout: 90_000 }, () => {
  it('with arguments that nest too deep is shown without them, and its turn ends [H.03]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
      hasResult(asked)
        ? reply({ text: 'Done.' })
        : reply({ calls: [{ id: 'c1', name: 'read_file', arguments: `{"path":"a.txt","x":${deep}}` }] }),
    )
    const deep = `${'['.repeat(8_000)}${']'.repeat(8_000)}`
    const editor = await openEditor(place, { flags })
    expect(await ask(editor, await newSession(editor, place.workspace), 'Read.')).toBe('end_turn')
    const shown = editor.updates.find(({ sessionUpdate }) => sessionUpdate === 'tool_call')
    expect(shown).toMatchObject({ title: 'read_file: a.txt' })
    expect(shown).not.toHaveProperty('rawInput')
    await editor.close()
  })
})
