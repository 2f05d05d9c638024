/** Journals of runs whose calls change files, with the diffs that an agent reports. */
import { createTwoFilesPatch } from 'diff'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import type { RunRecord } from '../../journal/run-record.ts'
import { beginChanging, changedRunId, placeOfRuns } from '../support/changed-run.ts'
import { type Sketch, treeOf } from '../workspace/support.ts'

type ToolEnd = Extract<AgentEvent, { type: 'tool-end' }>
type Change = readonly [path: string, before: string, after: string]

const usage = { requests: 1, inputTokens: 1, cachedTokens: 0, outputTokens: 1, reasoningTokens: 0 }

/** Writes what an agent says of its calls. */
export class Told {
  readonly #record: RunRecord
  #n = 0
  #calls = 0

  constructor(record: RunRecord) {
    this.#record = record
  }

  async event(agentPath: string, event: AgentEvent): Promise<void> {
    this.#n += 1
    await this.#record.agent(agentPath, this.#n, event)
  }

  async host(event: HostEvent): Promise<void> {
    await this.#record.host(event)
  }

  /** A call from its start to its end. @returns its id */
  async call(
    tool: string,
    given: Readonly<Record<string, unknown>>,
    end: Partial<ToolEnd> = {},
    agentPath = 'root',
  ): Promise<string> {
    this.#calls += 1
    const callId = `c${this.#calls}`
    const common = { stepId: 'work', callId, tool }
    await this.event(agentPath, { type: 'tool-start', ...common, arguments: JSON.stringify(given) })
    await this.event(agentPath, { type: 'tool-end', ...common, output: 'done', durationMs: 1, ...end })
    return callId
  }

  async edit(changes: readonly Change[], agentPath = 'root'): Promise<string> {
    const [first] = changes
    const writes = changes.map(([path]) => path)
    return await this.call(
      'edit_file',
      { path: first?.[0] },
      { writes, diffs: changes.map(diffOf) },
      agentPath,
    )
  }

  async command(command: string, agentPath = 'root'): Promise<string> {
    return await this.call('run_bash', { command }, {}, agentPath)
  }

  async startAgent(agentPath: string): Promise<void> {
    const limits = { maxTurns: 1, maxToolCalls: 1, maxTokens: 1_000, maxWallMs: 1_000 }
    await this.event(agentPath, {
      type: 'agent-start',
      stepId: 'work',
      brief: `the task of ${agentPath}`,
      tools: [],
      limits,
    })
  }

  async endAgent(agentPath: string, merged: number, conflicts: readonly string[] = []): Promise<void> {
    const ended = { state: 'completed', reason: 'completed', text: '', usage, merged } as const
    await this.event(agentPath, { type: 'agent-end', stepId: 'work', ...ended, conflicts: [...conflicts] })
  }

  async turn(turn: number, callIds: readonly string[]): Promise<void> {
    const calls = callIds.map((callId) => ({ callId, tool: 'edit_file' }))
    await this.event('root', {
      ...{ type: 'turn-end', stepId: 'work', turn, calls, usage, finishReason: 'tool_calls' },
      ...{ text: `turn ${turn}`, reasoning: `thought ${turn}` },
    })
  }

  async checkpoint(checkpointId: string): Promise<void> {
    await this.host({ type: 'checkpoint', checkpointId, durationMs: 1, elapsedMs: 1, exchanges: 0 })
  }
}

/** As the agent reports it: see agent/tool-calls/call-facts.ts. */
export function diffOf([path, before, after]: Change): NonNullable<ToolEnd['diffs']>[number] {
  const lines = createTwoFilesPatch('a', 'b', before, after, undefined, undefined, { context: 3 })
    .split('\n')
    .slice(3)
  const count = (mark: string) => lines.filter((line) => line.startsWith(mark)).length
  return { path, added: count('+'), removed: count('-'), diff: lines.join('\n') }
}

/** A run with these changes and this journal. Call it from within a test. */
export async function runThatTold(before: Sketch, after: Sketch, tell: (told: Told) => Promise<void>) {
  const place = await placeOfRuns(before)
  const end = await beginChanging(place.host, place.directory, changedRunId)
  await end(treeOf(before), treeOf(after), (record) => tell(new Told(record)))
  const blame = async (path: string) => await place.host.blame(changedRunId, path)
  return { ...place, blame }
}
