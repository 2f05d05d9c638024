/** A run as one answer: its status, its output, and the trace of its tool calls. */
import type { JournalEvent } from '#specs/protocol/event.ts'
import { describeOutput, type TaskAnswer, type TraceEntry } from '#specs/service/task-resources.ts'
import type { RunStore } from '../journal/run-store.ts'

/** The tool calls of a run and its sub-agents, in the order of their starts. */
export async function readTrace(runs: RunStore, runId: string): Promise<TraceEntry[]> {
  const calls = new Map<string, TraceEntry>()
  await runs.visit(runId, (line) => addToTrace(calls, line))
  return [...calls.values()]
}

/** `error` unless the run completed; the output is then why it ended, and what the agent answered before. */
export function toTaskAnswer(
  { outcome, summary, message }: Readonly<Record<'outcome' | 'summary' | 'message', string>>,
  trace: readonly TraceEntry[],
): TaskAnswer {
  const isDone = outcome === 'completed'
  return {
    status: isDone ? 'success' : 'error',
    output: isDone ? summary : [message, summary].filter((text) => text !== '').join('\n'),
    trace: [...trace],
  }
}

function addToTrace(calls: Map<string, TraceEntry>, line: JournalEvent): void {
  if (line.source !== 'agent') return
  const { at, agentPath, event } = line
  if (event.type === 'tool-start')
    calls.set(`${agentPath} ${event.callId}`, {
      step: calls.size + 1,
      tool: event.tool,
      input: parse(event.arguments) ?? { text: event.arguments },
      output: null,
      error: 'the run ended before this call did',
      timestamp: new Date(at).toISOString(),
    })
  if (event.type !== 'tool-end') return
  const key = `${agentPath} ${event.callId}`
  const call = calls.get(key)
  if (call === undefined) return
  const { error, output } = event
  calls.set(key, {
    ...call,
    output: error === undefined ? describeOutput(call, output) : null,
    error: error === undefined ? null : `${error.code}: ${error.message}`,
  })
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
