// Forks of sessions, by the client sides of the SDK that have them. A program stands in the place of QEMU.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { type client, methods } from '@agentclientprotocol/sdk'
import * as second from '@agentclientprotocol/sdk/experimental/v2/unstable'
import * as first from '@agentclientprotocol/sdk/unstable'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import {
  ask,
  call,
  choose,
  type EditorOptions,
  type EditorPlace,
  editorPlace,
  hasResult,
  newSession,
  openEditor,
  type TestEditor,
  useMachine,
  vmFlags,
} from './support.ts'
import { ask2, newSession2, openEditor2 } from './version-2-support.ts'

const machine = useMachine()
const flags = [...vmFlags, '--unstable', 'fork']

const openForking = async (place: EditorPlace, options: EditorOptions = {}): Promise<TestEditor> =>
  await openEditor(place, { ...options, flags, client: first.client as unknown as typeof client })

/** By the method of the SDK's unstable part. */
const fork = async ({ agent }: TestEditor, sessionId: string, cwd: string) =>
  await (agent as unknown as first.ClientContext).request(first.methods.agent.session.fork, {
    ...{ sessionId, cwd, mcpServers: [] },
  })

const deletes = (asked: Asked) =>
  hasResult(asked) ? reply({ text: 'It is gone.' }) : call('delete_file', { path: 'a.txt' })

const users = ({ updates }: TestEditor) =>
  updates.flatMap((update) =>
    update.sessionUpdate === 'user_message_chunk' && update.content.type === 'text'
      ? [update.content.text]
      : [],
  )

describe('a fork of a session', { timeout: 240_000 }, () => {
  it('is not offered and not known without the option [H.03]', async () => {
    const place = await editorPlace(machine(), {}, () => reply({ text: 'Hello.' }))
    const editor = await openEditor(place)
    const request = editor.agent.request('session/fork', {
      sessionId: 'x',
      cwd: place.workspace,
      mcpServers: [],
    })
    await expect(request).rejects.toMatchObject({ code: -32601 })
    await editor.close()
  })

  it('of an ended session has its history and works on by itself; the other one stays [H.03 R.01]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) => {
      if (
        asked.text.includes('Write b.txt') &&
        !asked.messages.some((message) => JSON.stringify(message).includes('"written"'))
      )
        return { ...call('write_file', { path: 'b.txt', content: 'written' }) }
      return deletes(asked)
    })
    const { workspace: cwd, host } = place
    const editor = await openForking(place, { permit: choose('allow_once') })
    const sessionId = await newSession(editor, cwd)
    expect(await ask(editor, sessionId, 'Say it.')).toBe('end_turn')
    expect(await ask(editor, sessionId, 'Delete a.txt')).toBe('end_turn')
    const before = await host.runs.list()
    editor.updates.length = 0
    const forked = await fork(editor, sessionId, cwd)
    expect(forked).toMatchObject({
      sessionId: expect.stringMatching(/^session-/),
      modes: { currentModeId: 'ask' },
    })
    await expect.poll(() => users(editor)).toEqual(['Say it.', 'Delete a.txt'])
    const made = (await host.runs.list()).filter((run) => !before.some(({ id }) => id === run.id))
    expect(made).toMatchObject([
      { forkedFrom: before[0]?.id, status: 'interrupted', metadata: { 'acp.session': forked.sessionId } },
    ])

    expect(await ask(editor, forked.sessionId, 'Write b.txt')).toBe('end_turn')
    expect(existsSync(path.join(cwd, 'b.txt'))).toBe(true)
    const { sessions } = await editor.agent.request(methods.agent.session.list, { cwd })
    expect(sessions.map((session) => session.sessionId)).toEqual([forked.sessionId, sessionId])
    expect(
      (await host.runs.list()).filter(({ metadata }) => metadata?.['acp.session'] === sessionId),
    ).toEqual(before)

    // The next editor sees what was said to it.
    await editor.close()
    const next = await openForking(place)
    await next.agent.request(methods.agent.session.load, { sessionId: forked.sessionId, cwd, mcpServers: [] })
    expect(users(next)).toEqual(['Say it.', 'Delete a.txt', 'Write b.txt'])
    expect([...editor.faults, ...next.faults]).toEqual([])
    await next.close()
  })

  it('at an open question asks for itself; no answer of one counts for the other [H.03 S1.11]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, ({ messages }) =>
      messages.some(({ role }) => role === 'tool')
        ? reply({ text: 'It is gone.' })
        : call('delete_file', { path: 'a.txt' }),
    )
    const { workspace: cwd, host } = place
    let isFork = false
    const editor = await openForking(place, {
      permit: async (request) =>
        isFork ? choose('allow_once')(request) : await new Promise(() => undefined),
    })
    const sessionId = await newSession(editor, cwd)
    void ask(editor, sessionId, 'Delete a.txt').catch(() => undefined)
    await expect.poll(() => editor.permissions.length, { timeout: 60_000 }).toBe(1)
    const forked = await fork(editor, sessionId, cwd)
    // Nothing of it begins by itself.
    expect(editor.permissions).toHaveLength(1)
    const [waiting] = (await host.runs.list()).filter(({ isLive }) => isLive)
    isFork = true
    expect(await ask(editor, forked.sessionId, 'Do it now.')).toBe('end_turn')
    expect(editor.permissions.map((request) => request.sessionId)).toEqual([
      sessionId,
      forked.sessionId,
      forked.sessionId,
    ])
    expect(existsSync(path.join(cwd, 'a.txt'))).toBe(false)
    expect(await host.runs.pendingApprovals()).toMatchObject([{ runId: waiting?.id }])
    await editor.agent.request(methods.agent.session.close, { sessionId })
    await expect
      .poll(async () => (await host.runs.list()).every(({ isLive }) => !isLive), { timeout: 60_000 })
      .toBe(true)
    expect(editor.faults).toEqual([])
    await editor.close()
  })

  it('needs a session with a turn, of this directory; without one nothing is made [H.03]', async () => {
    const place = await editorPlace(machine(), {}, () => reply({ text: 'Hello.' }))
    const { workspace: cwd, host } = place
    const editor = await openForking(place)
    const unknown = `session-${'0'.repeat(20)}`
    await expect(fork(editor, unknown, cwd)).rejects.toMatchObject({
      code: -32002,
      data: { sessionId: unknown },
    })
    const sessionId = await newSession(editor, cwd)
    await expect(fork(editor, sessionId, cwd)).rejects.toMatchObject({
      ...{ code: -32600, message: expect.stringContaining('send a prompt first') },
    })
    expect(await ask(editor, sessionId, 'Hello')).toBe('end_turn')
    await expect(fork(editor, sessionId, '/')).rejects.toMatchObject({ code: -32002 })
    await expect(fork(editor, sessionId, 'relative')).rejects.toMatchObject({ code: -32602 })
    const odd = { sessionId, cwd, mcpServers: [{ name: 7 }] }
    await expect(editor.agent.request('session/fork' as string, odd)).rejects.toMatchObject({ code: -32602 })
    expect(await host.runs.list()).toHaveLength(1)
    await editor.close()
  })

  it('that another program makes of its run is no part of the session [H.03]', async () => {
    const place = await editorPlace(machine(), {}, () => reply({ text: 'Hello.' }))
    const { workspace: cwd, host } = place
    const editor = await openForking(place)
    const sessionId = await newSession(editor, cwd)
    expect(await ask(editor, sessionId, 'Say it.')).toBe('end_turn')
    const [run] = await host.runs.list()
    await expect.poll(async () => await host.runs.isLive(run?.id ?? ''), { timeout: 10_000 }).toBe(false)
    const { runIds } = await host.fork(run?.id ?? '', { at: 'start' })
    const ofSession = await host.runs.select({ metadata: { 'acp.session': sessionId } })
    expect(ofSession.map(({ id }) => id)).toEqual([run?.id])
    expect((await host.runs.summary(runIds[0] ?? '')).metadata).toEqual({ 'acp.mode': 'ask' })
    await editor.close()
  })

  it('is offered by version 2 as well, where both options are given [H.03]', async () => {
    const place = await editorPlace(machine(), {}, () => reply({ text: 'Hello.' }))
    const { workspace: cwd } = place
    const editor = await openEditor2(place, {
      flags,
      client: second.client as unknown as typeof import('@agentclientprotocol/sdk/experimental/v2').client,
    })
    expect((await editor.agent.initialized).response.capabilities).toMatchObject({ session: { fork: {} } })
    const sessionId = await newSession2(editor, cwd)
    expect((await ask2(editor, sessionId, 'Hello'))[1]).toBe('idle end_turn')
    const agent = editor.agent as unknown as second.ClientContext
    const forked = await agent.request(second.methods.agent.session.fork, { sessionId, cwd })
    expect(forked).toMatchObject({ configOptions: [{ configId: 'mode' }, {}, {}] })
    expect((await ask2(editor, forked.sessionId, 'And now?'))[1]).toBe('idle end_turn')
    expect(editor.faults).toEqual([])
    await editor.close()
  })
})
