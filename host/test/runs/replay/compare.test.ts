import { expect, it } from 'vitest'
import type { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { chainLine } from '../../../journal/journal-lines.ts'
import { compareJournals } from '../../../runs/replay/compare.ts'

type Given = HostEvent | readonly [agentPath: string, event: AgentEvent]

/** A journal of these events. */
function journal(runId: string, events: readonly Given[]): JournalEvent[] {
  let prev = '0'.repeat(64)
  return events.map((given, index) => {
    const head = { seq: index + 1, at: 1_700_000_000_000 + index, runId }
    const of =
      'type' in given
        ? { source: 'host' as const, event: given }
        : { source: 'agent' as const, agentPath: given[0], n: index + 1, event: given[1] }
    const body = { ...head, ...of, prev }
    const { hash } = chainLine(body)
    prev = hash
    return { ...body, hash }
  })
}

const run = (events: readonly Given[]) => journal(`run-${'a'.repeat(20)}`, events)
const replay = (events: readonly Given[]) => journal(`run-${'b'.repeat(20)}`, events)

const turn = (stepId: string, ...callIds: string[]): Given => [
  'root',
  {
    type: 'turn-end',
    stepId,
    turn: 1,
    text: '',
    calls: callIds.map((callId) => ({ callId, tool: 'run_bash' })),
    usage: noUsage,
    finishReason: 'tool_calls',
  },
]
const toolEnd = (stepId: string, callId: string, output: string, durationMs = 5): Given => [
  'root',
  { type: 'tool-end', stepId, callId, tool: 'run_bash', output, durationMs },
]
const edited = (diffs: { path: string; added: number; removed: number }[]): Given => [
  'root',
  {
    ...{ type: 'tool-end', stepId: 'one', callId: 'Cc1', tool: 'edit_file', output: 'edited', durationMs: 5 },
    ...(diffs.length === 0 ? {} : { diffs }),
  },
]
const end = (reason: 'completed' | 'cancelled' = 'completed'): Given => ({
  type: 'run-end',
  outcome: reason,
  reason,
  message: '',
  summary: 'done',
  usage: noUsage,
  durationMs: 9,
})

it('a diff that the agent had no time to compute is no difference; another diff is one [R.03]', () => {
  const changed = { path: 'a.txt', added: 1, removed: 1 }
  const compareEdits = (one: (typeof changed)[], other: (typeof changed)[]) =>
    compareJournals(
      run([turn('one', 'Cc1'), edited(one), end()]),
      replay([turn('one', 'Cc1'), edited(other), end()]),
    ).difference
  expect(compareEdits([changed], [])).toBeNull()
  expect(compareEdits([], [changed])).toBeNull()
  expect(compareEdits([changed], [{ ...changed, added: 2 }])).toMatchObject({
    type: 'tool-end',
    field: 'diffs.0.added',
    expected: '1',
    seen: '2',
  })
})

it('times, durations, drawn ids and the order of steps side by side are no difference [R.03]', () => {
  const expected = run([
    turn('one', 'Aa1', 'Aa2'),
    turn('two', 'Bb1'),
    toolEnd('one', 'Aa1', '[exit code 0, after 12 ms]\nx'),
    toolEnd('one', 'Aa2', `see run-${'a'.repeat(20)}`),
    toolEnd('two', 'Bb1', 'y'),
    end(),
  ])
  const seen = replay([
    { type: 'session-start', session: 1, resumed: false },
    turn('two', 'Aa1'),
    toolEnd('two', 'Aa1', 'y', 900),
    turn('one', 'Bb1', 'Cc1'),
    toolEnd('one', 'Cc1', `see run-${'b'.repeat(20)}`),
    toolEnd('one', 'Bb1', '[exit code 0, after 3.4 s]\nx'),
    end(),
  ])
  expect(compareJournals(expected, seen)).toEqual({ events: 6, difference: null, isCutOff: false })
})

it('the first difference is named with line, agent, step, event and field, and an excerpt around it [R.03]', () => {
  const long = 'x'.repeat(500)
  const expected = run([turn('one', 'Aa1'), toolEnd('one', 'Aa1', `${long}one${long}`), end()])
  const seen = replay([turn('one', 'Aa1'), toolEnd('one', 'Aa1', `${long}two${long}`), end('cancelled')])
  const { difference } = compareJournals(expected, seen)
  expect(difference).toMatchObject({
    line: 2,
    replayLine: 2,
    agentPath: 'root',
    stepId: 'one',
    type: 'tool-end',
    field: 'output',
  })
  expect(difference?.expected).toMatch(/^…x{40}onex+…$/)
  expect(difference?.seen).toMatch(/^…x{40}twox+…$/)
})

it('an event that is missing, and one that is additional, are differences [R.03]', () => {
  const short = [turn('one', 'Aa1'), end()]
  const long = [turn('one', 'Aa1'), toolEnd('one', 'Aa1', 'x'), end()]
  expect(compareJournals(run(long), replay(short)).difference).toMatchObject({
    line: 2,
    replayLine: null,
    type: 'tool-end',
    seen: '',
  })
  expect(compareJournals(run(short), replay(long)).difference).toMatchObject({ line: null, replayLine: 2 })
})

it('a run that was cancelled is compared up to there, and one that was recovered without what was done again [R.03]', () => {
  const cancelled = run([
    turn('one', 'Aa1'),
    { type: 'cancel-request', by: 'person' },
    toolEnd('one', 'Aa1', 'interrupted'),
    end('cancelled'),
  ])
  expect(compareJournals(cancelled, replay([turn('one', 'Aa1'), toolEnd('one', 'Aa1', 'x'), end()]))).toEqual(
    {
      events: 1,
      difference: null,
      isCutOff: true,
    },
  )
  const recovered = run([
    turn('one', 'Aa1'),
    { type: 'checkpoint', checkpointId: 'cp-1', durationMs: 1, elapsedMs: 1, exchanges: 1 },
    toolEnd('one', 'Aa1', 'lost'),
    { type: 'run-resume', epoch: 2, checkpointId: 'cp-1', message: 'the VM was lost' },
    toolEnd('one', 'Aa1', 'done again'),
    end(),
  ])
  const seen = replay([turn('one', 'Aa1'), toolEnd('one', 'Aa1', 'done again'), end()])
  expect(compareJournals(recovered, seen)).toEqual({ events: 3, difference: null, isCutOff: false })
})

it('calls of a program are the same where the program calls the same, whatever its own id and order [R.03] [A.14]', () => {
  const inner = (parentCallId: string, own: string, path: string): Given => [
    'root',
    {
      type: 'tool-start',
      stepId: 'one',
      callId: `${parentCallId}.${own}`,
      parentCallId,
      tool: 'read_file',
      arguments: JSON.stringify({ path }),
    },
  ]
  const expected = run([turn('one', 'Aa1'), inner('Aa1', 'x1', 'a'), inner('Aa1', 'y1', 'b'), end()])
  const same = replay([turn('one', 'Bb1'), inner('Bb1', 'y1', 'b'), inner('Bb1', 'x1', 'a'), end()])
  expect(compareJournals(expected, same).difference).toBeNull()
  const other = replay([turn('one', 'Bb1'), inner('Bb1', 'x1', 'a'), inner('Bb1', 'z1', 'c'), end()])
  expect(compareJournals(expected, other).difference).toMatchObject({ type: 'tool-start' })
})
