/**
 * Whether the agent asked the hooks where it was told to: a call, a step or a sub-agent's work that it says went well without its
 * hooks having been asked is a lie. What it says of itself otherwise is not known here.
 */
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { AgentHook, AgentHookPoint, HookRequest } from '#specs/protocol/hook.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'

/** Under this id a sub-agent asks about all of its work. */
const agentStepId = 'agent'
/** Calls and steps that are under way at once; more is no run's, and what was asked for them is not kept. */
const openMaxCount = 8_192

export class HookClaims {
  readonly #hooks: readonly AgentHook[]
  /** What was asked, by whom it was asked for and about what; of a call until it has ended. */
  readonly #asked = new Map<string, Set<AgentHookPoint>>()

  constructor(hooks: readonly AgentHook[]) {
    this.#hooks = hooks
  }

  /** The agent asks. */
  note({ agentPath, stepId, subject }: HookRequest): void {
    const key = 'callId' in subject ? callKey(agentPath, subject) : stepKey(agentPath, stepId)
    const points = this.#asked.get(key) ?? new Set()
    if (this.#asked.size < openMaxCount) this.#asked.set(key, points)
    points.add(subject.point)
  }

  /** What is wrong with an event, to be read after "the guest sent"; null when nothing is. */
  check(agentPath: string, event: AgentEvent): string | null {
    if (event.type === 'tool-end') {
      const key = callKey(agentPath, event)
      const missing =
        event.error === undefined && this.#findMissing(key, ['before-tool', 'after-tool'], event.tool)
      this.#asked.delete(key)
      return missing ? `the end of a call of ${event.tool} whose ${missing} hook was never asked` : null
    }
    const isDone = 'state' in event && event.state === 'completed'
    if (event.type === 'step-end' && isDone) return this.#checkStep(agentPath, event.stepId)
    if (event.type === 'agent-end' && isDone) return this.#checkStep(agentPath, agentStepId)
    return null
  }

  #checkStep(agentPath: string, stepId: string): string | null {
    const missing = this.#findMissing(stepKey(agentPath, stepId), ['before-step', 'after-step'])
    return missing
      ? `the end of step "${stepId}" of ${agentPath} whose ${missing} hook was never asked`
      : null
  }

  #findMissing(key: string, points: readonly AgentHookPoint[], tool?: string): AgentHookPoint | undefined {
    const asked = this.#asked.get(key)
    return points.find((point) => this.#isHooked(point, tool) && asked?.has(point) !== true)
  }

  #isHooked(point: AgentHookPoint, tool: string | undefined): boolean {
    return this.#hooks.some(
      (hook) =>
        hook.point === point &&
        (tool === undefined ||
          hook.tools === undefined ||
          hook.tools.some((pattern) => matchesPattern(pattern, tool))),
    )
  }
}

function callKey(
  agentPath: string,
  { callId, tool }: { readonly callId: string; readonly tool: string },
): string {
  return JSON.stringify([agentPath, callId, tool])
}

function stepKey(agentPath: string, stepId: string): string {
  return JSON.stringify([agentPath, stepId])
}
