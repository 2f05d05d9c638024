// Event sequences as a host journals them, and spans by name.
import { AgentEvent, HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { RunSpans } from '../../traces/run-spans.ts'
import type { TraceSpan } from '../../traces/span.ts'

export const runId = 'run-0123456789abcdef0123'
export const startedAt = 1_795_390_660_000
const zeros = '0'.repeat(64)

type Event = { readonly type: string; readonly [key: string]: unknown }

/** An event at a time after the start; of the host without an agent's path. */
export type Step = readonly [afterMs: number, event: Event, agentPath?: string]

/** The steps as lines of a journal; each is checked by the schema. */
export function journalOf(steps: readonly Step[], id = runId): JournalEvent[] {
  let n = 0
  return steps.map(([afterMs, event, agentPath], index) => {
    const line = { seq: index + 1, at: startedAt + afterMs, runId: id, prev: zeros, hash: zeros }
    const own =
      agentPath === undefined
        ? { source: 'host' as const, event: HostEvent.parse(event) }
        : { source: 'agent' as const, agentPath, n: ++n, event: AgentEvent.parse(event) }
    return JournalEvent.parse({ ...line, ...own })
  })
}

export const usage = {
  requests: 1,
  inputTokens: 900,
  cachedTokens: 400,
  outputTokens: 60,
  reasoningTokens: 20,
}
export const totals = {
  requests: 3,
  inputTokens: 2_700,
  cachedTokens: 1_200,
  outputTokens: 180,
  reasoningTokens: 60,
}

export const runStart = (more: object = {}): Event => ({
  type: 'run-start',
  prompt: 'Write the report',
  model: 'big-model',
  provider: 'nvidia',
  directory: '/data/secret-project',
  limits: RunLimits.parse({}),
  ...more,
})
export const runEnd = (more: object = {}): Event => ({
  type: 'run-end',
  outcome: 'completed',
  reason: 'completed',
  message: '',
  summary: 'The report is written.',
  usage: totals,
  durationMs: 1,
  ...more,
})
export const modelStart = (requestId: string, turn: number, more: object = {}): Event => ({
  type: 'model-start',
  requestId,
  agentPath: 'root',
  stepId: 'task',
  turn,
  ...more,
})
export const modelEnd = (requestId: string, more: object = {}): Event => ({
  type: 'model-end',
  requestId,
  status: 200,
  durationMs: 100,
  usage,
  ...more,
})
export const turnEnd = (turn: number, more: object = {}): Event => ({
  type: 'turn-end',
  stepId: 'task',
  turn,
  text: '',
  calls: [],
  usage,
  finishReason: 'stop',
  ...more,
})
export const toolStart = (callId: string, tool: string, more: object = {}): Event => ({
  type: 'tool-start',
  stepId: 'task',
  callId,
  tool,
  arguments: '{"path":"a.txt"}',
  ...more,
})
export const toolEnd = (callId: string, tool: string, more: object = {}): Event => ({
  type: 'tool-end',
  stepId: 'task',
  callId,
  tool,
  output: 'content of a.txt',
  durationMs: 5,
  ...more,
})
export const agentStart = (): Event => ({
  type: 'agent-start',
  stepId: 'task',
  brief: 'Check the numbers',
  tools: ['read_file'],
  limits: {},
})
export const agentEnd = (more: object = {}): Event => ({
  type: 'agent-end',
  stepId: 'task',
  state: 'completed',
  reason: 'completed',
  text: 'They are right',
  usage,
  merged: 0,
  conflicts: [],
  ...more,
})

/** All spans of the steps. @param isWhole false for a journal without the run's end */
export function spansOf(
  steps: readonly Step[],
  { filter, isWhole = true }: { readonly filter?: (text: string) => string; readonly isWhole?: boolean } = {},
): TraceSpan[] {
  const fold = new RunSpans(runId, filter)
  const spans = journalOf(steps).flatMap((line) => fold.next(line))
  return isWhole ? spans : [...spans, ...fold.interrupt()]
}

/** The only span of this name. */
export function spanNamed(spans: readonly TraceSpan[], name: string): TraceSpan {
  const found = spans.filter((span) => span.name === name)
  const [span] = found
  if (span === undefined || found.length > 1)
    throw new Error(`${found.length} spans are named ${name}, of: ${spans.map((one) => one.name).join(', ')}`)
  return span
}

/** One line a span, children below their parents in the order of their start: name, times after the start, error. */
export function treeOf(spans: readonly TraceSpan[], parent?: string, indent = ''): string[] {
  return spans
    .filter(({ parentSpanId }) => parentSpanId === parent)
    .sort((a, b) => a.startMs - b.startMs)
    .flatMap((span) => {
      const error = span.isError ? ` ${span.attributes['error.type']}` : ''
      const times = `${span.startMs - startedAt}-${span.endMs - startedAt}`
      return [`${indent}${span.name} ${times}${error}`, ...treeOf(spans, span.spanId, `${indent}  `)]
    })
}
