// The history of a run from its journal lines, and what is live beside it.
import { expect, it } from 'vitest'
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { reduceRun } from '#specs/protocol/run-state.ts'
import { RunHistory } from '../run/history.ts'
import { RunLive } from '../run/live.ts'

const zeros = '0'.repeat(64)
const line = (seq: number, event: AgentEvent | HostEvent, source: 'agent' | 'host' = 'agent'): JournalEvent =>
  ({
    ...{ seq, at: seq * 1_000, runId: 'run-0', source, prev: zeros, hash: zeros, event },
    ...(source === 'agent' ? { agentPath: 'root', n: seq } : {}),
  }) as JournalEvent
const note = (text: string): AgentEvent => ({ type: 'note', level: 'info', text })

it('the state at any line is the fold of the lines until there, and a line that comes twice counts once [R.09]', () => {
  /** Around the states that are kept, and at the ends. */
  const looks = new Set([0, 1, 255, 256, 257, 400, 511, 512, 599])
  const history = new RunHistory()
  const lines = Array.from({ length: 600 }, (_, index) =>
    line(index + 1, {
      ...{ type: 'tool-start', stepId: 's', callId: `c${index}`, tool: 't', arguments: '{}' },
    }),
  )
  for (const each of lines) history.add(each)
  for (const each of lines.slice(500)) history.add(each)
  expect([history.length, history.entries.length, history.next]).toEqual([600, 600, 601])
  let state = new RunHistory().state
  for (const [index, each] of lines.entries()) {
    if (looks.has(index)) expect(history.stateAt(index)).toEqual(state)
    state = reduceRun(state, each)
  }
  expect(history.stateAt(600)).toEqual(state)
})

it('the end of a call and the decision of a question belong to their rows [H.02]', () => {
  const history = new RunHistory()
  const call = { stepId: 's', callId: 'c1', tool: 'run_bash' }
  history.add(line(1, { type: 'tool-start', ...call, arguments: '{}' }))
  history.add(line(2, note('between')))
  history.add(line(3, { type: 'tool-end', ...call, output: 'ok', durationMs: 1 }))
  expect(history.entries.map(({ kind }) => kind)).toEqual(['call', 'host'])
  expect(history.entries[0]).toMatchObject({ end: { seq: 3, event: { output: 'ok' } } })
})

it('text that arrives is joined by its offsets, bounded, and ends with its turn [H.02]', () => {
  const live = new RunLive()
  const piece = (offset: number, text: string) =>
    live.add({ type: 'text-delta', stepId: 's', turn: 1, offset, text }, 'root')
  const shown = () => [...live.texts.values()].map(({ text }) => text)
  piece(0, 'Hello ')
  piece(6, 'world')
  piece(6, 'there')
  expect(shown()).toEqual(['Hello there'])
  for (let offset = 11; offset < 100_000; offset += 1_000) piece(offset, 'x'.repeat(1_000))
  expect(shown()[0]?.length).toBeLessThanOrEqual(20_000)
  const usage = { requests: 1, inputTokens: 1, outputTokens: 1, reasoningTokens: 0 }
  const end = { stepId: 's', turn: 1, text: 'Hello', calls: [], usage, finishReason: 'stop' }
  live.settle({ type: 'turn-end', ...end }, 'root')
  expect(shown()).toEqual([])
})
