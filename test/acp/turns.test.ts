// Turns of an editor's session: a real `caisson acp`, real host and real agent, with a program in the place of QEMU.
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { methods } from '@agentclientprotocol/sdk'
import { describe, expect, it } from 'vitest'
import type { ApprovalRecord } from '#specs/protocol/approval.ts'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked } from '#specs/testing/model-server.ts'
import type { RunStore } from '../../host/index.ts'
import { filesOf } from '../../host/test/acp/support.ts'
import { ask, call, choose, editorPlace, hasResult, newSession, openEditor, useMachine } from './support.ts'

const machine = useMachine()

/** Calls these tools one after another, then says so. */
const calling =
  (...calls: ReturnType<typeof call>[]) =>
  ({ messages }: Asked) =>
    calls[messages.filter(({ role }) => role === 'tool').length] ?? reply({ text: 'It is done.' })

async function decisionsOf(runs: RunStore): Promise<Partial<ApprovalRecord>[]> {
  const [run] = await runs.list()
  const events = await runs.read(run?.id ?? '')
  return events.flatMap(({ event }) => (event.type === 'approval-decision' ? [event] : []))
}

describe('a turn', { timeout: 90_000 }, () => {
  it('shows what the agent says and does, and applies its changes only when the person says so [H.03 S0.10]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'one\ntwo\n' }, (asked) =>
      hasResult(asked)
        ? reply({ text: ['I changed ', 'the file.'], reasoning: 'Hm.' })
        : call('edit_file', { path: 'a.txt', oldText: 'two', newText: 'three' }),
    )
    const file = path.join(place.workspace, 'a.txt')
    const editor = await openEditor(place, { permit: choose('Do not apply') })
    const session = await newSession(editor, place.workspace)
    expect(await ask(editor, session, 'Change it.')).toBe('end_turn')
    expect(editor.said()).toContain('I changed the file.')
    expect(await readFile(file, 'utf8')).toBe('one\ntwo\n')
    const of = (kind: string) => editor.updates.filter(({ sessionUpdate }) => sessionUpdate === kind)
    expect(of('agent_thought_chunk')).toMatchObject([{ content: { text: 'Hm.' } }, {}])
    expect(of('tool_call')[0]).toMatchObject({
      ...{ title: 'edit_file: a.txt', kind: 'edit', status: 'in_progress', locations: [{ path: file }] },
    })
    expect(of('tool_call_update')[0]).toMatchObject({
      status: 'completed',
      content: [{ type: 'diff', path: file, oldText: 'one\ntwo', newText: 'one\nthree' }],
    })
    expect(of('usage_update').at(-1)).toMatchObject({ used: 15 })
    expect(editor.permissions).toMatchObject([
      { toolCall: { content: [{ type: 'diff', oldText: 'one\ntwo\n', newText: 'one\nthree\n' }] } },
    ])
    expect(await ask(editor, session, '/apply')).toBe('end_turn')
    expect(await readFile(file, 'utf8')).toBe('one\nthree\n')
    expect(await ask(editor, session, '/undo')).toBe('end_turn')
    expect(await readFile(file, 'utf8')).toBe('one\ntwo\n')
    expect(editor.faults).toEqual([])
    await editor.close()
  })

  it('in the mode apply applies its changes without a question, in the mode plan makes a plan alone [H.03 W.01]', async () => {
    const steps = ['one', 'two'].map((id) => ({ id, title: id, instructions: `Do step ${id}` }))
    const place = await editorPlace(machine(), {}, (asked) => {
      if (asked.text.includes('Do step one') && !asked.text.includes('submit_plan'))
        return reply({ text: 'Done.' })
      if (asked.text.includes('Plan it.')) return call('submit_plan', { goal: 'Both', steps })
      return calling(call('write_file', { path: 'new.txt', content: 'new\n' }))(asked)
    })
    const editor = await openEditor(place)
    const session = await newSession(editor, place.workspace)
    const setMode = (modeId: string) =>
      editor.agent.request(methods.agent.session.setMode, { sessionId: session, modeId })
    await setMode('apply')
    expect(await ask(editor, session, 'Write it.')).toBe('end_turn')
    expect(await readFile(path.join(place.workspace, 'new.txt'), 'utf8')).toBe('new\n')
    expect(editor.permissions).toEqual([])
    await expect(setMode('none')).rejects.toMatchObject({ code: -32602 })
    await setMode('plan')
    expect(await ask(editor, session, 'Plan it.')).toBe('end_turn')
    const plans = editor.updates.filter(({ sessionUpdate }) => sessionUpdate === 'plan')
    expect(plans.at(-1)).toMatchObject({
      entries: [
        { content: 'one', status: 'pending' },
        { content: 'two', status: 'pending' },
      ],
    })
    const [newest, first] = await place.host.runs.list()
    await setMode('apply')
    const setOption = (configId: string, value: string) =>
      editor.agent.request(methods.agent.session.setConfigOption, { sessionId: session, configId, value })
    await expect(setOption('effort', 'utmost')).rejects.toMatchObject({ code: -32602 })
    expect(await setOption('effort', 'low')).toMatchObject({
      configOptions: [{ id: 'mode', currentValue: 'apply' }, { id: 'model' }, { currentValue: 'low' }],
    })
    expect(await ask(editor, session, '/run')).toBe('end_turn')
    const carriedOut = (await place.host.runs.list())[0]
    const start = (await place.host.runs.read(carriedOut?.id ?? ''))[0]?.event
    expect(start).toMatchObject({
      type: 'run-start',
      prompt: 'Plan it.',
      effort: 'low',
      planFrom: newest?.id,
    })
    expect(newest).toMatchObject({ continues: first?.id, metadata: { 'acp.mode': 'plan' } })
    expect(editor.faults).toEqual([])
    await editor.close()
  })

  it('works on what the editor did not save, and is applied through the editor; names are those of the VM [H.03 V.05]', async () => {
    const asked: string[] = []
    const place = await editorPlace(
      machine(),
      { 'a b.txt': 'saved\n', 'same.txt': 'same\n', '.env': 'KEY=of-a-server\n' },
      (given) => {
        asked.push(JSON.stringify(given.messages))
        return calling(
          call('read_file', { path: 'a b.txt' }),
          call('edit_file', { path: 'a b.txt', oldText: 'saved yet', newText: 'saved before' }),
        )(given)
      },
    )
    const at = (name: string) => path.join(place.workspace, name)
    const unsaved = new Map([[at('a b.txt'), 'not saved yet\n']])
    const { read, write } = filesOf(unsaved)
    const editor = await openEditor(place, {
      capabilities: { fs: { readTextFile: true, writeTextFile: true } },
      permit: choose('Apply'),
      ...{ readFile: read, writeFile: write },
    })
    const session = await newSession(editor, place.workspace)
    const link = (name: string) => ({
      ...{ type: 'resource_link' as const, name, uri: pathToFileURL(at(name)).href },
    })
    const text = (words: string) => ({ type: 'text' as const, text: words })
    const outside = { type: 'resource_link' as const, name: 'x', uri: 'file:///etc/hostname' }
    const prompt = [text('Read '), link('a b.txt'), text(' and '), link('same.txt'), outside, link('.env')]
    await editor.agent.request(methods.agent.session.prompt, { sessionId: session, prompt })
    expect(asked[0]).toContain('Read `a b.txt` and `same.txt`')
    expect(asked[0]).toContain('`file:///etc/hostname` (not a file of the workspace)')
    expect(asked[1]).toContain('not saved yet')
    expect(asked.join('')).not.toContain('of-a-server')
    expect(editor.said()).toContain('`.env` likely holds secrets')
    expect(editor.permissions.at(-1)?.toolCall.content).toMatchObject([
      { type: 'diff', oldText: 'not saved yet\n', newText: 'not saved before\n' },
    ])
    expect([await readFile(at('a b.txt'), 'utf8'), unsaved.size]).toEqual(['not saved before\n', 0])
    expect(await ask(editor, session, '/undo')).toBe('end_turn')
    expect(await readFile(at('a b.txt'), 'utf8')).toBe('not saved yet\n')
    expect(editor.faults).toEqual([])
    await editor.close()
  })
})

describe('a question of a run', { timeout: 90_000 }, () => {
  const files = { 'a.txt': 'a\n', 'b.txt': 'b\n' }
  const deletes = calling(call('delete_file', { path: 'a.txt' }), call('delete_file', { path: 'b.txt' }))

  it('is allowed once or for the run, as the person chooses, by the name of the editor [H.03 S1.11]', async () => {
    for (const [kind, asked, scope] of [
      ['allow_once', 2, 'once'],
      ['allow_always', 1, 'run'],
    ] as const) {
      const place = await editorPlace(machine(), files, deletes)
      const editor = await openEditor(place, { permit: choose(kind) })
      const session = await newSession(editor, place.workspace)
      await ask(editor, session, 'Delete both.')
      // The last one is about the changes.
      expect(editor.permissions).toHaveLength(kind === 'allow_once' ? asked + 1 : asked + 1)
      expect(editor.permissions[0]?.toolCall).toMatchObject({ title: 'delete_file: a.txt', kind: 'delete' })
      const [first] = await decisionsOf(place.host.runs)
      expect(first).toMatchObject({ decision: 'allow', scope, by: 'person', name: 'test-editor (ACP)' })
      expect(editor.faults).toEqual([])
      await editor.close()
    }
  })

  it('is denied where the person says so, and decides nothing where the editor has no answer [H.03 S1.11]', async () => {
    const place = await editorPlace(machine(), files, deletes)
    let turn = 0
    const editor = await openEditor(place, {
      permit: (request) => {
        turn += 1
        return turn === 1 ? choose('reject_once')(request) : choose('none of them')(request)
      },
    })
    const session = await newSession(editor, place.workspace)
    const stopped = ask(editor, session, 'Delete both.')
    await expect.poll(() => editor.said(), { timeout: 30_000 }).toContain('The question stays open')
    expect(await decisionsOf(place.host.runs)).toMatchObject([{ decision: 'deny', scope: 'once' }])
    expect(await place.host.runs.pendingApprovals()).toHaveLength(1)
    await editor.agent.notify(methods.agent.session.cancel, { sessionId: session })
    expect(await stopped).toBe('cancelled')
    expect(await decisionsOf(place.host.runs)).toMatchObject([{ decision: 'deny' }, { by: 'cancel' }])
    expect(existsSync(path.join(place.workspace, 'b.txt'))).toBe(true)
    await editor.close()
  })

  it('of the agent is a form, a choice, or the next prompt, as the editor can [H.03 S2.16]', async () => {
    const question = { question: 'Which color?', kind: 'text' }
    const choice = { question: 'Which one?', kind: 'choice', options: [{ value: 'x' }, { value: 'y' }] }
    const questions = calling(call('ask_user', question), call('ask_user', choice))
    const answers = async (runs: RunStore) => (await decisionsOf(runs)).map(({ answer }) => answer)

    const withForms = await editorPlace(machine(), {}, questions)
    const forms = await openEditor(withForms, {
      capabilities: { elicitation: { form: {} } },
      fill: ({ message }) => ({
        action: 'accept',
        content: { answer: message.includes('color') ? 'blue' : 'y' },
      }),
    })
    await ask(forms, await newSession(forms, withForms.workspace), 'Ask me.')
    expect(await answers(withForms.host.runs)).toEqual(['blue', 'y'])
    expect(forms.faults).toEqual([])
    await forms.close()

    const plain = await editorPlace(machine(), {}, questions)
    const words = await openEditor(plain, { permit: choose('y') })
    const session = await newSession(words, plain.workspace)
    expect(await ask(words, session, 'Ask me.')).toBe('end_turn')
    expect(words.said()).toContain('Which color?')
    expect(await ask(words, session, 'green')).toBe('end_turn')
    expect(words.said()).toContain('It is done.')
    expect(await answers(plain.host.runs)).toEqual(['green', 'y'])
    await words.close()
  })
})
