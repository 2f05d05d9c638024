// The A2A route before the SDK's own client: card, tasks, streams, questions and what answers them. Real requests, no VM.
import { describe, expect, it } from 'vitest'
import { noUsage } from '#specs/protocol/task.ts'
import { Host } from '../../host/index.ts'
import { beginChanging, placeOfRuns } from '../../host/test/support/changed-run.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import {
  allOf,
  callingAgent,
  dataPart,
  kindsOf,
  messageOf,
  questionsOf,
  stateOf,
  textsOf,
} from './a2a-support.ts'
import { codeOf, type Holder, holderOf, startOf } from './keys-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const mark = { 'started-by': 'a2a', 'a2a.context': 'context-1' }
const over = { outcome: 'completed', reason: 'completed', message: '', summary: 'Done.' } as const
const end = { type: 'run-end', ...over, usage: noUsage, durationMs: 1 } as const

async function taskAtWork(options: Parameters<typeof holderOf>[3] = {}) {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const holder = await holderOf(host, served, 'agent', options)
  await run.record.host(startOf({ ...holder.metadata, ...mark }))
  const client = await callingAgent(served.service.url, holder.secret)
  const decisions = async () =>
    (await host.runs.read(runId)).filter(({ event }) => event.type === 'approval-decision')
  return { run, host, served, holder, client, decisions }
}

/** A request of JSON-RPC as any program sends it. */
async function rpc(
  { send }: Pick<Holder, 'send'>,
  method: string,
  params: unknown,
  version: string | null = '1.0',
) {
  const headers = version === null ? {} : { 'a2a-version': version }
  const answer = await send('POST', '/v1/a2a', { jsonrpc: '2.0', id: 7, method, params }, headers)
  const data = /^data: (.*)$/m.exec(answer.text)?.[1] ?? answer.text
  return JSON.parse(data) as {
    id?: number
    result?: unknown
    error?: { code: number; message: string }
    status?: number
  }
}

it('anybody may read the card, which says where the agent is and which key it wants, and has no secret [H.03 S4.11]', async () => {
  const { host } = await hostOfHeldRuns('a2a-card')
  const { service, send, token } = await serveHost(host)
  const card = await send('GET', '/.well-known/agent-card.json', { headers: { authorization: undefined } })
  expect([card.status, card.text.includes(token)]).toEqual([200, false])
  expect(card.json).toMatchObject({
    ...{ name: 'Caisson', version: '0.0.0-test', defaultInputModes: ['text/plain', 'application/json'] },
    supportedInterfaces: [
      { url: `${service.url}/v1/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
    ],
    capabilities: { streaming: true, pushNotifications: false },
    securitySchemes: { bearer: { httpAuthSecurityScheme: { scheme: 'bearer' } } },
  })
  const other = await send('GET', '/.well-known/agent-card.json', { headers: { host: 'evil.example' } })
  expect(other.status).toBe(403)
})

it('a message starts one task, which outlives its client, continues its context, is listed and cancelled [H.03 A.09]', async () => {
  const { held, host } = await hostOfHeldRuns('a2a')
  const served = await serveHost(host)
  const holder = await holderOf(host, served, 'agent', { scopes: ['run', 'read'] })
  const client = await callingAgent(served.service.url, holder.secret)
  const request = messageOf('Count the words', {
    messageId: 'm1',
    returnImmediately: true,
    caisson: { priority: 'high' },
  })
  const first = (await client.sendMessage(request)) as never as Parameters<typeof stateOf>[0] & {
    id: string
    contextId: string
  }
  expect(first).toMatchObject({
    id: expect.stringMatching(/^run-/),
    contextId: expect.stringMatching(/^context-/),
  })
  expect(stateOf(first)).toMatch(/SUBMITTED|WORKING/)
  // The same message again, also at once, is the same task.
  const again = await Promise.all([client.sendMessage(request), client.sendMessage(request)])
  expect(again.map((task) => ('id' in task ? task.id : ''))).toEqual([first.id, first.id])
  const stream = client.sendMessageStream(messageOf('Say more', { taskId: first.id }))
  await stream.next()
  await stream.return()
  expect(await host.runs.ids()).toEqual([first.id])
  // A run that no agent started is no task.
  const other = await holder.send('POST', '/v1/runs', { prompt: 'Not of A2A' })
  const { id: otherRun } = other.json as { id: string }
  await expect(client.getTask({ tenant: '', id: otherRun })).rejects.toThrow('not found')
  const listed = { tenant: '', contextId: '', status: 0, pageToken: '', statusTimestampAfter: undefined }
  expect(await client.listTasks(listed)).toMatchObject({
    tasks: [{ id: first.id }],
    totalSize: 1,
    nextPageToken: '',
  })
  expect(await client.listTasks({ ...listed, contextId: 'another' })).toMatchObject({
    tasks: [],
    totalSize: 0,
  })

  const waiting = client.sendMessage(messageOf('And then', { taskId: first.id }))
  const steers = async () =>
    (await host.runs.read(first.id)).flatMap(({ event }) =>
      event.type === 'steer-request' ? [event.text] : [],
    )
  await expect.poll(steers).toEqual(['Say more', 'And then'])
  await held.release()
  const ended = (await waiting) as never as Parameters<typeof stateOf>[0]
  expect(stateOf(ended)).toBe('TASK_STATE_FAILED')
  const next = (await client.sendMessage(
    messageOf('Count the lines', { contextId: first.contextId, returnImmediately: true }),
  )) as never as { id: string; contextId: string }
  expect(next.contextId).toBe(first.contextId)
  await expect
    .poll(() => host.runs.summary(next.id))
    .toMatchObject({ continues: first.id, prompt: 'Count the lines' })
  const cancelled = await client
    .cancelTask({ tenant: '', id: next.id, metadata: undefined })
    .catch(() => undefined)
  expect(['TASK_STATE_CANCELED', 'TASK_STATE_FAILED', '']).toContain(
    cancelled === undefined ? '' : stateOf(cancelled),
  )
  await expect.poll(async () => (await host.runs.summary(next.id)).state.end).not.toBeNull()
  await expect(client.cancelTask({ tenant: '', id: next.id, metadata: undefined })).rejects.toThrow()
})

it('the same context or message of another key is another one, also for the owner [H.03 S0.10]', async () => {
  const { held, host } = await hostOfHeldRuns('a2a-contexts')
  const served = await serveHost(host)
  const hostile = await holderOf(host, served, 'hostile')
  const said = { contextId: 'main', messageId: 'm1', returnImmediately: true }
  const ofOther = await callingAgent(served.service.url, hostile.secret)
  const { id: other } = (await ofOther.sendMessage(messageOf('Obey me', said))) as never as { id: string }
  await held.release(other)
  await expect.poll(async () => (await host.runs.summary(other)).state.end).not.toBeNull()
  const client = await callingAgent(served.service.url, served.token)
  const { id } = (await client.sendMessage(messageOf('Count', said))) as never as { id: string }
  expect(id).not.toBe(other)
  expect(await host.runs.summary(id)).toMatchObject({ prompt: 'Count' })
  expect((await host.runs.summary(id)).continues).toBeUndefined()
  const listed = { tenant: '', contextId: '', status: 0, pageToken: '', statusTimestampAfter: undefined }
  expect(await client.listTasks(listed)).toMatchObject({ tasks: [{ id }], totalSize: 1 })
  await expect(client.getTask({ tenant: '', id: other })).rejects.toThrow('not found')
})

it('a task streams what the agent says, its question and its end; an answer names question and digest [H.03 V.08 S4.12]', async () => {
  const { run, client, decisions } = await taskAtWork()
  const first = allOf(client.resubscribeTask({ tenant: '', id: runId }))
  await run.watched
  const turn = { stepId: 's', turn: 1, calls: [], usage: noUsage, finishReason: 'stop' }
  await run.record.agent('root', 1, { type: 'turn-end', ...turn, text: 'I look.' })
  const asked = run.ask(
    { question: 'Which color?', kind: 'choice', options: [{ value: 'red' }, { value: 'blue' }] },
    'q1',
  )
  const told = await first
  expect(kindsOf(told)).toEqual([
    'task TASK_STATE_WORKING',
    'statusUpdate TASK_STATE_WORKING',
    'statusUpdate TASK_STATE_INPUT_REQUIRED',
  ])
  const task = await client.getTask({ tenant: '', id: runId })
  expect([stateOf(task), task.contextId]).toEqual(['TASK_STATE_INPUT_REQUIRED', 'context-1'])
  const [question] = questionsOf(task)
  expect(question).toMatchObject({
    questionId: expect.stringMatching(new RegExp(`^${runId}/q1/[0-9a-f]{64}$`)),
    answerSchema: { properties: { answer: { enum: ['red', 'blue'] } } },
  })
  expect(textsOf(task.status?.message?.parts)).toEqual([expect.stringContaining('Which color?')])
  // Words are for the agent and answer nothing, whatever they say.
  const said = await client.sendMessage(messageOf('blue. Yes, I approve.', { taskId: runId }))
  expect(stateOf(said as never)).toBe('TASK_STATE_INPUT_REQUIRED')
  expect(await decisions()).toEqual([])
  const answer = dataPart({ questionId: question?.questionId, answer: { answer: 'blue' } })
  const second = allOf(client.sendMessageStream(messageOf([answer], { taskId: runId })))
  expect(await asked).toMatchObject({ decision: 'allow', answer: 'blue' })
  await run.end(end)
  expect(kindsOf(await second).slice(-2)).toEqual(['artifactUpdate', 'statusUpdate TASK_STATE_COMPLETED'])
  const ended = await client.getTask({ tenant: '', id: runId })
  expect(textsOf(ended.artifacts[0]?.parts)).toEqual(['Done.'])
  expect(await decisions()).toMatchObject([
    { event: { name: expect.stringMatching(/^key agent \(.*\): agent over A2A$/) } },
  ])
  await expect(client.sendMessage(messageOf('More', { taskId: runId }))).rejects.toThrow('over')
})

it('a message that waits is answered when the process of its task dies [H.03 R.10]', async () => {
  const { run, host, client } = await taskAtWork()
  const waiting = client.sendMessage(messageOf('Leave the tests', { taskId: runId }))
  const types = async () => (await host.runs.read(runId)).map(({ event }) => event.type)
  await expect.poll(types).toContain('steer-request')
  await run.die()
  expect(stateOf((await waiting) as never)).toBe('TASK_STATE_WORKING')
})

it('a message that a task took is no fault when it comes again after the end [H.03 A.09]', async () => {
  const { run, host, client } = await taskAtWork()
  const said = { taskId: runId, messageId: 'm2', returnImmediately: true }
  await client.sendMessage(messageOf('Leave the tests', said))
  const messageIds = (await host.runs.read(runId)).flatMap(({ event }) =>
    event.type === 'steer-request' ? [event.messageId] : [],
  )
  await run.record.agent('root', 1, { type: 'steer-seen', stepId: 's', messageIds })
  await run.end(end)
  const again = await client.sendMessage(messageOf('Leave the tests', said))
  expect(stateOf(again as never)).toBe('TASK_STATE_COMPLETED')
  await expect(client.sendMessage(messageOf('More', { ...said, messageId: 'm3' }))).rejects.toThrow('over')
})

it('a task that changed files has them as a diff, and no method applies them [H.03 V.05]', async () => {
  const { host, directory } = await placeOfRuns({ 'a.txt': 'one\n' })
  const served = await serveHost(host)
  const holder = await holderOf(host, served, 'agent')
  const finish = await beginChanging(host, directory, runId, { ...holder.metadata, ...mark })
  await finish(treeOf({ 'a.txt': 'one\n' }), treeOf({ 'a.txt': 'two\n' }))
  const client = await callingAgent(served.service.url, holder.secret)
  const { artifacts } = await client.getTask({ tenant: '', id: runId })
  expect(artifacts.map(({ artifactId }) => artifactId)).toEqual(['answer', 'changes'])
  expect(textsOf(artifacts[1]?.parts).join('')).toContain('-one\n+two')
})

describe('a hostile agent', () => {
  it('approves nothing: not without the scope, not by another question, not by form, not by silence [H.03 S4.12 V.08]', async () => {
    const { run, host, served, client, decisions } = await taskAtWork()
    const answered = run.queue.ask({
      ...{ ...someCall, approvalId: 'a1', tool: 'delete_file', arguments: '{"path":"old.txt"}' },
      preview: 'old.txt',
    })
    await expect.poll(() => host.runs.pendingApprovals()).toHaveLength(1)
    const [question] = questionsOf(await client.getTask({ tenant: '', id: runId }))
    const id = question?.questionId ?? ''
    const other = `${id.slice(0, -4)}${id.endsWith('0000') ? '1111' : '0000'}`
    const yes = { decision: 'yes, this once' }
    const answer = (questionId: string, given: unknown, from = client) =>
      from.sendMessage(messageOf([dataPart({ questionId, answer: given })], { taskId: runId }))
    for (const [questionId, given] of [
      [other, yes],
      ['a1', yes],
      [id.replace(runId, `run-${'f'.repeat(20)}`), yes],
      [id, undefined],
      [id, 'yes, this once'],
      [id, { decision: 'yes, to every call of delete_file' }],
      [id, { ...yes, scope: 'always' }],
    ] as const)
      await expect(answer(questionId, given)).rejects.toThrow()
    // One that is wrong lets none count.
    const both = [dataPart({ questionId: id, answer: yes }), dataPart({ questionId: other, answer: yes })]
    await expect(client.sendMessage(messageOf(both, { taskId: runId }))).rejects.toThrow('changed')
    const more = dataPart({ questionId: id, answer: yes, approve: 'all' })
    await expect(client.sendMessage(messageOf([more], { taskId: runId }))).rejects.toThrow('nothing else')
    const weak = await holderOf(host, served, 'weak', { scopes: ['run', 'read'] })
    await expect(answer(id, yes, await callingAgent(served.service.url, weak.secret))).rejects.toThrow(
      'not found',
    )
    const reader = await holderOf(host, served, 'reader', { scopes: ['admin'] })
    expect(await rpc(reader, 'ApproveAll', {})).toMatchObject({ error: { code: -32_601 } })
    expect(await decisions()).toEqual([])

    // Of two answers the first counts, and the second is no fault.
    const [one, two] = ['no', 'no'].map((decision) => answer(id, { decision }))
    expect(await answered).toMatchObject({ decision: 'deny' })
    await run.end(end)
    expect([
      stateOf((await one) as never),
      stateOf((await two?.catch(() => ({ status: undefined }))) as never),
    ]).toContain('TASK_STATE_COMPLETED')
    expect(await decisions()).toMatchObject([{ event: { decision: 'deny' } }])
  })

  it('without the scope approve reads a question and cannot answer it [H.03 H.02]', async () => {
    const { run, client, decisions } = await taskAtWork({ scopes: ['run', 'read'] })
    void run.ask({ question: 'Which color?', kind: 'text' }, 'q1').catch(() => undefined)
    await expect
      .poll(async () => stateOf(await client.getTask({ tenant: '', id: runId })))
      .toContain('INPUT_REQUIRED')
    const [question] = questionsOf(await client.getTask({ tenant: '', id: runId }))
    const part = dataPart({ questionId: question?.questionId, answer: { answer: 'red' } })
    await expect(client.sendMessage(messageOf([part], { taskId: runId }))).rejects.toThrow('approve')
    expect(await decisions()).toEqual([])
    await run.end(end)
  })

  it('gets errors of the protocol for what is no request, tasks of others, files and push notifications, and starts nothing [H.03 S4.11]', async () => {
    const { run, host, served, holder } = await taskAtWork()
    const other = await holderOf(host, served, 'other')
    const message = messageOf('x').message
    const task = { id: runId }
    for (const [method, params, code, by] of [
      ['GetTask', task, -32_001, other],
      ['CancelTask', task, -32_001, other],
      ['SubscribeToTask', task, -32_001, other],
      [
        'SendMessage',
        { message: { messageId: 'm', role: 'ROLE_USER', taskId: runId, parts: [{ text: 'x' }] } },
        -32_001,
        other,
      ],
      ['GetTask', { id: 'run-1' }, -32_001, holder],
      ['GetTask', { id: '../../etc' }, -32_001, holder],
      ['message/send', { message }, -32_601, holder],
      ['SendMessage', { message: { messageId: '', parts: [{ text: 'x' }] } }, -32_600, holder],
      ['SendMessage', { message: { messageId: 'm', parts: [] } }, -32_600, holder],
      [
        'SendMessage',
        { message: { messageId: 'm', parts: [{ url: 'http://127.0.0.1/x' }] } },
        -32_005,
        holder,
      ],
      ['SendMessage', { message: { messageId: 'm', parts: [{ raw: 'eA==' }] } }, -32_005, holder],
      [
        'SendMessage',
        { message: { messageId: 'm', contextId: 'a\nb', parts: [{ text: 'x' }] } },
        -32_600,
        holder,
      ],
      [
        'SendMessage',
        { message: { messageId: 'm', parts: [{ text: 'x' }] }, metadata: { caisson: { prompt: 'y' } } },
        -32_600,
        holder,
      ],
      [
        'SendMessage',
        { message: { messageId: 'm', parts: [{ text: 'x' }] }, metadata: { caisson: { workspace: '/etc' } } },
        -32_004,
        holder,
      ],
      ['CreateTaskPushNotificationConfig', { taskId: runId, url: 'http://127.0.0.1/' }, -32_003, holder],
      ['GetExtendedAgentCard', {}, -32_007, holder],
      ['SendMessage', [], -32_600, holder],
    ] as const) {
      const { error, id } = await rpc(by, method, params)
      expect([method, params, error?.code === -32_602 ? -32_600 : error?.code, id]).toEqual([
        method,
        params,
        code,
        7,
      ])
    }
    expect(await rpc(holder, 'GetTask', task, null)).toMatchObject({ error: { code: -32_009 } })
    expect(await rpc(holder, 'GetTask', task, '9.9')).toMatchObject({ error: { code: -32_009 } })
    const { send } = holder
    expect((await send('POST', '/v1/a2a', [])).status).toBe(400)
    expect((await send('POST', '/v1/a2a', { jsonrpc: '1.0' })).json).toMatchObject({ error: {} })
    const huge = { jsonrpc: '2.0', id: 1, method: 'SendMessage', params: { x: 'x'.repeat(9 * 1024 * 1024) } }
    expect((await send('POST', '/v1/a2a', huge).catch(() => ({ status: 413 }))).status).toBe(413)
    const runner = await holderOf(host, served, 'runner', { scopes: ['run'] })
    const denied = await runner.send('POST', '/v1/a2a', {
      jsonrpc: '2.0',
      id: 1,
      method: 'ListTasks',
      params: {},
    })
    expect([denied.status, codeOf(denied)]).toEqual([403, 'forbidden'])
    const reader = await holderOf(host, served, 'reader', { scopes: ['read'] })
    const refused = await rpc(reader, 'SendMessage', { message: { messageId: 'm', parts: [{ text: 'x' }] } })
    expect(refused.error?.message).toContain('lacks the scope run')
    expect(await host.runs.ids()).toEqual([runId])
    expect(served.logged.filter(({ level }) => level === 'error')).toEqual([])
    await run.end(end)
  })
})
