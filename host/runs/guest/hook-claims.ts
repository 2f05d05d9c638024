/**
 * Checks that the agent called its hooks and obeyed them. A call, step or sub-agent reported as successful is invalid
 * when its hooks were not called, or one of them denied it. Checks no other claim.
 */
import type { AgentEvent } from '#specs/protocol/event.ts'
import { type AgentHook, type AgentHookPoint, type HookRequest, isAskedAt } from '#specs/protocol/hook.ts'
import { toolKey } from '#specs/protocol/tool-names.ts'

/** Step id under which a sub-agent calls hooks about its whole work. */
const agentStepId = 'agent'
/** Maximum concurrent calls and steps. A real run never reaches it; beyond it nothing is recorded. */
const openMaxCount = 8_192

/** A point at which hooks were called, or a denial. */
type Seen = AgentHookPoint | 'refused'

export class HookEventValidator {
  readonly #hooks: readonly AgentHook[]
  /** Points by agent and subject. A call is kept until it ends. */
  readonly #asked = new Map<string, Set<Seen>>()

  constructor(hooks: readonly AgentHook[]) {
    this.#hooks = hooks
  }

  /** Records a hook request of the agent. */
  note(request: HookRequest): void {
    this.#add(request, request.subject.point)
  }

  /** Records that a hook denied the request. */
  noteRefusal(request: HookRequest): void {
    this.#add(request, 'refused')
  }

  #add({ agentPath, stepId, subject }: HookRequest, seen: Seen): void {
    const key = 'callId' in subject ? callKey(agentPath, subject) : stepKey(agentPath, stepId)
    const points = this.#asked.get(key) ?? new Set()
    if (this.#asked.size < openMaxCount) this.#asked.set(key, points)
    points.add(seen)
  }

  /** Records that a step of an agent before has begun, and so its hooks were called. */
  noteBegunStep(stepId: string): void {
    const key = stepKey('root', stepId)
    this.#asked.set(key, (this.#asked.get(key) ?? new Set()).add('before-step'))
  }

  /** Returns the problem of an event, phrased to follow "the guest sent"; null if it is valid. */
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

  /** The result follows the description of the successful work. */
  #findProblem(key: string, points: readonly AgentHookPoint[], tool?: string): string | null {
    const asked = this.#asked.get(key)
    if (asked?.has('refused') === true) return 'that a hook refused'
    const missing = points.find(
      (point) => this.#hooks.some((hook) => isAskedAt(hook, point, tool)) && asked?.has(point) !== true,
    )
    return missing === undefined ? null : `whose ${missing} hook was never asked`
  }
}

/** Another spelling, or another system's name, means the same tool. */
function callKey(
  agentPath: string,
  { callId, tool }: { readonly callId: string; readonly tool: string },
): string {
  return JSON.stringify([agentPath, callId, toolKey(tool)])
}

function stepKey(agentPath: string, stepId: string): string {
  return JSON.stringify([agentPath, stepId])
}
