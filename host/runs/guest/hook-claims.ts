/**
 * Whether the agent asked the hooks where it was told to, and did as it was told: a call, a step or a sub-agent's work that it says
 * went well without its hooks having been asked, or although one of them said no, is a lie. What it says of itself otherwise is
 * not known here.
 */
import type { AgentEvent } from '#specs/protocol/event.ts'
import { type AgentHook, type AgentHookPoint, type HookRequest, isAskedAt } from '#specs/protocol/hook.ts'
import { toolKey } from '#specs/protocol/tool-names.ts'

/** Under this id a sub-agent asks about all of its work. */
const agentStepId = 'agent'
/** Calls and steps that are under way at once; more is no run's, and what was asked for them is not kept. */
const openMaxCount = 8_192

/** A point that was asked at, or that one of them said no. */
type Seen = AgentHookPoint | 'refused'

export class HookEventValidator {
  readonly #hooks: readonly AgentHook[]
  /** What was asked, by whom it was asked for and about what; of a call until it has ended. */
  readonly #asked = new Map<string, Set<Seen>>()

  constructor(hooks: readonly AgentHook[]) {
    this.#hooks = hooks
  }

  /** The agent asks. */
  note(request: HookRequest): void {
    this.#add(request, request.subject.point)
  }

  /** It is told no. */
  noteRefusal(request: HookRequest): void {
    this.#add(request, 'refused')
  }

  #add({ agentPath, stepId, subject }: HookRequest, seen: Seen): void {
    const key = 'callId' in subject ? callKey(agentPath, subject) : stepKey(agentPath, stepId)
    const points = this.#asked.get(key) ?? new Set()
    if (this.#asked.size < openMaxCount) this.#asked.set(key, points)
    points.add(seen)
  }

  /** What is wrong with an event, to be read after "the guest sent"; null when nothing is. */
  check(agentPath: string, event: AgentEvent): string | null {
    if (event.type === 'tool-end') {
      const key = callKey(agentPath, event)
      const problem =
        event.error === undefined ? this.#findProblem(key, ['before-tool', 'after-tool'], event.tool) : null
      this.#asked.delete(key)
      return problem && `the end of a call of ${event.tool} ${problem}`
    }
    const isDone = 'state' in event && event.state === 'completed'
    if (event.type === 'step-end' && isDone) return this.#checkStep(agentPath, event.stepId)
    if (event.type === 'agent-end' && isDone) return this.#checkStep(agentPath, agentStepId)
    return null
  }

  #checkStep(agentPath: string, stepId: string): string | null {
    const problem = this.#findProblem(stepKey(agentPath, stepId), ['before-step', 'after-step'])
    return problem && `the end of step "${stepId}" of ${agentPath} ${problem}`
  }

  /** To be read behind what is said to have gone well. */
  #findProblem(key: string, points: readonly AgentHookPoint[], tool?: string): string | null {
    const asked = this.#asked.get(key)
    if (asked?.has('refused') === true) return 'that a hook refused'
    const missing = points.find(
      (point) => this.#hooks.some((hook) => isAskedAt(hook, point, tool)) && asked?.has(point) !== true,
    )
    return missing === undefined ? null : `whose ${missing} hook was never asked`
  }
}

/** A tool in another spelling, or by another system's name, is the same tool. */
function callKey(
  agentPath: string,
  { callId, tool }: { readonly callId: string; readonly tool: string },
): string {
  return JSON.stringify([agentPath, callId, toolKey(tool)])
}

function stepKey(agentPath: string, stepId: string): string {
  return JSON.stringify([agentPath, stepId])
}
