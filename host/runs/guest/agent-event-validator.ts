/**
 * What the agent says of its plan and its sub-agents, held against what the host knows: a revision changes nothing that
 * has begun, no step starts before its plan is known (and allowed, where a person is asked), a sub-agent begins once and
 * ends once, and there are no more than the run may have. What is said is never repaired here: it fits, or ends the run.
 */
import { createHash } from 'node:crypto'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { AgentHook, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, StepState } from '#specs/protocol/plan.ts'
import { findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import { HookEventValidator } from './hook-claims.ts'

/** What the run was told, as far as claims are measured by it. */
export interface ClaimBounds {
  readonly mode: 'work' | 'plan'
  /** Whether no step may start before its plan was allowed. */
  readonly approvePlan: boolean
  /** The plan that the agent was handed; absent: it makes its own. */
  readonly plan?: Plan
  readonly maxAgents: number
  /** Where it has to ask hooks. */
  readonly hooks?: readonly AgentHook[]
}

export class AgentEventValidator {
  readonly #bounds: ClaimBounds
  /** Digests of plans that were handed over or allowed. */
  readonly #allowed = new Set<string>()
  readonly #states = new Map<string, { state: StepState }>()
  /** By path; false when it has ended. */
  readonly #agents = new Map<string, boolean>()
  readonly #hooks: HookEventValidator
  #plan: Plan | null = null
  #revision = 0

  constructor(bounds: ClaimBounds) {
    this.#bounds = bounds
    this.#hooks = new HookEventValidator(bounds.hooks ?? [])
  }

  /** The agent asks the hooks. */
  noteHook(request: HookRequest): void {
    this.#hooks.note(request)
  }

  /** A hook said no to what it asked about. */
  noteRefusal(request: HookRequest): void {
    this.#hooks.noteRefusal(request)
  }

  /** Takes the next event of the agent into account. What is wrong with it, to be read after "the guest sent"; null when nothing is. */
  check(agentPath: string, event: AgentEvent): string | null {
    return this.#hooks.check(agentPath, event) ?? this.#checkState(agentPath, event)
  }

  #checkState(agentPath: string, event: AgentEvent): string | null {
    if (event.type === 'agent-start') return this.#beginAgent(agentPath)
    if (!this.isAtWork(agentPath)) return `${event.type} of ${agentPath}, which is not at work`
    if (agentPath !== 'root') {
      if (event.type === 'agent-end') this.#agents.set(agentPath, false)
      return event.type === 'plan-update' ? `a plan of ${agentPath}: only the run has one` : null
    }
    switch (event.type) {
      case 'agent-end':
        return 'agent-end of root: the run ends by its completion'
      case 'plan-update':
        return this.#takePlan(event.plan, event.revision)
      case 'step-start':
        return this.#startStep(event.stepId)
      case 'step-end':
        return this.#endStep(event.stepId, event.state)
      default:
        return null
    }
  }

  /** A plan may be carried out: a person, a rule or a mode said so. */
  allowPlan(plan: Plan): void {
    this.#allowed.add(digestOf(plan))
  }

  /** Whether a person's plan may be the next one, by what has begun; what is wrong, in words. */
  findPlanProblems(plan: Plan): string[] {
    const room = { maxAgents: this.#bounds.maxAgents, begun: this.#agents.size }
    const states = Object.fromEntries(this.#states)
    return [...this.#findRevisionProblems(plan), ...findAgentProblems(plan, room, states)]
  }

  /** Whether such an agent has begun and has not ended. */
  isAtWork(agentPath: string): boolean {
    return agentPath === 'root' || this.#agents.get(agentPath) === true
  }

  #beginAgent(agentPath: string): string | null {
    const { maxAgents } = this.#bounds
    const parent = agentPath.slice(0, Math.max(0, agentPath.lastIndexOf('/')))
    if (parent === '') return 'agent-start of root: the run itself has begun'
    if (parent !== 'root') return `agent-start of ${agentPath}: a sub-agent has none of its own`
    if (this.#agents.has(agentPath)) return `agent-start of ${agentPath}, which had begun before`
    if (this.#agents.size >= maxAgents)
      return `one agent more than the ${maxAgents} that the run may have (${agentPath})`
    this.#agents.set(agentPath, true)
    return null
  }

  #takePlan(plan: Plan, revision: number): string | null {
    const expected = this.#revision + 1
    if (revision !== expected) return `revision ${revision} of the plan where ${expected} was due`
    if (revision > limits.planMaxRevisions)
      return `revision ${revision} of the plan, where a run has at most ${limits.planMaxRevisions}`
    const { plan: given } = this.#bounds
    const isGiven = given === undefined || digestOf(plan) === digestOf(given)
    if (revision === 1 && !isGiven && !this.#allowed.has(digestOf(plan)))
      return 'another plan than the one that it was handed'
    const [problem] = this.#findRevisionProblems(plan)
    if (problem !== undefined) return `revision ${revision} of the plan, which is none: ${problem}`
    this.#plan = plan
    this.#revision = revision
    return null
  }

  #findRevisionProblems(plan: Plan): string[] {
    return this.#plan === null ? [] : findRevisionProblems(this.#plan, plan, Object.fromEntries(this.#states))
  }

  #startStep(stepId: string): string | null {
    const { mode, approvePlan } = this.#bounds
    if (mode === 'plan') return `the start of step "${stepId}" in a run that only plans`
    if (this.#plan === null) return `the start of step "${stepId}" before any plan`
    if (!this.#has(stepId)) return `the start of step "${stepId}", which its plan does not have`
    if (approvePlan && !this.#allowed.has(digestOf(this.#plan)))
      return `the start of step "${stepId}" of a plan that nobody allowed`
    if (this.#states.has(stepId)) return `the start of step "${stepId}", which had begun before`
    this.#states.set(stepId, { state: 'running' })
    return null
  }

  /** A step that never began ends too, when it is left out. */
  #endStep(stepId: string, state: StepState): string | null {
    if (!this.#has(stepId)) return null
    const was = this.#states.get(stepId)?.state
    if (was !== undefined && was !== 'running') return `the end of step "${stepId}", which had ended before`
    this.#states.set(stepId, { state })
    return null
  }

  #has(stepId: string): boolean {
    return this.#plan?.steps.some(({ id }) => id === stepId) ?? false
  }
}

function digestOf(plan: Plan): string {
  return createHash('sha256').update(toCanonicalJson(plan)).digest('hex')
}
