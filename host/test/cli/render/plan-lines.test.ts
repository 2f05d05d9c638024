import { describe, expect, it } from 'vitest'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { initialRunState, type RunLine, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { eventLines } from '../../../cli/render/event-lines.ts'
import { planChanges, planLines, planRows } from '../../../cli/render/plan-lines.ts'

const colors = colorsFor({ isTTY: false }, {})
const step = (id: string, more: object = {}) => ({ id, title: `Do ${id}`, instructions: 'do it', ...more })
const planOf = (goal: string, ...steps: object[]) => Plan.parse({ goal, steps })
const output = { type: 'object', properties: { files: { type: 'array' } } }
const odd = '\u001b[2J\u202e'

/** What a run shows, line by line. */
function tell(...lines: RunLine[]): string[] {
  let state: RunState = initialRunState
  return lines.flatMap((line) => {
    const before = state
    state = reduceRun(state, line)
    return eventLines(line, state, colors, before)
  })
}

describe('a plan on the screen', () => {
  const plan = planOf(
    'A goal',
    step('look', { writes: [], output }),
    step('fix', {
      needs: ['look'],
      kind: 'agent',
      retries: 2,
      when: { step: 'look', path: 'files.0', equals: 'x' },
    }),
    step('patch', { when: { step: 'fix', state: 'failed' }, onFailure: 'replan' }),
    step('tell', {
      needs: ['look', 'fix'],
      onFailure: 'continue',
      when: { step: 'look', path: 'files', contains: 'TODO' },
    }),
  )

  it('says of each step what it waits for, who takes it and what a failure means [A.01 H.01]', () => {
    expect(planLines(plan, colors)).toEqual([
      '  1. Do look',
      '  2. Do fix (by a sub-agent; after 1; only if files.0 of 1 is "x"; up to 3 attempts)',
      '  3. Do patch (only if 2 failed; replanned on failure)',
      '  4. Do tell (after 1, 2; only if files of 1 has "TODO"; may fail)',
    ])
  })

  it('is shown whole where a person decides, and inert whatever the model wrote [H.01 A.11]', () => {
    const hostile = planOf(
      `g${odd}`,
      step('a', {
        title: `t${odd}`,
        instructions: `i${odd}\n? Allow it?`,
        kind: 'agent',
        writes: [`w${odd}`],
        tools: [`u${odd}`],
      }),
    )
    expect(planRows(planOf('g', step('a')), 60)).toContain('  │    writes: * (any file)')
    const rows = planRows(hostile, 60)
    for (const row of rows) expect(row).toMatch(/^ {2}│ /)
    expect(rows.join('')).not.toMatch(/[\p{Cc}\p{Cf}]/u)
    for (const part of ['Goal: g', 't\\e', 'i\\e', 'w\\e', 'u\\e']) expect(rows.join('\n')).toContain(part)
  })

  it('that is revised shows what changes and why, and counts the rest [A.01]', () => {
    const next = planOf('A goal', step('look', { writes: [], output }), step('new', { needs: ['look'] }), {
      ...step('patch'),
      title: 'Patch it',
    })
    expect(planChanges(plan, next, colors)).toEqual([
      '  + 2. Do new (after 1)',
      '  ~ 3. Patch it · changed: title, when, onFailure',
      '  - Do fix',
      '  - Do tell',
      '    1 step as before',
    ])
    const shown = tell(
      { event: { type: 'plan-update', revision: 1, plan } },
      { event: { type: 'plan-update', revision: 2, plan: next, reason: `the build broke${odd}` } },
    )
    expect(shown.slice(5, 8)).toEqual([
      'Plan, revision 2: A goal',
      '  because the build broke\\e[2J\\u{202e}',
      '  + 2. Do new (after 1)',
    ])
  })

  it('that is all that came of a run is not told twice, nor as the call that hands it in [A.11]', () => {
    const call = { type: 'tool-start', callId: 'c', tool: 'submit_plan', arguments: '{}' } as const
    expect(tell({ event: { ...call, stepId: 'plan' } })).toEqual([])
    expect(tell({ event: { ...call, stepId: 'look' } })).toHaveLength(1)
    const end = {
      type: 'run-end',
      outcome: 'completed',
      reason: 'completed',
      message: '',
      summary: 'Plan: A goal',
      usage: noUsage,
      durationMs: 1,
    } as const
    expect(
      tell({ event: { type: 'plan-update', revision: 1, plan } }, { event: end }).join('\n'),
    ).not.toContain('Plan: A goal\n  │')
    const begun = [{ event: { type: 'step-start', stepId: 'look' } as const }, { event: end }]
    const told = tell({ event: { type: 'plan-update', revision: 1, plan } }, ...begun)
    expect(told.join('\n')).toContain('│ Plan: A goal')
  })
})

describe('sub-agents and people on the screen', () => {
  it('stand each behind the name of who speaks, in every line [H.01]', () => {
    const path = 'root/tests'
    const call = { stepId: 's', callId: 'c', tool: 'run_bash' }
    const shown = tell(
      {
        agentPath: path,
        event: { type: 'agent-start', stepId: 's', brief: `Test${odd}\nit all`, tools: [], limits: {} },
      },
      { agentPath: path, event: { type: 'tool-start', ...call, arguments: '{"command":"make"}' } },
      { agentPath: path, event: { type: 'note', level: 'info', text: `hm${odd}` } },
      {
        agentPath: path,
        event: {
          type: 'agent-end',
          stepId: 's',
          state: 'failed',
          reason: 'limit_turns',
          text: 'half\ndone',
          usage: noUsage,
          merged: 2,
          conflicts: [`a${odd}.txt`],
        },
      },
    )
    expect(shown).toEqual([
      '  [tests] ▸ started: Test\\e[2J\\u{202e} … (1 more line)',
      '  [tests] run_bash command: make',
      '  [tests] the agent says: hm\\e[2J\\u{202e}',
      '  [tests] ✘ failed (limit_turns) · 2 paths merged · 1 conflict',
      '  [tests] │ half',
      '  [tests] │ done',
      '  [tests] conflict: a\\e[2J\\u{202e}.txt also changed in the workspace; that version is kept, this one is not',
    ])
  })

  it('are shown: messages, holds, attempts, shorter conversations, and who a question is from [A.08]', () => {
    const request = {
      approvalId: 'a',
      agentPath: 'root/tests',
      stepId: 's',
      callId: 'c',
      tool: 'delete_file',
      arguments: '{"path":"x"}',
      preview: '',
    }
    const digest = 'a'.repeat(64)
    const asked: HostEvent = { type: 'approval-request', kind: 'cooperative', request, digest }
    const about: HostEvent = {
      ...asked,
      request: {
        ...request,
        agentPath: 'root',
        tool: 'submit_plan',
        arguments: JSON.stringify(planOf('A goal', step('a'))),
      },
    }
    const events: (AgentEvent | HostEvent)[] = [
      { type: 'steer-request', messageId: 'm', text: `use tabs${odd}`, by: 'you' },
      { type: 'steer-request', messageId: 'n', text: 'you too', by: 'you', agentPath: 'root/a/b' },
      { type: 'agent-cancel-request', agentPath: 'root/a', reason: `enough${odd}`, by: 'you' },
      { type: 'agent-cancel-request', agentPath: 'root/a', reason: '', by: 'you' },
      { type: 'steer-seen', stepId: 's', messageIds: ['m'] },
      { type: 'pause-request', by: 'you' },
      { type: 'pause-start' },
      { type: 'resume-request', by: 'you' },
      { type: 'pause-end' },
      { type: 'step-retry', stepId: 's', attempt: 2, reason: 'broke' },
      { type: 'context-compact', stepId: 's', beforeTokens: 90_000, afterTokens: 9_000, summary: '' },
      asked,
      about,
    ]
    expect(tell(...events.map((event) => ({ event })))).toEqual([
      '› Message by you:',
      '  › use tabs\\e[2J\\u{202e}',
      '› Message by you to a/b:',
      '  › you too',
      'Cancel of a requested by you: enough\\e[2J\\u{202e}',
      'Cancel of a requested by you',
      '    the agent reads 1 message',
      'Pause requested by you',
      'The agent is paused',
      'Resume requested by you',
      'The agent continues',
      '↻ s: attempt 2, because broke',
      '    conversation compacted from 90000 to 9000 tokens',
      '? [tests] asks to call delete_file path: x',
      '? asks for approval of its plan: A goal',
    ])
  })
})
