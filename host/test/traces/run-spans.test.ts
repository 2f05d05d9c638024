import { createHash } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { RunSpans } from '../../traces/run-spans.ts'
import { rootSpanIdOf, traceIdOf } from '../../traces/span.ts'
import {
  agentEnd,
  agentStart,
  journalOf,
  modelEnd,
  modelStart,
  runEnd,
  runId,
  runStart,
  type Step,
  spanNamed,
  spansOf,
  startedAt,
  toolEnd,
  toolStart,
  totals,
  treeOf,
  turnEnd,
} from './support.ts'

const ordinary: readonly Step[] = [
  [0, runStart({ metadata: { ticket: 'T-1' } })],
  [100, modelStart('model-1', 1)],
  [200, modelEnd('model-1', { costUsd: 0.002, queuedMs: 60, providerRequestId: 'req-1' })],
  [210, turnEnd(1, { calls: [{ callId: 'c1', tool: 'read_file' }], finishReason: 'tool_calls' }), 'root'],
  [220, toolStart('c1', 'read_file'), 'root'],
  [260, toolEnd('c1', 'read_file'), 'root'],
  [300, modelStart('model-2', 2)],
  [400, modelEnd('model-2', { costUsd: 0.001, estimated: true })],
  [410, turnEnd(2), 'root'],
  [500, runEnd()],
]

describe('the spans of a run', () => {
  it('are one tree: the run, its model requests and its calls, with the times of the events [R.04]', () => {
    expect(treeOf(spansOf(ordinary))).toEqual([
      'invoke_agent caisson 0-500',
      '  chat big-model 100-200',
      '  execute_tool read_file 220-260',
      '  chat big-model 300-400',
    ])
  })

  it('have calls of a program below its own call [R.04] [A.14]', () => {
    const steps: readonly Step[] = [
      [0, runStart({})],
      [10, toolStart('c1', 'run_python'), 'root'],
      [20, toolStart('c1.x', 'read_file', { parentCallId: 'c1' }), 'root'],
      [30, toolEnd('c1.x', 'read_file'), 'root'],
      [40, toolEnd('c1', 'run_python'), 'root'],
      [50, runEnd()],
    ]
    expect(treeOf(spansOf(steps))).toEqual([
      'invoke_agent caisson 0-50',
      '  execute_tool run_python 10-40',
      '    execute_tool read_file 20-30',
    ])
  })

  it('have the attributes of the GenAI conventions, and nothing that anybody wrote [R.04]', () => {
    const spans = spansOf(ordinary)
    expect(spanNamed(spans, 'invoke_agent caisson')).toEqual({
      traceId: traceIdOf(runId),
      spanId: rootSpanIdOf(runId),
      name: 'invoke_agent caisson',
      kind: 'internal',
      startMs: startedAt,
      endMs: startedAt + 500,
      isError: false,
      links: [],
      attributes: {
        'gen_ai.operation.name': 'invoke_agent',
        'gen_ai.provider.name': 'nvidia',
        'gen_ai.request.model': 'big-model',
        'gen_ai.conversation.id': runId,
        'gen_ai.agent.name': 'caisson',
        'gen_ai.usage.input_tokens': totals.inputTokens,
        'gen_ai.usage.output_tokens': totals.outputTokens,
        'gen_ai.usage.cache_read.input_tokens': totals.cachedTokens,
        'gen_ai.usage.reasoning.output_tokens': totals.reasoningTokens,
        'caisson.metadata.ticket': 'T-1',
        'caisson.run.outcome': 'completed',
        'caisson.run.reason': 'completed',
        'caisson.cost_usd': 0.003,
      },
    })
    const [first, second] = spans.filter(({ name }) => name === 'chat big-model')
    expect(first).toMatchObject({ kind: 'client', parentSpanId: rootSpanIdOf(runId) })
    expect(first?.attributes).toEqual({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'nvidia',
      'gen_ai.request.model': 'big-model',
      'gen_ai.conversation.id': runId,
      'gen_ai.usage.input_tokens': 900,
      'gen_ai.usage.output_tokens': 60,
      'gen_ai.usage.cache_read.input_tokens': 400,
      'gen_ai.usage.reasoning.output_tokens': 20,
      'gen_ai.response.finish_reasons': ['tool_calls'],
      'http.response.status_code': 200,
      'caisson.step.id': 'task',
      'caisson.turn': 1,
      'caisson.cost_usd': 0.002,
      'caisson.queued_ms': 60,
      'caisson.provider.request_id': 'req-1',
    })
    expect(second?.attributes).toMatchObject({ 'caisson.usage.estimated': true })
    expect(spanNamed(spans, 'execute_tool read_file').attributes).toEqual({
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.conversation.id': runId,
      'gen_ai.tool.name': 'read_file',
      'gen_ai.tool.call.id': 'c1',
      'gen_ai.tool.type': 'function',
      'caisson.step.id': 'task',
    })
    for (const written of ['Write the report', 'a.txt', 'is written', 'secret-project'])
      expect(JSON.stringify(spans)).not.toContain(written)
  })

  it('have ids that follow from the run and its journal, whoever folds it [R.04]', () => {
    const spans = spansOf(ordinary)
    expect(spansOf(ordinary)).toEqual(spans)
    expect(traceIdOf(runId)).toBe(createHash('sha256').update(runId).digest('hex').slice(0, 32))
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([traceIdOf(runId)]))
    expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length)
    for (const { spanId } of spans) expect(spanId).toMatch(/^[0-9a-f]{16}$/)
    expect(traceIdOf('run-0123456789abcdef0124')).not.toBe(traceIdOf(runId))
  })

  it('link a run that continues another one to it [R.04]', () => {
    const before = 'run-aaaaaaaaaaaaaaaaaaaa'
    const root = spanNamed(
      spansOf([
        [0, runStart({ continues: before })],
        [9, runEnd()],
      ]),
      'invoke_agent caisson',
    )
    expect(root.links).toEqual([{ traceId: traceIdOf(before), spanId: rootSpanIdOf(before) }])
    expect(root.attributes['caisson.run.continues']).toBe(before)
  })

  it('nest sub-agents in their parents, and requests and calls in the agent that made them [R.04]', () => {
    const spans = spansOf([
      [0, runStart()],
      [10, toolStart('c1', 'spawn_agent'), 'root'],
      [20, agentStart(), 'root/one'],
      [30, agentStart(), 'root/two'],
      [40, modelStart('model-1', 1, { agentPath: 'root/one' })],
      [50, agentStart(), 'root/one/deep'],
      [60, toolStart('c2', 'read_file'), 'root/one/deep'],
      [70, toolEnd('c2', 'read_file'), 'root/one/deep'],
      [80, agentEnd(), 'root/one/deep'],
      [90, modelEnd('model-1')],
      [95, turnEnd(1), 'root/one'],
      [100, agentEnd({ state: 'failed', reason: 'limit_turns' }), 'root/one'],
      [110, agentEnd({ state: 'cancelled', reason: 'cancelled' }), 'root/two'],
      [120, toolEnd('c1', 'spawn_agent'), 'root'],
      [130, runEnd()],
    ])
    expect(treeOf(spans)).toEqual([
      'invoke_agent caisson 0-130',
      '  execute_tool spawn_agent 10-120',
      '  invoke_agent one 20-100 limit_turns',
      '    chat big-model 40-90',
      '    invoke_agent deep 50-80',
      '      execute_tool read_file 60-70',
      '  invoke_agent two 30-110 cancelled',
    ])
    expect(spanNamed(spans, 'invoke_agent one').attributes).toMatchObject({
      'gen_ai.agent.name': 'one',
      'gen_ai.conversation.id': runId,
      'gen_ai.usage.input_tokens': 900,
      'caisson.agent.path': 'root/one',
    })
  })

  it('count the retries of the gateway in one span, and give each request of the agent its own [R.04]', () => {
    const retry = { type: 'model-retry', requestId: 'model-1', status: 429, cause: 'busy', delayMs: 10 }
    const spans = spansOf([
      [0, runStart()],
      [10, modelStart('model-1', 1)],
      [20, { ...retry, attempt: 2 }],
      [30, { ...retry, attempt: 3 }],
      [50, modelEnd('model-1', { status: 503, error: 'upstream_busy: too many requests' })],
      [55, { type: 'turn-retry', stepId: 'task', code: 'overloaded', message: 'busy', delayMs: 5 }, 'root'],
      [60, modelStart('model-2', 1)],
      [90, modelEnd('model-2', { responseModel: 'big-model-0613' })],
      [95, turnEnd(1), 'root'],
      [99, runEnd()],
    ])
    expect(treeOf(spans)).toEqual([
      'invoke_agent caisson 0-99',
      '  chat big-model 10-50 upstream_busy',
      '  chat big-model 60-90',
    ])
    const [failed, answered] = spans.filter(({ name }) => name === 'chat big-model')
    expect(failed?.attributes).toMatchObject({
      'http.request.resend_count': 2,
      'http.response.status_code': 503,
    })
    expect(answered?.attributes).toMatchObject({
      'gen_ai.response.model': 'big-model-0613',
      'gen_ai.response.finish_reasons': ['stop'],
    })
  })

  it('mark an answer that the agent could not use, and one of another shape of failure [R.04]', () => {
    const turnRetry = { type: 'turn-retry', stepId: 'task', code: 'repeated_text', message: 'x', delayMs: 0 }
    const spans = spansOf([
      [0, runStart()],
      [10, modelStart('model-1', 1)],
      [20, modelEnd('model-1')],
      [25, turnRetry, 'root'],
      // The agent gave this one up before its end was known.
      [30, modelStart('model-2', 1)],
      [35, { ...turnRetry, code: 'timeout' }, 'root'],
      [40, modelEnd('model-2', { error: 'the guest ended the request, or the run is over' })],
      [50, modelStart('model-3', 1)],
      [60, modelEnd('model-3', { status: 502, error: 'No code in here' })],
      [70, modelStart('model-4', 1)],
      [80, modelEnd('model-4', { error: 'Interrupted in the middle' })],
      [99, runEnd({ outcome: 'failed', reason: 'model_broken' })],
    ])
    expect(treeOf(spans)).toEqual([
      'invoke_agent caisson 0-99 model_broken',
      '  chat big-model 10-20 repeated_text',
      '  chat big-model 30-40 timeout',
      '  chat big-model 50-60 502',
      '  chat big-model 70-80 _OTHER',
    ])
  })

  it('take the finish reason also when the turn ends before the last bytes of its answer [R.04]', () => {
    const spans = spansOf([
      [0, runStart()],
      [10, modelStart('model-1', 1)],
      [20, turnEnd(1, { finishReason: 'length' }), 'root'],
      [30, modelEnd('model-1')],
      [99, runEnd()],
    ])
    const chat = spanNamed(spans, 'chat big-model')
    expect(chat).toMatchObject({ endMs: startedAt + 30, isError: false })
    expect(chat.attributes['gen_ai.response.finish_reasons']).toEqual(['length'])
  })

  it('name failed and refused calls by their error, and give the exit code of a command [R.04]', () => {
    const error = { code: 'not_found', message: 'no file secret-name', retryable: false }
    const spans = spansOf([
      [0, runStart()],
      [10, toolStart('c1', 'read_file'), 'root'],
      [20, toolEnd('c1', 'read_file', { error }), 'root'],
      [30, toolStart('c2', 'run_bash'), 'root'],
      [40, toolEnd('c2', 'run_bash', { exitCode: 2 }), 'root'],
      [50, toolStart('c3', 'run_python'), 'root'],
      [
        60,
        toolEnd('c3', 'run_python', { signal: 'SIGKILL', error: { ...error, code: 'timed_out' } }),
        'root',
      ],
      [
        70,
        toolEnd('c4', 'write_file', { error: { ...error, code: 'limit_reached' }, durationMs: 0 }),
        'root',
      ],
      [99, runEnd()],
    ])
    expect(treeOf(spans)).toEqual([
      'invoke_agent caisson 0-99',
      '  execute_tool read_file 10-20 not_found',
      '  execute_tool run_bash 30-40',
      '  execute_tool run_python 50-60 timed_out',
      '  execute_tool write_file 70-70 limit_reached',
    ])
    expect(spanNamed(spans, 'execute_tool run_bash').attributes['process.exit.code']).toBe(2)
    expect(spanNamed(spans, 'execute_tool run_python').attributes['caisson.process.signal']).toBe('SIGKILL')
    expect(JSON.stringify(spans)).not.toContain('secret-name')
  })

  it('end where the run continues with another agent, whose calls are spans of their own [R.04 R.01]', () => {
    const spans = spansOf([
      [0, runStart()],
      [10, toolStart('c1', 'run_bash'), 'root'],
      [20, { type: 'run-resume', epoch: 2, checkpointId: null, message: 'the VM ended' }],
      [30, toolStart('c1', 'run_bash'), 'root'],
      [40, toolEnd('c1', 'run_bash', { exitCode: 0 }), 'root'],
      [99, runEnd()],
    ])
    expect(treeOf(spans)).toEqual([
      'invoke_agent caisson 0-99',
      '  execute_tool run_bash 10-20 interrupted',
      '  execute_tool run_bash 30-40',
    ])
  })

  it('are for embeddings of their own kind and model [R.04]', () => {
    const spans = spansOf([
      [0, runStart()],
      [10, { type: 'model-start', requestId: 'model-1', model: 'embed-model' }],
      [20, modelEnd('model-1', { model: 'embed-model' })],
      [99, runEnd()],
    ])
    const { attributes } = spanNamed(spans, 'embeddings embed-model')
    expect(attributes['gen_ai.operation.name']).toBe('embeddings')
    expect(attributes).not.toHaveProperty('gen_ai.provider.name')
  })

  it('that are open when the run is cancelled, or lost, end with it and as it did [R.04]', () => {
    const open: readonly Step[] = [
      [0, runStart()],
      [10, agentStart(), 'root/one'],
      [20, modelStart('model-1', 1, { agentPath: 'root/one' })],
      [30, toolStart('c1', 'run_bash'), 'root'],
    ]
    const tree = (word: string, endMs: number): string[] => [
      `invoke_agent caisson 0-${endMs} ${word}`,
      `  invoke_agent one 10-${endMs} ${word}`,
      `    chat big-model 20-${endMs} ${word}`,
      `  execute_tool run_bash 30-${endMs} ${word}`,
    ]
    const cancelled = runEnd({ outcome: 'cancelled', reason: 'cancelled' })
    expect(treeOf(spansOf([...open, [99, cancelled]]))).toEqual(tree('cancelled', 99))
    const lost = runEnd({ outcome: 'failed', reason: 'agent_lost' })
    expect(treeOf(spansOf([...open, [99, lost]]))).toEqual(tree('agent_lost', 99))
    // Without the run's end: at the time of the last event.
    expect(treeOf(spansOf(open, { isWhole: false }))).toEqual(tree('interrupted', 30))
  })

  it('that a sub-agent leaves open end with it [R.04]', () => {
    const spans = spansOf([
      [0, runStart()],
      [10, agentStart(), 'root/one'],
      [20, agentStart(), 'root/one/deep'],
      [30, toolStart('c1', 'run_bash'), 'root/one/deep'],
      [40, toolStart('c1', 'run_bash'), 'root'],
      [50, agentEnd({ state: 'failed', reason: 'limit_time' }), 'root/one'],
      [60, toolEnd('c1', 'run_bash'), 'root'],
      [99, runEnd()],
    ])
    expect(treeOf(spans)).toEqual([
      'invoke_agent caisson 0-99',
      '  invoke_agent one 10-50 limit_time',
      '    invoke_agent deep 20-50 limit_time',
      '      execute_tool run_bash 30-50 limit_time',
      '  execute_tool run_bash 40-60',
    ])
  })

  it('come once each, and none before the run begins or after it ends [R.04]', () => {
    const fold = new RunSpans(runId)
    const lines = journalOf(ordinary)
    expect(lines.slice(1).flatMap((line) => fold.next(line))).toEqual([])
    expect(fold.interrupt()).toEqual([])
    const whole = new RunSpans(runId)
    expect(lines.flatMap((line) => whole.next(line))).toHaveLength(4)
    const apply = journalOf([[600, { type: 'apply-start', paths: 1, sha256: '0'.repeat(64) }]])
    expect([...apply.flatMap((line) => whole.next(line)), ...whole.interrupt()]).toEqual([])
  })

  it('never end before they begin, when the clock is set back [R.04]', () => {
    const [call] = spansOf([
      [500, runStart()],
      [400, toolStart('c1', 'math'), 'root'],
      [300, toolEnd('c1', 'math'), 'root'],
      [100, runEnd()],
    ])
    expect(call).toMatchObject({ startMs: startedAt + 400, endMs: startedAt + 400 })
  })

  it('are bounded in number and text, whatever a guest begins and names [R.04]', () => {
    const many = Array.from({ length: 1_500 }, (_, at): Step => [at, toolStart(`c${at}`, 'math'), 'root'])
    const spans = spansOf([[0, runStart()], ...many, [2_000, runEnd()]])
    expect(spans).toHaveLength(1_025)
    expect(spans.at(-1)?.attributes['caisson.untraced_spans']).toBe(476)
    const name = `bad\u001b[31m\ud800${'x'.repeat(400)}`
    const [call] = spansOf([
      [0, runStart()],
      [1, toolEnd('c1', name), 'root'],
      [2, runEnd()],
    ])
    expect(call?.name).toHaveLength(200)
    expect(call?.name).toMatch(/^execute_tool bad \[31m\ufffdx+$/)
  })
})
