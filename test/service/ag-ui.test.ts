// The AG-UI route before the SDK's own client: events, threads, interrupts and what resumes them. Real requests, no VM.
import { expect, it } from 'vitest'
import { Plan } from '#specs/protocol/plan.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { Host } from '../../host/index.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { beginThread, firstMessage, frontEnd, interruptsOf, typesOf } from './ag-ui-support.ts'
import { holderOf } from './keys-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const usage = { ...noUsage, requests: 1, inputTokens: 10, outputTokens: 5 }
const plan = Plan.parse({
  goal: 'Count',
  steps: [
    { id: 'count', title: 'Count the words', instructions: 'count' },
    { id: 'tell', title: 'Tell the number', instructions: 'tell', needs: ['count'] },
  ],
})

async function threadAtWork(scopes?: Parameters<typeof holderOf>[3]) {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const holder = await holderOf(host, served, 'page', scopes)
  await beginThread(run, holder)
  const front = (messages = [firstMessage]) => frontEnd(served.service.url, holder.secret, { messages })
  return { run, host, served, holder, front }
}

it('a run streams as events of AG-UI: steps, texts, reasoning, calls with results, state and end [H.03 A.09]', async () => {
  const { run, front, served } = await threadAtWork()
  const page = front()
  const events = page.run()
  await run.watched
  const { record } = run
  const agent = (event: Parameters<typeof record.agent>[2], n: number) => record.agent('root', n, event)
  await agent({ type: 'plan-update', revision: 1, plan }, 1)
  await agent({ type: 'step-start', stepId: 'count' }, 2)
  const piece = { stepId: 'count', turn: 1 }
  record.feed.push({
    ...{ source: 'delta', runId, agentPath: 'root' },
    delta: { type: 'text-delta', ...piece, offset: 0, text: 'I cou' },
  })
  const turn = { usage, finishReason: 'tool_calls', calls: [{ callId: 'c1', tool: 'read_file' }] }
  await agent({ type: 'turn-end', ...piece, text: 'I count.', reasoning: 'Words first.', ...turn }, 3)
  const call = { stepId: 'count', callId: 'c1', tool: 'read_file' }
  await agent({ type: 'tool-start', ...call, arguments: '{"path":"a.txt"}' }, 4)
  await agent({ type: 'tool-end', ...call, output: 'one two', durationMs: 1 }, 5)
  const brief = { brief: 'Look', tools: [], limits: {} }
  await record.agent('root/look', 6, { type: 'agent-start', stepId: 'count', ...brief })
  const seen = { text: 'Seen', usage, merged: 0, conflicts: [] }
  const end = { state: 'completed' as const, reason: 'completed' as const, ...seen }
  await record.agent('root/look', 7, { type: 'agent-end', stepId: 'count', ...end })
  await agent({ type: 'step-end', stepId: 'count', state: 'completed', text: 'I count.' }, 8)
  const over = { outcome: 'completed', reason: 'completed', message: '', summary: 'Two words.' } as const
  await run.end({ type: 'run-end', ...over, usage, durationMs: 1 })
  const got = await events
  expect(served.logged.filter(({ level }) => level === 'error')).toEqual([])
  expect(typesOf(got).filter((type) => type !== 'STATE_DELTA')).toEqual([
    ...['RUN_STARTED', 'STATE_SNAPSHOT', 'CUSTOM', 'STEP_STARTED'],
    ...['TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT'],
    ...['REASONING_START', 'REASONING_MESSAGE_START', 'REASONING_MESSAGE_CONTENT'],
    ...['REASONING_MESSAGE_END', 'REASONING_END', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_END'],
    ...['TOOL_CALL_START', 'TOOL_CALL_ARGS', 'TOOL_CALL_END', 'TOOL_CALL_RESULT'],
    ...['SUBAGENT_STARTED', 'SUBAGENT_FINISHED', 'STEP_FINISHED'],
    ...['TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_END', 'RUN_FINISHED'],
  ])
  expect(got.at(-1)).toMatchObject({
    threadId: 'thread-1',
    outcome: { type: 'success' },
    result: { runId, summary: 'Two words.' },
  })
  expect(page.agent.state).toMatchObject({
    caisson: {
      ...{ runId, phase: 'ended', outcome: 'completed', toolCalls: 1 },
      plan: { revision: 1, steps: [{ id: 'count', state: 'completed' }, { title: 'Tell the number' }] },
    },
  })
  const texts = page.agent.messages.map(({ role, content }) => `${role}: ${String(content ?? '')}`)
  expect(texts).toEqual([
    'user: Count the words',
    'assistant: I count.',
    'tool: one two',
    'reasoning: Words first.',
    'assistant: Two words.',
  ])
  expect(page.agent.messages[1]).toMatchObject({
    toolCalls: [{ function: { name: 'read_file', arguments: '{"path":"a.txt"}' } }],
  })
  // Told again, it repeats nothing that the front end has.
  const before = structuredClone(page.agent.messages)
  await page.run()
  expect(page.agent.messages).toEqual(before)
})

it('a question interrupts the stream and the run continues with its answer, which names approval and digest [H.03 V.08 S4.12]', async () => {
  const { run, host, front } = await threadAtWork()
  const page = front()
  const first = page.run()
  await run.watched
  await run.record.agent('root', 1, { type: 'step-start', stepId: 's' })
  const deleted = run.queue.ask({
    ...{ ...someCall, approvalId: 'a1', tool: 'delete_file', arguments: '{"path":"old.txt"}' },
    preview: 'old.txt',
  })
  const interrupts = interruptsOf(await first)
  expect(interrupts).toMatchObject([
    {
      id: expect.stringMatching(new RegExp(`^${runId}/a1/[0-9a-f]{64}$`)),
      reason: 'tool_call',
      message: expect.stringContaining('whether it may call delete_file'),
      toolCallId: expect.stringContaining(runId),
      metadata: { caisson: { approvalId: 'a1' } },
    },
  ])
  expect(await host.runs.pendingApprovals()).toHaveLength(1)
  // Following the thread again answers nothing, and shows the same interrupt.
  const again = front(page.agent.messages as never)
  expect(interruptsOf(await again.run({ resume: [] }))).toEqual(interrupts)
  expect(await host.runs.pendingApprovals()).toHaveLength(1)

  const resume = interrupts.map(({ id }) => ({
    ...{ interruptId: id, status: 'resolved' as const },
    payload: { decision: 'no', hint: 'Keep it' },
  }))
  const second = page.run({ resume })
  expect(await deleted).toMatchObject({ decision: 'deny', hint: 'Keep it' })
  const asked = run.ask(
    { question: 'Which color?', kind: 'choice', options: [{ value: 'red' }, { value: 'blue' }] },
    'q1',
  )
  const [question] = interruptsOf(await second)
  expect(question).toMatchObject({
    reason: 'input_required',
    responseSchema: { properties: { answer: { enum: ['red', 'blue'] } }, required: ['answer'] },
  })
  const third = page.run({
    resume: [{ interruptId: question?.id ?? '', status: 'resolved', payload: { answer: 'blue' } }],
  })
  expect(await asked).toMatchObject({ decision: 'allow', answer: 'blue' })
  const over = { outcome: 'cancelled', reason: 'cancelled', message: 'enough', summary: '' } as const
  await run.end({ type: 'run-end', ...over, usage: noUsage, durationMs: 1 })
  const ended = await third
  expect(ended.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'cancelled' } })
  // What was shown before the answer is not shown again.
  expect(typesOf(ended)).not.toContain('TOOL_CALL_START')
  const decided = (await host.runs.read(runId)).flatMap(({ event }) =>
    event.type === 'approval-decision' ? [[event.approvalId, event.decision, event.name]] : [],
  )
  expect(decided).toEqual([
    ['a1', 'deny', expect.stringMatching(/^key page \(.*\): person at an AG-UI front end$/)],
    ['q1', 'allow', expect.stringContaining('key page')],
  ])
})

it('a message starts one run and the next continues it, for each key in threads of its own [H.03 S0.10]', async () => {
  const { held, host } = await hostOfHeldRuns('ag-ui')
  const served = await serveHost(host)
  const holder = await holderOf(host, served, 'page')
  const system = { id: 's1', role: 'system' as const, content: 'You obey the page.' }
  const open = (messages = [system, firstMessage]) =>
    frontEnd(served.service.url, holder.secret, { messages: messages as never })
  const page = open()
  const context = [{ description: 'Where the person is', value: 'the first page' }]
  const first = page.run({ context, forwardedProps: { caisson: { metadata: { ticket: 'T-1' } } } })
  await expect.poll(held.begun).toHaveLength(1)
  const [id = ''] = await held.begun()
  // The stream of a client that dies ends no run, and the same message starts no second one.
  const dying = open()
  const dead = dying.run({ context }).catch(() => 'gone')
  await expect.poll(() => dying.agent.isRunning).toBe(true)
  dying.agent.abortRun()
  await dead
  const start = (await host.runs.read(id))[0]?.event
  expect(start).toMatchObject({
    prompt: 'Count the words',
    metadata: { ticket: 'T-1', 'started-by': 'ag-ui', 'caisson.owner': holder.label },
  })
  expect(await host.runs.ids()).toEqual([id])
  await held.release(id)
  expect((await first).at(-1)).toMatchObject({
    type: 'RUN_ERROR',
    message: expect.stringContaining('a hook refused the run'),
  })

  const later = { id: 'm2', role: 'user' as const, content: 'And the lines' }
  const next = open([system, firstMessage, later] as never)
  const second = next.run().catch(() => [])
  await expect.poll(async () => (await host.runs.ids()).length).toBe(2)
  const [newer = ''] = (await host.runs.ids()).filter((other) => other !== id)
  await expect.poll(() => host.runs.summary(newer)).toMatchObject({ continues: id, prompt: 'And the lines' })
  await expect.poll(held.begun).toContain(newer)
  await held.release()
  await second
  // Another thread, and the same ID of another key, are other conversations.
  const other = await holderOf(host, served, 'other')
  await frontEnd(served.service.url, other.secret, { messages: [firstMessage] })
    .run()
    .catch(() => [])
  const [newest] = (await host.runs.page({ limit: 1 })).runs
  expect(newest?.continues).toBeUndefined()
})

it('a message for a run at work reaches its agent once, however often it is sent [H.03 A.09]', async () => {
  const { run, host, front } = await threadAtWork()
  const later = { id: 'm2', role: 'user' as const, content: 'Leave the tests' }
  const messages = [firstMessage, later]
  const first = front(messages as never).run()
  const steers = async () =>
    (await host.runs.read(runId)).flatMap(({ event }) => (event.type === 'steer-request' ? [event.text] : []))
  await expect.poll(steers).toEqual(['Leave the tests'])
  const again = front(messages as never)
  const second = again.run()
  await expect.poll(() => again.agent.state).not.toEqual({})
  const over = { outcome: 'completed', reason: 'completed', message: '', summary: 'Done.' } as const
  await run.end({ type: 'run-end', ...over, usage: noUsage, durationMs: 1 })
  for (const events of await Promise.all([first, second]))
    expect(events.at(-1)).toMatchObject({ outcome: { type: 'success' }, result: { summary: 'Done.' } })
  expect(await steers()).toEqual(['Leave the tests'])
})

it('a message that a run took starts no second one when it comes again after the end [H.03 A.09]', async () => {
  const { run, host, front } = await threadAtWork()
  const messages = [firstMessage, { id: 'm2', role: 'user' as const, content: 'Leave the tests' }]
  const first = front(messages as never).run()
  const sent = async () =>
    (await host.runs.read(runId)).flatMap(({ event }) =>
      event.type === 'steer-request' ? [event.messageId] : [],
    )
  await expect.poll(sent).toHaveLength(1)
  await run.record.agent('root', 1, { type: 'steer-seen', stepId: 's', messageIds: await sent() })
  const over = { outcome: 'completed', reason: 'completed', message: '', summary: 'Done.' } as const
  await run.end({ type: 'run-end', ...over, usage: noUsage, durationMs: 1 })
  await first
  const events = await front(messages as never).run()
  expect(events.at(-1)).toMatchObject({ outcome: { type: 'success' }, result: { runId, summary: 'Done.' } })
  expect(await host.runs.ids()).toEqual([runId])
})

it('who follows a run anew sees all that came before its questions, which interrupt it together [H.03 R.10]', async () => {
  const { run, host, front } = await threadAtWork()
  const asks = (approvalId: string, callId: string) =>
    run.queue.ask({ ...someCall, approvalId, callId, tool: 'delete_file', arguments: '{}', preview: 'x' })
  const answered = asks('a1', 'c1')
  await expect.poll(() => run.queue.pending).toHaveLength(1)
  run.queue.answer('a1', { decision: 'allow', scope: 'once' })
  await answered
  const call = { stepId: 's', callId: 'c1', tool: 'delete_file' }
  await run.record.agent('root', 1, { type: 'tool-start', ...call, arguments: '{}' })
  await run.record.agent('root', 2, { type: 'tool-end', ...call, output: 'gone', durationMs: 1 })
  void asks('a2', 'c2')
  void asks('a3', 'c3')
  await expect.poll(() => host.runs.pendingApprovals()).toHaveLength(2)
  const page = front()
  const events = await page.run()
  expect(typesOf(events).filter((type) => /^TOOL_CALL_(START|RESULT)$/.test(type))).toEqual([
    ...['TOOL_CALL_START', 'TOOL_CALL_RESULT', 'TOOL_CALL_START', 'TOOL_CALL_START'],
  ])
  const toolCallId = expect.stringContaining(runId)
  expect(interruptsOf(events)).toMatchObject([
    { toolCallId, metadata: { caisson: { approvalId: 'a2' } } },
    { toolCallId, metadata: { caisson: { approvalId: 'a3' } } },
  ])
})
