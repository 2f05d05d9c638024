// `caisson acp --unstable v2` by the client side of the SDK's version 2. A program stands in the place of QEMU.
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { methods } from '@agentclientprotocol/sdk/experimental/v2'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import {
  ask,
  call,
  choose,
  editorPlace,
  hasResult,
  newSession,
  openEditor,
  useMachine,
  vmFlags,
} from './support.ts'
import { ask2, choose2, newSession2, openEditor2 } from './version-2-support.ts'

const machine = useMachine()

const deletes = (asked: Asked) =>
  hasResult(asked) ? reply({ text: 'It is gone.' }) : call('delete_file', { path: 'a.txt' })

describe('version 2', { timeout: 90_000 }, () => {
  it('is spoken with a client that asks for it; one of version 1 sees version 1 [H.03]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, deletes)
    const editor = await openEditor2(place)
    const { initialized } = editor.agent
    expect((await initialized).response).toMatchObject({
      info: { name: 'caisson' },
      capabilities: {
        session: { prompt: { image: {}, embeddedContext: {} }, mcp: { http: {} }, delete: {} },
      },
    })
    const first = await openEditor(place, {
      flags: [...vmFlags, '--unstable', 'v2'],
      permit: choose('allow_once'),
    })
    expect(await ask(first, await newSession(first, place.workspace), 'Delete a.txt')).toBe('end_turn')
    expect(first.updates.map(({ sessionUpdate }) => sessionUpdate)).toContain('tool_call')
    expect([...first.faults, ...editor.faults]).toEqual([])
    await Promise.all([editor.close(), first.close()])
  })

  it('shows a prompt, its work and its end; diffs are patches with lines of the file [H.03 S0.10]', async () => {
    const text = Array.from({ length: 20 }, (_, at) => `line ${at + 1}`).join('\n')
    const place = await editorPlace(machine(), { 'a.txt': `${text}\n` }, (asked) =>
      hasResult(asked)
        ? reply({ text: ['I changed ', 'the file.'], reasoning: 'Hm.' })
        : call('edit_file', { path: 'a.txt', oldText: 'line 12', newText: 'twelve' }),
    )
    const file = path.join(place.workspace, 'a.txt')
    const editor = await openEditor2(place, { permit: choose2('Do not apply') })
    const session = await newSession2(editor, place.workspace)
    const [messageId, end] = await ask2(editor, session, 'Change it.')
    expect(end).toBe('idle end_turn')
    expect(editor.said()).toContain('I changed the file.')
    const of = (kind: string) => editor.updates.filter(({ sessionUpdate }) => sessionUpdate === kind)
    expect(of('user_message')).toMatchObject([{ messageId, content: [{ type: 'text', text: 'Change it.' }] }])
    expect(editor.states()).toEqual(['running', 'requires_action', 'running', 'idle end_turn'])
    const calls = of('tool_call_update')
    expect(calls[0]).toMatchObject({ title: 'edit_file: a.txt', kind: 'edit', locations: [{ path: file }] })
    const patch = { text: expect.stringMatching(/^@@ -9,7 \+9,7 @@[\s\S]*^-line 12\n\+twelve$/m) }
    const diff = { type: 'diff', changes: [{ operation: 'modify', path: file }], patch }
    expect(calls.find((update) => 'status' in update && update.status === 'completed')).toMatchObject({
      content: [diff],
    })
    expect(of('usage_update').at(-1)).toMatchObject({ used: 15 })
    expect(editor.permissions).toMatchObject([
      { title: expect.stringContaining('Apply the change'), subject: { toolCall: { content: [diff] } } },
    ])
    expect((await ask2(editor, session, '/apply'))[1]).toBe('idle end_turn')
    expect(await readFile(file, 'utf8')).toContain('twelve')
    expect((await ask2(editor, session, '/undo'))[1]).toBe('idle end_turn')
    expect(await readFile(file, 'utf8')).toBe(`${text}\n`)
    expect(editor.faults).toEqual([])
    await editor.close()
  })

  it('has modes as an option, plans with an ID, and refuses what was not offered [H.03 W.01]', async () => {
    const steps = ['one', 'two'].map((id) => ({ id, title: id, instructions: `Do step ${id}` }))
    const place = await editorPlace(machine(), {}, () => call('submit_plan', { goal: 'Both', steps }))
    const editor = await openEditor2(place)
    const { agent } = editor
    const cwd = place.workspace
    const opened = await agent.request(methods.agent.session.new, { cwd })
    expect(opened).toMatchObject({
      configOptions: [{ configId: 'mode', category: 'mode' }, { configId: 'model' }, { configId: 'effort' }],
      availableCommands: [{ type: 'command', name: 'apply' }, { name: 'run' }, { name: 'undo' }],
    })
    const { sessionId } = opened
    const set = (configId: string, value: string) =>
      agent.request(methods.agent.session.setConfigOption, { sessionId, configId, type: 'id', value })
    await expect(set('mode', 'none')).rejects.toMatchObject({ code: -32602 })
    expect(await set('mode', 'plan')).toMatchObject({ configOptions: [{ currentValue: 'plan' }, {}, {}] })
    expect((await ask2(editor, sessionId, 'Plan it.'))[1]).toBe('idle end_turn')
    const plans = editor.updates.filter(({ sessionUpdate }) => sessionUpdate === 'plan_update')
    expect(plans.at(-1)).toMatchObject({
      plan: { type: 'items', planId: 'plan', entries: [{ content: 'one', status: 'pending' }, {}] },
    })
    const empty = agent.request(methods.agent.session.prompt, {
      sessionId,
      prompt: [{ type: 'text', text: ' ' }],
    })
    await expect(empty).rejects.toMatchObject({ code: -32602 })
    const stdio = { type: 'stdio' as const, name: 'x', command: '/bin/true' }
    const refused = agent.request(methods.agent.session.new, { cwd, mcpServers: [stdio] })
    await expect(refused).rejects.toMatchObject({ code: -32602 })
    expect(editor.faults).toEqual([])
    await editor.close()
  })

  it('takes files and images with a prompt, and a form as the answer to a question [H.03 S2.16]', async () => {
    const asked: string[] = []
    const place = await editorPlace(machine(), { 'a.txt': 'saved\n' }, (given) => {
      asked.push(JSON.stringify(given.messages))
      return hasResult(given)
        ? reply({ text: 'I see.' })
        : call('ask_user', { question: 'Which color?', kind: 'text' })
    })
    const editor = await openEditor2(place, {
      capabilities: { elicitation: { form: {} } },
      fill: () => ({ action: 'accept', content: { answer: 'blue' } }),
    })
    const sessionId = await newSession2(editor, place.workspace)
    const uri = pathToFileURL(path.join(place.workspace, 'a.txt')).href
    await editor.agent.request(methods.agent.session.prompt, {
      sessionId,
      prompt: [
        { type: 'text', text: 'Read ' },
        { type: 'resource', resource: { uri, text: 'not saved\n' } },
      ],
    })
    await expect.poll(() => editor.states().at(-1), { timeout: 60_000 }).toBe('idle end_turn')
    expect(asked[0]).toContain('Read `a.txt`')
    expect(asked[1]).toContain('blue')
    expect(editor.forms).toMatchObject([{ mode: 'form', sessionId }])
    const image = { type: 'image' as const, data: 'no image', mimeType: 'image/png' }
    const pasted = editor.agent.request(methods.agent.session.prompt, {
      ...{ sessionId, prompt: [{ type: 'text', text: 'Look' }, image] },
    })
    await expect(pasted).rejects.toMatchObject({ code: -32602 })
    expect(editor.faults).toEqual([])
    await editor.close()
  })

  it('lists, shows again, continues, closes and deletes sessions [H.03 S1.11]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, deletes)
    const { workspace: cwd, host } = place
    const first = await openEditor2(place)
    const sessionId = await newSession2(first, cwd)
    const prompt = [{ type: 'text' as const, text: 'Delete a.txt' }]
    const { messageId } = await first.agent.request(methods.agent.session.prompt, { sessionId, prompt })
    await expect.poll(() => first.permissions.length, { timeout: 60_000 }).toBe(1)
    await expect.poll(() => first.states().at(-1)).toBe('requires_action')
    first.program.child.kill('SIGKILL')
    await first.program.ended

    const second = await openEditor2(place, { permit: choose2('allow_once') })
    const { sessions } = await second.agent.request(methods.agent.session.list, { cwd })
    expect(sessions).toMatchObject([{ sessionId, cwd, title: 'Delete a.txt' }])
    await second.agent.request(methods.agent.session.resume, {
      sessionId,
      cwd,
      replayFrom: { type: 'start' },
    })
    await expect.poll(() => second.states()[0]).toBe('running')
    expect(second.updates[0]).toMatchObject({
      ...{ sessionUpdate: 'user_message_chunk', messageId, content: { text: 'Delete a.txt' } },
    })
    await expect.poll(() => second.states().at(-1), { timeout: 60_000 }).toBe('idle end_turn')
    expect(existsSync(path.join(cwd, 'a.txt'))).toBe(false)
    await second.agent.request(methods.agent.session.close, { sessionId })
    await second.agent.request(methods.agent.session.close, { sessionId })

    const third = await openEditor2(place)
    await third.agent.request(methods.agent.session.resume, { sessionId, cwd })
    // The client hands updates over by themselves, also behind the answer.
    await expect.poll(() => third.states()).toEqual(['idle'])
    expect(third.updates.map(({ sessionUpdate }) => sessionUpdate)).toEqual(['state_update'])
    await third.agent.request(methods.agent.session.delete, { sessionId })
    expect(await host.runs.list()).toEqual([])
    for (const { faults } of [first, second, third]) expect(faults).toEqual([])
    await Promise.all([second.close(), third.close()])
  })

  it('cancels work: a closed session has its end before it is closed [H.03 S1.11]', async () => {
    const place = await editorPlace(machine(), {}, () =>
      call('run_bash', { command: 'for i in $(seq 300); do sleep 0.1; done' }),
    )
    const editor = await openEditor2(place)
    const isAtWork = () => editor.updates.some(({ sessionUpdate }) => sessionUpdate === 'tool_call_update')
    for (const how of ['cancel', 'close'] as const) {
      editor.updates.length = 0
      const sessionId = await newSession2(editor, place.workspace)
      const prompt = [{ type: 'text' as const, text: 'Wait.' }]
      await editor.agent.request(methods.agent.session.prompt, { sessionId, prompt })
      await expect.poll(isAtWork, { timeout: 60_000 }).toBe(true)
      if (how === 'close') await editor.agent.request(methods.agent.session.close, { sessionId })
      else {
        await editor.agent.notify(methods.agent.session.cancel, { sessionId })
        await expect.poll(() => editor.states().length, { timeout: 60_000 }).toBe(2)
      }
      expect(editor.states()).toEqual(['running', 'idle cancelled'])
    }
    expect(editor.faults).toEqual([])
    await editor.close()
  })
})
