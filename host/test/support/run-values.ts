// Values of a run that tests of several folders share, and helpers that wait for a condition.
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { type Completion, RunLimits, type Task } from '#specs/protocol/task.ts'

export const runId = `run-${'0123456789'.repeat(2)}`

export const runStart: Extract<HostEvent, { type: 'run-start' }> = {
  type: 'run-start',
  prompt: 'do it',
  model: 'test/model',
  provider: 'custom',
  directory: '/work',
  limits: RunLimits.parse({}),
  imageKey: 'image',
  agentDigest: 'agent',
}

export const task: Task = {
  runId,
  prompt: 'say hello',
  model: 'test',
  askTools: [],
  limits: {
    maxTurnsPerStep: 1,
    maxToolCalls: 1,
    maxParallelSteps: 1,
    maxAgents: 0,
    maxParallelAgents: 1,
    maxDepth: 1,
    maxWallMs: 1_000,
    maxTokens: 1,
  },
}

export const completion: Completion = {
  runId,
  outcome: 'completed',
  reason: 'completed',
  message: '',
  summary: 'done',
  usage: { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 },
}

export function note(text: string): AgentEvent {
  return { type: 'note', level: 'info', text }
}

export function wait(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}

/** Waits until `condition` holds; rejects with `what` after half a minute. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + 30_000
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`never happened: ${what}`)
    await wait(2)
  }
}
