import { describe, expect, it } from 'vitest'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { noUsage, RunLimits } from '#specs/protocol/task.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { eventLines as linesOfLine } from '../../../cli/render/event-lines.ts'

type RunEvent = AgentEvent | HostEvent

const colors = colorsFor({ isTTY: false }, {})

function eventLines(event: RunEvent, state: RunState, given = colors): string[] {
  return linesOfLine({ event }, state, given)
}

it('a VM that is kept is named by its run, with how to continue in it and how to remove it [V.04]', () => {
  const runId = 'run-0123456789abcdef4567'
  const lines = linesOfLine({ event: { type: 'vm-kept' }, runId }, initialRunState, colors)
  expect(lines.join()).toContain(`caisson run --continue ${runId} "TASK"`)
  expect(lines.join()).toContain(`caisson runs rm ${runId}`)
  const inConversation = { inConversation: true }
  // Its next task continues in it.
  expect(
    linesOfLine({ event: { type: 'vm-kept' }, runId }, initialRunState, colors, undefined, inConversation),
  ).toEqual([])
})

it('of the call that hands the plan in neither beginning nor end is shown, but a refusal is [H.01]', () => {
  const call = { stepId: 'plan', callId: 'c1', tool: 'submit_plan' } as const
  const end = { type: 'tool-end', ...call, output: 'ok', durationMs: 300 } as const
  expect(eventLines({ type: 'tool-start', ...call, arguments: '{}' }, initialRunState)).toEqual([])
  expect(eventLines(end, initialRunState)).toEqual([])
  const refused = { ...end, error: { code: 'invalid_input', message: 'no steps', retryable: true } } as const
  expect(eventLines(refused, initialRunState).join()).toContain('no steps')
})

it('calls of a program stand below its own call, and questions name it [A.14]', () => {
  const start = {
    type: 'tool-start',
    stepId: 'a',
    callId: 'c1',
    tool: 'run_python',
    arguments: '{}',
  } as const
  const inner = { ...start, callId: 'c1.x', parentCallId: 'c1', tool: 'read_file' } as const
  const state = planned(start, inner)
  expect(eventLines(start, state)).toEqual(['    run_python '])
  expect(eventLines(inner, state)).toEqual(['      read_file '])
  const end = {
    type: 'tool-end',
    stepId: 'a',
    callId: 'c1.x',
    tool: 'read_file',
    output: '',
    durationMs: 900,
  }
  const ended = linesOfLine({ event: end as RunEvent }, planned(start), colors, state)
  expect(ended).toEqual([expect.stringMatching(/^ {6}✔ read_file/)])
  const request = { approvalId: 'ap-1', agentPath: 'root', stepId: 'a', callId: 'c1.x', tool: 'delete_file' }
  const question: RunEvent = {
    type: 'approval-request',
    request: { ...request, parentCallId: 'c1', arguments: '{"path":"a"}', preview: '' },
    digest: '0'.repeat(64),
    kind: 'cooperative',
  }
  expect(eventLines(question, state).join()).toContain('a program asks to call delete_file')
})

function planned(...events: RunEvent[]): RunState {
  const step = { title: 'Do it', instructions: 'Do it.', writes: [] }
  const plan = Plan.parse({
    goal: 'A goal',
    steps: [
      { id: 'a', ...step },
      { id: 'b', ...step, needs: ['a'] },
    ],
  })
  const all: RunEvent[] = [{ type: 'plan-update', revision: 1, plan }, ...events]
  return all.reduce((state, event) => reduceRun(state, { event }), initialRunState)
}

function toolStart(args: string): string {
  const lines = eventLines(
    { type: 'tool-start', stepId: 'a', callId: 'c1', tool: 'run_bash', arguments: args },
    planned(),
    colors,
  )
  expect(lines).toHaveLength(1)
  return lines[0] ?? ''
}

function runEnd(state: RunState, outcome: 'completed' | 'failed', text: string): string {
  const message = outcome === 'completed' ? 'all done' : `1 of 2 steps completed; step "b" failed: ${text}`
  const reason = outcome === 'completed' ? 'completed' : 'step_failed'
  const summary = outcome === 'completed' ? text : ''
  const ending = { outcome, reason, message, summary, durationMs: 1_000, usage: noUsage } as const
  return eventLines({ type: 'run-end', ...ending }, state, colors).join('\n')
}

describe('the lines of a run', () => {
  it('distinguish network access from a tool’s call, and how long an answer holds [S1.11, G.03]', () => {
    const request = {
      approvalId: 'a1',
      agentPath: 'root',
      stepId: 'a',
      callId: 'c1',
      tool: 'request_access',
      arguments: '{"reason":"rates\\u001b[2J","url":"https://a.example/"}',
      preview: '',
    }
    const offers = [{ reach: 'host' as const, allows: 'https connections to a.example (port 443)' }]
    const asked = (from: 'agent' | 'connection'): HostEvent => ({
      type: 'approval-request',
      kind: 'enforced',
      request,
      digest: 'a'.repeat(64),
      access: { from, address: 'https://a.example/', because: 'no rule allows it', offers },
    })
    expect(eventLines(asked('agent'), planned(), colors)).toEqual([
      '? asks for network access: https connections to a.example (port 443) · url: https://a.example/ · reason: rates\\e[2J',
    ])
    expect(eventLines(asked('connection'), planned(), colors)).toEqual([
      '? network access requested: https connections to a.example (port 443)',
    ])
    const decided = { type: 'approval-decision', approvalId: 'a1', decision: 'allow', by: 'person' } as const
    expect(eventLines({ ...decided, scope: 'always', reach: 'host' }, planned(), colors)).toEqual([
      '  Allowed by you permanently',
    ])
  })

  it('say what of a workspace stays out, and call a path ignored only where its reason is known [H.01 W.02]', () => {
    const ready = (leftOut: number, ...examples: (readonly [string, 'ignored' | 'secret'])[]) =>
      eventLines(
        {
          type: 'workspace-ready',
          files: 1,
          bytes: 2,
          leftOut,
          examples: examples.map(([path, reason]) => ({ path, reason })),
          manifestSha256: 'a'.repeat(64),
        },
        planned(),
      ).slice(1)
    expect(ready(0)).toEqual([])
    expect(ready(1, ['a.log', 'ignored'])).toEqual(['  left out: 1 ignored path'])
    expect(ready(2, ['.env', 'secret'], ['a.log', 'ignored'])).toEqual([
      '  left out: .env (secret)',
      '  left out: 1 ignored path',
    ])
    expect(ready(9, ['a.log', 'ignored'])).toEqual(['  left out: 9 more paths'])
    const event = {
      ...{ type: 'workspace-ready', files: 1, bytes: 2, leftOut: 0, examples: [] },
      manifestSha256: 'a'.repeat(64),
    } satisfies RunEvent
    expect(eventLines({ ...event, unmatched: ['no\u001b[2Jpe'] }, planned()).slice(1)).toEqual([
      expect.stringMatching(/^ {2}--include no\\e\[2Jpe matches no path; /),
    ])
    const folder = { name: 'b', path: '/x/b\u001b[2J', files: 2, bytes: 3, leftOut: 2 }
    const examples = [
      { path: '.env', reason: 'secret' } as const,
      { path: 'a.log', reason: 'ignored' } as const,
    ]
    expect(eventLines({ ...event, folders: [{ ...folder, examples }] }, planned()).slice(1)).toEqual([
      'Folder /x/b\\e[2J: 2 files, 3 B, read-only at /mnt/folders/b',
      '  left out: .env (secret)',
      '  left out: 1 ignored path',
    ])
  })

  it('come from a state that does not grow with calls that never end [H.01]', () => {
    let state = planned()
    for (let at = 0; at < 1_000; at++) {
      const call = { stepId: 'a', callId: `c${at}`, tool: 't', arguments: '{}' }
      state = reduceRun(state, { event: { type: 'tool-start', ...call } })
    }
    expect(Object.keys(state.openCalls)).toHaveLength(256)
    expect(state.toolCalls).toBe(1_000)
  })

  it('are made for a step that a model calls "constructor", too [H.01]', () => {
    const step = { id: 'constructor', title: 'T', instructions: 'I.', writes: [] }
    const plan = Plan.parse({ goal: 'A goal', steps: [step] })
    const state = reduceRun(initialRunState, { event: { type: 'plan-update', revision: 1, plan } })
    expect(state.steps).toEqual({ constructor: { state: 'pending', text: '' } })
    expect(runEnd(state, 'failed', 'it broke')).toContain('it broke')
  })

  it('say of tokens whether some of them are an estimate [G.05]', () => {
    const exchange = { type: 'model-end', status: 200, durationMs: 1, usage: noUsage } as const
    const counted = planned({ ...exchange, estimated: false }, exchange)
    expect(runEnd(counted, 'completed', 'x')).toContain('· 0 tokens')
    const estimated = planned({ ...exchange, estimated: true }, exchange)
    expect(runEnd(estimated, 'completed', 'x')).toContain('· about 0 tokens')
  })

  it('say why a model request is made again, and when [S1.10]', () => {
    const refused = { type: 'model-retry', requestId: 'model-1', attempt: 2, status: 429 } as const
    const busy = { ...refused, cause: 'upstream_busy: slow\u001b[2J down', delayMs: 20_000 }
    expect(eventLines(busy, planned(), colors)).toEqual([
      '↻ The model server refused: upstream_busy: slow\\e[2J down; retry in 20 s',
    ])
    expect(eventLines({ ...refused, cause: 'x', delayMs: 0 }, planned(), colors)).toEqual([])
    const other = { ...refused, cause: 'overloaded', delayMs: 0, fallback: 'b\u001b[2J' }
    expect(eventLines(other, planned(), colors)).toEqual([
      '↻ The model cannot answer: overloaded; b\\e[2J is asked instead',
    ])
    const failed = {
      type: 'turn-retry',
      stepId: 's1',
      code: 'timeout',
      message: 'no answer',
      delayMs: 0,
    } as const
    expect(eventLines(failed, planned(), colors)).toEqual([
      '↻ The model request failed: no answer; retry at once',
    ])
  })

  it('say what a run cost where a price is known [G.05]', () => {
    const exchange = {
      type: 'model-end',
      status: 200,
      durationMs: 1,
      usage: noUsage,
      costUsd: 0.0123,
    } as const
    expect(runEnd(planned(exchange, exchange), 'completed', 'x')).toContain('· $0.0246')
    const free = { ...exchange, costUsd: 0 }
    for (const state of [planned(), planned(free)]) expect(runEnd(state, 'completed', 'x')).not.toContain('$')
    const inDetail = (event: RunEvent) =>
      linesOfLine({ event }, planned(), colors, undefined, { verbose: true }).join()
    expect(inDetail(exchange)).toContain('· $0.0123')
    expect(inDetail(free)).not.toContain('$')
  })

  it('say in plain words why a VM was booted, and that of a copy nothing need be said [V.01]', () => {
    const ready = {
      type: 'vm-ready',
      start: 'boot',
      accelerator: 'tcg',
      confinement: 'bubblewrap',
      phasesMs: { kernel: 1_500 },
    } as const
    const told = eventLines({ ...ready, coldReason: 'no \u001b[2Jroom' }, planned(), colors)
    expect(told).toHaveLength(3)
    expect(told[1]).toBe('  booted from scratch (slower), because no template could be used: no \\e[2Jroom')
    expect(eventLines({ ...ready, start: 'template' }, planned(), colors)).toHaveLength(1)
    const anew = eventLines(
      { ...ready, start: 'template', coldReason: 'run-1 kept no VM' },
      planned(),
      colors,
    )
    expect(anew.slice(1)).toEqual(['  a new VM: run-1 kept no VM'])
    const kept = eventLines({ ...ready, start: 'saved' }, planned(), colors)
    expect(kept).toEqual([expect.stringContaining('Kept VM ready in 1.5 s')])
  })

  it('warn in red when neither the CPU nor bubblewrap isolates the guest [V.09]', () => {
    const red = colorsFor({ isTTY: true }, {})
    const ready = { type: 'vm-ready', start: 'template', accelerator: 'tcg', phasesMs: {} } as const
    const linesFor = (accelerator: string, confinement: string): string[] =>
      eventLines({ ...ready, accelerator, confinement }, planned(), red).slice(1)
    expect(linesFor('tcg', 'seccomp')[0]).toBe(
      red.red(
        '  No bubblewrap around QEMU, and software emulation is no security boundary: a hostile guest may reach this machine.',
      ),
    )
    expect(linesFor('tcg', 'bubblewrap+seccomp')).toEqual([])
    expect(linesFor('kvm', 'seccomp')).toEqual([])
  })

  it('name the arguments of a call, and of a long text only its beginning [H.01]', () => {
    expect(toolStart('{"command":"ls -la","args":[],"timeoutMs":1000}')).toBe(
      '    run_bash command: ls -la · timeoutMs: 1000',
    )
    expect(toolStart(JSON.stringify({ command: 'one\ntwo\nthree\n' }))).toBe(
      '    run_bash command: one … (2 more lines)',
    )
    // What it is about is never among those that are left out.
    const many = { a: 1, b: 2, c: 3, d: 4, e: 5, f: 6, path: 'x.txt' }
    expect(toolStart(JSON.stringify(many))).toBe(
      '    run_bash path: x.txt · a: 1 · b: 2 · c: 3 · d: 4 · e: 5 · … (1 more)',
    )
  })

  it('stay short and inert whatever the agent sends as arguments [H.01]', () => {
    const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, at) => [`k${at}\n`, 'v'.repeat(999)]))
    for (const args of [JSON.stringify(many), '[1]', 'no json \u001b[2J', '{"a":"\\u001b[2J\\u202e"}', '{']) {
      const line = toolStart(args)
      expect(line.length).toBeLessThan(2_000)
      expect(line).not.toMatch(/[\p{Cc}\p{Cf}]/u)
    }
  })

  it('say an answer once, and once more only what did not fit [H.01]', () => {
    for (const [lines, times] of [
      [3, 1],
      [60, 2],
    ] as const) {
      const text = Array.from({ length: lines }, (_, at) => `line ${at}.`).join('\n')
      const end: RunEvent = { type: 'step-end', stepId: 'b', state: 'completed', text }
      const state = planned(end)
      const shown = [...eventLines(end, state, colors), runEnd(state, 'completed', text)].join('\n')
      expect(shown.split('line 2.')).toHaveLength(times + 1)
      expect(shown).toContain(`line ${lines - 1}.`)
      const failed: RunEvent = { ...end, state: 'failed' }
      const after = planned(failed)
      const told = [...eventLines(failed, after, colors), runEnd(after, 'failed', text)].join('\n')
      expect(told.split('line 2.')).toHaveLength(times + 1)
      expect(told).toContain('step_failed: 1 of 2 steps completed; step "b" failed')
      expect(told.split('line 0.')).toHaveLength(times + 1)
      expect(told).toContain(`line ${lines - 1}.`)
    }
  })
})

describe('a question of the agent', () => {
  const question = {
    question: 'Which format?\nIt is for the archive.',
    kind: 'choice',
    options: [{ value: 'csv' }, { value: 'json', label: 'JSON lines' }],
  } as const
  const request = {
    approvalId: 'q1',
    agentPath: 'root/helper',
    stepId: 's',
    callId: 'c',
    tool: 'ask_user',
    arguments: '{}',
    preview: '',
    question: { ...question, options: [...question.options] },
  }
  const asked = { type: 'approval-request', kind: 'cooperative', request, digest: '0'.repeat(64) } as const
  const decided = { type: 'approval-decision', approvalId: 'q1', scope: 'once' } as const

  it('is one line with its options, and so is its answer, as the question words it [S2.16]', () => {
    const before = planned(asked)
    const call = { type: 'tool-start', stepId: 's', callId: 'c', tool: 'ask_user', arguments: '{}' } as const
    expect(eventLines(call, before)).toEqual([])
    expect(eventLines(asked, before)).toEqual(['? [helper] asks: Which format? … (1 more line) (csv, json)'])
    const told = (event: HostEvent) =>
      linesOfLine({ event }, reduceRun(before, { event }), colors, before).join('\n')
    expect(told({ ...decided, decision: 'allow', by: 'person', answer: 'json' })).toBe(
      '  Answered by you: JSON lines · json',
    )
    expect(told({ ...decided, decision: 'allow', by: 'mode', rule: 'nobody is there', answer: 'csv' })).toBe(
      '  Answered by the approval mode: nobody is there: csv',
    )
    expect(told({ ...decided, decision: 'deny', by: 'person', hint: 'look it up' })).toBe(
      '  No answer by you · look it up',
    )
  })

  it('shows an answer that is no line of ours [S2.16 H.01]', () => {
    const event = {
      ...decided,
      decision: 'allow',
      by: 'person',
      answer: 'a\n  Allowed by you\u001b[2J',
    } as const
    expect(eventLines(event, planned())).toEqual(['  Answered by you: a\\n  Allowed by you\\e[2J'])
  })
})

describe('the end of a run', () => {
  it('says its reason once, also where the message begins with it', () => {
    const end = { type: 'run-end', outcome: 'cancelled', summary: '', usage: noUsage, durationMs: 1 } as const
    const told = (reason: 'cancelled' | 'limit_time', message: string) =>
      eventLines({ ...end, reason, message }, planned()).at(-1)
    expect(told('cancelled', 'cancelled by Ctrl-C')).toBe('  │ cancelled by Ctrl-C')
    expect(told('limit_time', 'the run reached its end')).toBe('  │ limit_time: the run reached its end')
  })
})

it('a run of a fleet that no host has begun is shown without a model', () => {
  const start = {
    type: 'run-start',
    prompt: 'Count',
    directory: '/srv',
    limits: RunLimits.parse({}),
  } as const
  const shown = (model: string, provider: string) =>
    eventLines({ ...start, model, provider }, initialRunState)
  expect(shown('', 'none')).toEqual(['Run in /srv'])
  expect(shown('qwen3', 'local')).toEqual(['Run in /srv · model qwen3 (local)'])
})
