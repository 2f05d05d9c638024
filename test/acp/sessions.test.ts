// Sessions that outlive their editor: a real `caisson acp` that is killed, and the one that comes after it.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { methods } from '@agentclientprotocol/sdk'
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import {
  ask,
  call,
  choose,
  editorPlace,
  hasResult,
  newSession,
  openEditor,
  type TestEditor,
  useMachine,
  vmFlags,
} from './support.ts'

const machine = useMachine()

const sessionsOf = async ({ agent }: TestEditor, cwd: string) =>
  (await agent.request(methods.agent.session.list, { cwd })).sessions

it('a run stays when its editor dies at a question: nothing is allowed, and the next editor is asked [H.03 S1.11]', async () => {
  const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
    hasResult(asked) ? reply({ text: 'It is gone.' }) : call('delete_file', { path: 'a.txt' }),
  )
  const { workspace: cwd, host } = place
  const first = await openEditor(place)
  const sessionId = await newSession(first, cwd)
  void ask(first, sessionId, 'Delete a.txt').catch(() => undefined)
  await expect.poll(() => first.permissions.length, { timeout: 60_000 }).toBe(1)
  first.program.child.kill('SIGKILL')
  await first.program.ended
  const [run] = await host.runs.list()
  expect(run).toMatchObject({ isLive: true, pendingApprovals: 1, metadata: { 'acp.session': sessionId } })

  // One that closes the connection in order, with the same question open.
  const between = await openEditor(place)
  await between.agent.request(methods.agent.session.resume, { sessionId, cwd, mcpServers: [] })
  await expect.poll(() => between.permissions.length, { timeout: 60_000 }).toBe(1)
  await between.close()
  expect(await between.program.ended).toBe(0)
  expect((await host.runs.list())[0]).toMatchObject({ isLive: true, pendingApprovals: 1 })

  const second = await openEditor(place, { permit: choose('allow_once') })
  expect(await sessionsOf(second, cwd)).toMatchObject([{ sessionId, cwd, title: 'Delete a.txt' }])
  await expect(second.agent.request(methods.agent.session.delete, { sessionId })).rejects.toMatchObject({
    message: expect.stringContaining('cancel it first'),
  })
  await second.agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] })
  expect(second.updates[0]).toMatchObject({
    ...{ sessionUpdate: 'user_message_chunk', content: { text: 'Delete a.txt' } },
  })
  await expect.poll(() => second.said(), { timeout: 60_000 }).toContain('Applied 1 change')
  expect(second.permissions.map(({ toolCall }) => toolCall.kind)).toEqual(['delete', 'edit'])
  expect(existsSync(path.join(cwd, 'a.txt'))).toBe(false)

  // What the next one shows again, and what is left of the session.
  const third = await openEditor(place)
  await third.agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] })
  expect(third.said()).toContain('It is gone.')
  expect(third.permissions).toEqual([])
  await third.agent.request(methods.agent.session.delete, { sessionId })
  expect(await sessionsOf(third, cwd)).toEqual([])
  expect(await host.runs.list()).toEqual([])
  await expect(
    third.agent.request(methods.agent.session.resume, { sessionId, cwd, mcpServers: [] }),
  ).rejects.toMatchObject({ code: -32002 })
  for (const { faults } of [first, between, second, third]) expect(faults).toEqual([])
  await Promise.all([second.close(), third.close()])
}, 180_000)

it('a session that is closed ends its run; a message while it works reaches the agent [H.03 A.08]', async () => {
  const place = await editorPlace(machine(), {}, ({ text }) =>
    text.includes('Look at the clock')
      ? reply({ text: 'I looked.' })
      : call('run_bash', { command: 'for i in $(seq 300); do sleep 0.1; [ -e stop ] && break; done' }),
  )
  const { workspace: cwd, host } = place
  const editor = await openEditor(place)
  const sessionId = await newSession(editor, cwd)
  const turn = ask(editor, sessionId, 'Wait.')
  const isAtWork = () => editor.updates.some((update) => update.sessionUpdate === 'tool_call')
  await expect.poll(isAtWork, { timeout: 60_000 }).toBe(true)
  const prompt = [
    { type: 'text' as const, text: 'Look at the clock' },
    { type: 'resource' as const, resource: { uri: 'file:///elsewhere/clock', text: 'not saved' } },
  ]
  const message = editor.agent
    .request(methods.agent.session.prompt, { sessionId, prompt })
    .then((answer) => (answer as { stopReason: string }).stopReason)
  const sent = async () => {
    const [run] = await host.runs.list()
    return (await host.runs.read(run?.id ?? '')).some(({ event }) => event.type === 'steer-request')
  }
  await expect.poll(sent, { timeout: 30_000 }).toBe(true)
  expect(JSON.stringify(editor.updates)).toContain('it gets the words of a message alone')
  await editor.agent.request(methods.agent.session.close, { sessionId })
  expect((await Promise.all([turn, message])).sort()).toEqual(['cancelled', 'cancelled'])
  const ended = async () => (await host.runs.list())[0]?.state.end?.outcome
  await expect.poll(ended, { timeout: 60_000 }).toBe('cancelled')
  await expect(ask(editor, sessionId, 'More.')).rejects.toMatchObject({ code: -32002 })
  await editor.close()
}, 180_000)

it.each(['the same editor', 'the next editor'])(
  'a run that sleeps at a question is woken by the answer in %s [H.03 R.12]',
  async (who) => {
    const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
      hasResult(asked) ? reply({ text: 'It is gone.' }) : call('delete_file', { path: 'a.txt' }),
    )
    const { workspace: cwd } = place
    const flags = [...vmFlags, '-c', 'vm.sleepAfterMs=300']
    const isSleeping = Promise.withResolvers<void>()
    const first = await openEditor(place, {
      flags,
      permit: async (request) => {
        if (request.toolCall.kind === 'delete') await isSleeping.promise
        return choose('allow_once')(request)
      },
    })
    const sessionId = await newSession(first, cwd)
    const turn = ask(first, sessionId, 'Delete a.txt').catch(() => 'its editor is gone')
    const status = async () => (await place.host.runs.list())[0]?.status
    await expect.poll(status, { timeout: 60_000 }).toBe('sleeping')
    let editor = first
    if (who === 'the same editor') isSleeping.resolve()
    else {
      first.program.child.kill('SIGKILL')
      editor = await openEditor(place, { flags, permit: choose('allow_once') })
      await editor.agent.request(methods.agent.session.load, { sessionId, cwd, mcpServers: [] })
    }
    expect(await turn).toBe(who === 'the same editor' ? 'end_turn' : 'its editor is gone')
    await expect.poll(() => editor.said(), { timeout: 60_000 }).toContain('Applied 1 change')
    expect(editor.permissions.map(({ toolCall }) => toolCall.kind)).toEqual(['delete', 'edit'])
    expect(existsSync(path.join(cwd, 'a.txt'))).toBe(false)
    expect(editor.faults).toEqual([])
    await editor.close()
  },
  180_000,
)

it('a run is carried out by the service of the user while it runs [H.03 H.02]', async () => {
  const place = await editorPlace(machine(), { 'a.txt': 'a\n' }, (asked) =>
    hasResult(asked) ? reply({ text: 'It is gone.' }) : call('delete_file', { path: 'a.txt' }),
  )
  const service = place.start('serve', '--port', '0')
  await expect.poll(() => service.errors(), { timeout: 60_000 }).toContain('Caisson listens on')
  const editor = await openEditor(place, {
    flags: vmFlags.filter((flag) => flag !== '--no-template'),
    permit: choose('allow_once'),
  })
  expect(await ask(editor, await newSession(editor, place.workspace), 'Delete a.txt')).toBe('end_turn')
  expect(existsSync(path.join(place.workspace, 'a.txt'))).toBe(false)
  const [run] = await place.host.runs.list()
  expect(existsSync(place.host.runs.paths(run?.id ?? '').hostLog)).toBe(false)
  expect(editor.faults).toEqual([])
  await editor.close()
  service.child.kill('SIGTERM')
  await service.ended
}, 180_000)
