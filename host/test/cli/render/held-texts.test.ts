// What the model says in its turns, as a person reads it: each text once, none lost.
import { describe, expect, it } from 'vitest'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { initialRunState, type RunLine, reduceRun } from '#specs/protocol/run-state.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { colorsFor } from '../../../cli/render/colors.ts'
import { eventLines } from '../../../cli/render/event-lines.ts'
import { HeldTexts } from '../../../cli/render/held-texts.ts'

const colors = colorsFor({ isTTY: false }, {})

/** Everything that is shown of these events. */
function shown(...lines: readonly RunLine[]): string[] {
  const texts = new HeldTexts(colors)
  let state = initialRunState
  return lines.flatMap((line) => {
    const before = state
    state = reduceRun(before, line)
    return [...texts.before(line), ...eventLines(line, state, colors, before)]
  })
}

function turn(stepId: string, text: string, ...tools: string[]): RunLine {
  const calls = tools.map((tool, index) => ({ callId: `call0000${index}`, tool }))
  return {
    event: { type: 'turn-end', stepId, turn: 1, text, calls, usage: noUsage, finishReason: 'stop' },
  }
}

const plan = (...titles: string[]): RunLine => ({
  event: {
    type: 'plan-update',
    revision: 1,
    plan: Plan.parse({
      goal: 'Tidy up',
      steps: titles.map((title, index) => ({ id: `s${index}`, title, instructions: 'Do it.' })),
    }),
  },
})
const event = (given: AgentEvent | HostEvent): RunLine => ({ event: given })
const begin = event({ type: 'step-start', stepId: 's0' })
const end = (text: string, state: 'completed' | 'failed' = 'completed'): RunLine =>
  event({ type: 'step-end', stepId: 's0', state, text })
const heard = event({ type: 'steer-seen', stepId: 's0', messageIds: ['m00000001'] })

describe('the text of a turn without calls', () => {
  it('is shown when another turn follows, and once when it is the answer [H.01]', () => {
    const lines = shown(
      plan('A', 'B'),
      begin,
      turn('s0', 'First half.'),
      turn('s0', 'All of it.'),
      end('All of it.'),
    )
    expect(lines.slice(4)).toEqual(['    │ First half.', '✔ 1/2 A', '    │ All of it.'])
  })

  it('is shown once when it gives the step up: in the end of the step, and neither before nor in the end of the run [H.01]', () => {
    const why = 'Not understood: paint it.\nAsk for a file.'
    const message = `0 of 1 steps completed; step "s0" failed: ${why}`
    const failed = { outcome: 'failed', reason: 'step_failed', message, summary: '' } as const
    const ended = event({ type: 'run-end', ...failed, usage: noUsage, durationMs: 1_000 })
    const lines = shown(plan('A'), begin, turn('s0', `STEP FAILED: ${why}`), end(why, 'failed'), ended)
    expect(lines.join('\n').split('Not understood')).toHaveLength(2)
    expect(lines.join('\n')).toContain('0 of 1 steps completed; step "s0" failed')
  })

  it('is shown before a message is heard, before a call, and when the step ends with something else [H.01]', () => {
    const said = turn('s0', 'Half.')
    expect(shown(plan('A', 'B'), begin, said, heard)).toContain('    │ Half.')
    expect(shown(plan('A', 'B'), begin, said, end('the model failed', 'failed')).slice(-3)).toEqual([
      '    │ Half.',
      '✘ 1/2 A failed',
      '    │ the model failed',
    ])
    const call = { type: 'tool-start', stepId: 's0', callId: 'c', tool: 'run_bash', arguments: '{}' } as const
    expect(shown(plan('A', 'B'), begin, said, event(call)).slice(-2)[0]).toBe('    │ Half.')
  })

  it('of a sub-agent stands behind its name, and is not shown beside its answer [H.01]', () => {
    const agentPath = 'root/pen'
    const ends = (text: string): RunLine => ({
      agentPath,
      event: {
        type: 'agent-end',
        stepId: 'help',
        state: 'completed',
        reason: 'completed',
        text,
        usage: noUsage,
        merged: 0,
        conflicts: [],
      },
    })
    const said = { ...turn('task', 'Mine.'), agentPath }
    expect(shown(said, ends('Mine.')).filter((line) => line.includes('Mine.'))).toHaveLength(1)
    expect(shown(said, ends('')).join('\n')).toContain('[pen] │ Mine.')
  })

  it('of the planner is shown with the step that it began, but no plan as text [H.01]', () => {
    const lines = shown(turn('plan', 'I look first.', 'list_files'), plan('Tidy up'), begin)
    expect(lines).toEqual(['Task: Tidy up', '    │ I look first.'])
    expect(
      shown(turn('plan', '{"goal":"g"}'), turn('plan', 'Here.', 'submit_plan'), plan('A', 'B'), begin).join(),
    ).not.toMatch(/goal"|Here/)
  })

  it('is bounded in number, and those beyond are shown at once; the others at the end of a run that broke off [H.01]', () => {
    const run: RunLine = event({
      type: 'run-end',
      outcome: 'failed',
      reason: 'vm_lost',
      message: 'QEMU ended',
      summary: '',
      usage: noUsage,
      durationMs: 1,
    })
    const many = Array.from({ length: 300 }, (_, index) => turn(`s${index}`, `said ${index}`))
    const said = (...lines: readonly RunLine[]) => shown(...lines).filter((line) => line.includes('said'))
    expect(said(...many)).toEqual(many.slice(256).map((_, index) => `    │ said ${256 + index}`))
    expect(said(...many, turn('s299', 'said with a call', 'read_file'))).toContain('    │ said with a call')
    expect(said(...many, run)).toHaveLength(300)
  })
})

it('a plan of one step names the task once [H.01]', () => {
  const lines = shown(plan('Tidy up'), begin, end('Done so.'))
  expect(lines).toEqual(['Task: Tidy up', '✔ completed', '    │ Done so.'])
  expect(shown(plan('A'), begin)).toEqual(['Plan: Tidy up', '  1. A', '▸ 1/1 A'])
})
