import { expect, it } from 'vitest'
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { RunHistory } from '../../page/run/history.ts'
import { RunLive } from '../../page/run/live.ts'
import { logText } from '../runs/log-lines.ts'

function historyOf(events: readonly (HostEvent | AgentEvent)[]): RunHistory {
  const history = new RunHistory()
  for (const [index, event] of events.entries())
    history.add({ source: 'host', seq: index + 1, at: index, event } as JournalEvent)
  return history
}

const textOf = (events: readonly AgentEvent[], live = new RunLive(), trouble = '') =>
  logText({ history: historyOf(events), live, trouble })

it('has the plan with the state of each step, and each call with the end of its output [H.03]', () => {
  const step = (id: string) => ({ id, title: `Do ${id}`, instructions: '', needs: [], writes: [] })
  const plan = {
    goal: 'All',
    steps: [step('one'), step('two')].map((each) => ({ ...each, onFailure: 'abort' as const })),
  }
  const call = { stepId: 'one', callId: 'c', tool: 'run_bash' }
  const output = Array.from({ length: 50 }, (_, at) => `line ${at}`).join('\n')
  const text = textOf([
    { type: 'plan-update', revision: 1, plan },
    { type: 'step-start', stepId: 'one' },
    { type: 'tool-start', ...call, arguments: '{"command":"npm test"}' },
    { type: 'tool-end', ...call, output, exitCode: 1, durationMs: 1_500 },
  ])
  expect(text).toContain('PLAN\n  ▸ Do one\n  · Do two\n')
  expect(text).toContain('✗ run_bash npm test (1.5 s, exit 1)')
  expect(text).toContain('line 49')
  expect(text).not.toContain('line 10\n')
})

it('names the file of a call before its content, and shows arguments without such a name as they are [H.03]', () => {
  const callOf = (tool: string, given: string): AgentEvent => ({
    ...{ type: 'tool-start', stepId: 's', callId: tool, tool },
    arguments: given,
  })
  const text = textOf([
    callOf('write_file', JSON.stringify({ content: 'x'.repeat(900), path: 'src/a\u202e.ts' })),
    callOf('list', '{"depth":3}'),
    callOf('broken', '{"content":"xx'),
  ])
  expect(text).toContain('▸ write_file src/a\\u{202e}.ts {"content":"xxx')
  expect(text).toContain('▸ list {"depth":3}\n')
  expect(text).toContain('▸ broken {"content":"xx\n')
  expect(text).not.toContain('x'.repeat(300))
})

it('shows what is hidden in the text of a run, is bounded, and names what is wrong [H.03 S4.12]', () => {
  const note = (text: string): AgentEvent => ({ type: 'note', level: 'info', text })
  const live = new RunLive()
  live.add({ type: 'text-delta', stepId: 's', turn: 1, offset: 0, text: 'a\u202eb\u001b]0;x\u0007' }, 'root')
  const text = textOf(
    [...Array.from({ length: 1_500 }, (_, at) => note(`note ${at}`)), note('\u200bend')],
    live,
    'No answer.',
  )
  expect(text).not.toMatch(/[[\p{Cc}\p{Cf}]--[\n\t]]/v)
  expect(text).toContain('a\\u{202e}b\\e]0;x\\x07')
  expect(text).toContain('! No answer.')
  expect(text).toContain('(501 earlier entries: see the web page)')
  expect(text).not.toContain('note 500\n')
  expect(text).toContain('note 501\n')
})
