/** Reports a sub-agent to the host under its path: `agent-start` first, `agent-end` last, nothing after that. */
import type { AgentEvent, Delta } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { RunBudgetLimits } from '../run/budget.ts'
import type { Report } from '../run/run.ts'
import { truncate, truncateJson } from '../text/truncate.ts'
import type { AgentRequest, AgentResult } from '../tool-calls/sub-agent-types.ts'

const textMaxBytes = limits.frameMaxBytes / 4
/** Maximum number of names in an event. */
const conflictsMaxCount = 1_000

export class ChildReport implements Report {
  readonly #report: Report
  #isOpen = true

  constructor(report: Report) {
    this.#report = report
  }

  event(event: AgentEvent): Promise<void> {
    return this.#isOpen ? this.#report.event(event) : Promise.resolve()
  }

  delta(delta: Delta): void {
    if (this.#isOpen) this.#report.delta(delta)
  }

  turnOf(stepId: string): number {
    return this.#report.turnOf(stepId)
  }

  sourceHeaders(stepId: string): Readonly<Record<string, string>> {
    return this.#report.sourceHeaders(stepId)
  }

  /** @param stepId the parent's step that it works for */
  begin(
    { brief, limits: wanted, effort, model, isolation, hosts, approvals }: AgentRequest,
    stepId: string,
    tools: readonly string[],
    { maxToolCalls, maxTokens, maxWallMs, maxRequests, maxCostUsd, maxAgents }: RunBudgetLimits,
  ): Promise<void> {
    return this.event({
      type: 'agent-start',
      stepId,
      brief: truncateJson(brief, limits.documentMaxChars, textMaxBytes),
      tools: [...tools],
      limits: {
        ...(wanted?.maxTurns === undefined ? {} : { maxTurns: wanted.maxTurns }),
        maxToolCalls,
        maxTokens,
        // The protocol's minimum.
        maxWallMs: Math.max(1_000, maxWallMs),
        ...(maxRequests === undefined ? {} : { maxRequests }),
        ...(maxCostUsd === undefined ? {} : { maxCostUsd }),
        ...(maxAgents === undefined ? {} : { maxAgents }),
      },
      ...(effort === undefined ? {} : { effort }),
      ...(model === undefined ? {} : { model }),
      ...(isolation === 'vm' ? { isolation } : {}),
      ...(hosts === undefined ? {} : { hosts: [...hosts] }),
      ...(approvals === undefined ? {} : { approvals }),
    })
  }

  /** After this only `end` is reported: abandoned tools can report nothing. */
  close(): void {
    this.#isOpen = false
  }

  end(result: AgentResult, stepId: string): Promise<void> {
    const { state, reason, text, usage, merged, conflicts } = result
    return this.#report.event({
      type: 'agent-end',
      stepId,
      state,
      reason,
      text: truncateJson(text, limits.documentMaxChars, textMaxBytes),
      usage,
      merged: merged.length,
      conflicts: conflicts.slice(0, conflictsMaxCount).map(({ path }) => truncate(path, limits.lineMaxChars)),
    })
  }
}
