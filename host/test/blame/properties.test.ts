import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { AgentEvent, JournalEvent } from '#specs/protocol/event.ts'
import { perTier } from '#specs/testing/tier.ts'
import { CallDetails } from '../../blame/call-details.ts'
import { linesOfText, readCallDiff } from '../../blame/call-diff.ts'
import { aligned, emptyView, type FileView, suspectsOf, type ViewLine } from '../../blame/file-view.ts'
import { Moves } from '../../blame/moves.ts'
import { FileTrace } from '../../blame/trace-file.ts'
import { diffOf } from './support.ts'

type ToolEnd = Extract<AgentEvent, { type: 'tool-end' }>

/** One change: at a place in the file, in parts of a thousand, lines go and others come. */
const Change = fc.record({
  kind: fc.constantFrom('edit', 'command', 'rewrite'),
  at: fc.nat(1000),
  remove: fc.nat(6),
  add: fc.nat(6),
})

function startOf(texts: readonly string[]): Map<string, FileView> {
  const lines = texts.map((text, index): ViewLine => {
    return { text, source: { kind: 'workspace', path: 'f', line: index + 1 } }
  })
  return new Map([['f', { ...emptyView, lines }]])
}

function told(event: AgentEvent, seq: number, agentPath = 'root'): JournalEvent {
  const line = { seq, at: seq, runId: 'run-0123456789abcdef0123', prev: '', hash: '' }
  return { ...line, source: 'agent', agentPath, n: seq, event }
}

const textOf = (lines: readonly { readonly text: string }[]) => lines.map(({ text }) => `${text}\n`).join('')

describe('the origin of each line', () => {
  it('is the call that made it, for any edits, and a command that no diff shows is among the candidates [W.09]', () => {
    fc.assert(
      fc.property(fc.nat(60), fc.array(Change, { maxLength: 12 }), (length, changes) => {
        // Each text occurs once, so that there is one true answer.
        const start = Array.from({ length }, (_, index) => ({ text: `line ${index}`, by: 'workspace' }))
        const trace = new FileTrace(startOf(start.map(({ text }) => text)))
        let file = start
        const commands = new Set<string>()
        for (const [index, { kind, at, remove, add }] of changes.entries()) {
          const callId = `c${index}`
          const from = kind === 'rewrite' ? 0 : Math.floor((at * file.length) / 1001)
          const count = kind === 'rewrite' ? file.length : remove
          const added = Array.from({ length: add }, (_, number) => ({
            text: `${callId} ${number}`,
            by: callId,
          }))
          const after = file.toSpliced(from, count, ...added)
          const tool = kind === 'command' ? 'run_bash' : 'edit_file'
          const call = { stepId: 'work', callId, tool }
          const diff =
            kind === 'command' ? {} : { diffs: [diffOf(['f', textOf(file), textOf(after)])], writes: ['f'] }
          const end: ToolEnd = { type: 'tool-end', ...call, output: '', durationMs: 1, ...diff }
          trace.next(told({ type: 'tool-start', ...call, arguments: '{}' }, 2 * index + 1))
          trace.next(told(end, 2 * index + 2))
          if (kind === 'command') commands.add(callId)
          file = after
        }
        const view = trace.at('f')
        const found = aligned(
          view.lines,
          file.map(({ text }) => text),
          suspectsOf(view),
          () => undefined,
        )
        for (const [index, { by }] of file.entries()) {
          const source = found[index]?.source
          const named =
            source?.kind === 'call'
              ? [source.call.callId]
              : source?.kind === 'candidates'
                ? source.calls.map(({ callId }) => callId)
                : ['workspace']
          if (source?.kind === 'candidates') expect(named).toContain(by)
          else expect(named).toEqual([by])
          // What a diff shows is never left open.
          if (!commands.has(by) && by !== 'workspace') expect(source?.kind).toBe('call')
        }
      }),
      { numRuns: perTier(300, 5_000) },
    )
  })

  it('stands for any journal that a guest writes, however little it fits [W.09]', () => {
    const Path = fc.constantFrom('f', 'g', 'd/f', 'd')
    const Diff = fc.record({
      path: Path,
      added: fc.nat(5),
      removed: fc.nat(5),
      diff: fc.oneof(
        fc.string(),
        fc
          .array(
            fc.constantFrom(
              '@@ -1,2 +1,9 @@',
              '@@ -0,0 +1 @@',
              '@@ -999999999 +1 @@',
              ' a',
              '+b',
              '-a',
              '\\ No',
              '',
            ),
          )
          .map((lines) => lines.join('\n')),
      ),
    })
    const Id = fc.constantFrom('c1', 'c2')
    const Tool = fc.constantFrom(
      'edit_file',
      'move_file',
      'delete_file',
      'apply_patch',
      'run_bash',
      'take_agent_file',
      'x',
    )
    const Given = fc.oneof(
      fc.string(),
      fc.constantFrom(
        '{"agent":"root","path":"f"}',
        '{"patch":"*** Update File: g\\n*** Move to: f"}',
        '{"patch":1,"note":"rename to f"}',
        'null',
      ),
    )
    const call = { stepId: fc.constant('s'), callId: Id, tool: Tool }
    const usage = { requests: 1, inputTokens: 1, cachedTokens: 0, outputTokens: 1, reasoningTokens: 0 }
    const Event: fc.Arbitrary<AgentEvent> = fc.oneof(
      fc.record({ type: fc.constant('tool-start' as const), ...call, arguments: Given }),
      fc.record({
        type: fc.constant('tool-end' as const),
        ...call,
        output: fc.string(),
        durationMs: fc.constant(1),
        writes: fc.array(Path, { maxLength: 3 }),
        diffs: fc.array(Diff, { maxLength: 3 }),
      }),
      fc.constant<AgentEvent>({
        ...{ type: 'agent-start', stepId: 's', brief: 'b', tools: [] },
        limits: { maxTurns: 1, maxToolCalls: 1, maxTokens: 1_000, maxWallMs: 1_000 },
      }),
      fc.record({
        type: fc.constant('agent-end' as const),
        stepId: fc.constant('s'),
        state: fc.constant('completed' as const),
        reason: fc.constant('completed' as const),
        text: fc.constant(''),
        usage: fc.constant(usage),
        merged: fc.nat(1),
        conflicts: fc.array(Path, { maxLength: 2 }),
      }),
    )
    const Line = fc.record({
      agentPath: fc.constantFrom('root', 'root/a', 'root/a/b', 'root/c'),
      event: Event,
    })
    fc.assert(
      fc.property(fc.array(Line, { maxLength: 40 }), (lines) => {
        const trace = new FileTrace(startOf(['a', 'a', 'b']))
        const moves = new Moves()
        const details = new CallDetails(new Set())
        for (const [index, { agentPath, event }] of lines.entries())
          for (const reader of [trace, moves, details]) reader.next(told(event, index + 1, agentPath))
        expect(moves.pathsBehind('f')).toContain('f')
        expect(trace.at('f').lines.length).toBeLessThan(1_000)
        expect(suspectsOf(trace.at('f')).kind).toBeTypeOf('string')
      }),
    )
  })
})

it('diffs that are cut or are no diffs are read as far as they go [W.09]', () => {
  const text = 'a\nb\nc'
  expect(linesOfText(text)).toEqual(['a', 'b', 'c'])
  const whole = diffOf(['f', '', text])
  expect(readCallDiff(whole)).toMatchObject({ isWhole: true, wasEmpty: true })
  expect(readCallDiff({ ...whole, diff: '@@ -0,0 +1,3 @@\n+a\n' })).toMatchObject({
    isWhole: false,
    wasEmpty: true,
  })
  expect(readCallDiff({ added: 1, removed: 0 })).toMatchObject({ hunks: [], isWhole: false })
  expect(readCallDiff({ added: 0, removed: 0, diff: '+no hunk\nnonsense' })).toMatchObject({ hunks: [] })
})
