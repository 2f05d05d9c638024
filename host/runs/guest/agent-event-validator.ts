/**
 * Validates the agent's events about plan and sub-agents against the host's record. A revision keeps started steps, a
 * step needs a known (and approved) plan, and each sub-agent starts once and ends once, below an agent at work, within
 * the limits. Never repairs an event: an invalid one ends the run.
 */
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { addSteps } from '#specs/node/workflow/add-steps.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { AgentHook, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, StepState } from '#specs/protocol/plan.ts'
import { findAgentProblems } from '#specs/protocol/plan-agents.ts'
import { findRevisionProblems } from '#specs/protocol/plan-revision.ts'
import { findStepModelProblems } from '#specs/protocol/run-models.ts'
import type { RunMoment } from '#specs/protocol/run-state.ts'
import type { Workflow } from '#specs/protocol/workflow.ts'
import type { WorkflowAddition } from '#specs/protocol/workflow-format.ts'
import { HookEventValidator } from './hook-claims.ts'

/** A request can arrive before the event that starts its agent. */
const beginningMs = 1_000

/** Settings of the run that events are validated against. */
export interface ClaimBounds {
  readonly mode: 'work' | 'plan'
  /** Whether steps need an approved plan. */
  readonly approvePlan: boolean
  /** The plan given to the agent. Absent: the agent makes its own. */
  readonly plan?: Plan
  /** Names of the models that steps may have. Absent: none. */
  readonly stepModels?: readonly string[]
  /** The workflow of that plan, which changes only by what its steps add. Absent: none. */
  readonly workflow?: Workflow
  readonly maxAgents: number
  /** Depth of sub-agents; 1: none has its own. */
  readonly maxDepth: number
  /** Points at which the agent must call hooks. */
  readonly hooks?: readonly AgentHook[]
}

export class AgentEventValidator {
  readonly #bounds: ClaimBounds
  /** Digests of plans that were given or approved. */
  readonly #allowed = new Set<string>()
  readonly #states = new Map<string, { state: StepState }>()
  /** By agent path; false after the agent has ended. */
  readonly #agents = new Map<string, boolean>()
  readonly #hooks: HookEventValidator
  #plan: Plan | null = null
  #revision = 0
  /** What steps of the workflow have added. */
  #added: readonly WorkflowAddition[] = []

  constructor(bounds: ClaimBounds) {
    this.#bounds = bounds
    this.#hooks = new HookEventValidator(bounds.hooks ?? [])
  }

  /** Begins again with another agent, which continues from there. */
  restore({ plan, revision, added, steps, agents }: RunMoment): void {
    this.#plan = plan
    this.#added = added
    if (plan !== null) this.allowPlan(plan)
    this.#revision = revision
    this.#states.clear()
    for (const [id, { state }] of Object.entries(steps)) {
      if (state === 'pending') continue
      this.#states.set(id, { state })
      if (state === 'running') this.#hooks.noteBegunStep(id)
    }
    this.#agents.clear()
    for (const [agentPath, { state }] of Object.entries(agents))
      this.#agents.set(agentPath, state === 'running')
  }

  /** Records that the agent called the hooks. */
  noteHook(request: HookRequest): void {
    this.#hooks.note(request)
  }

  /** Records that a hook denied the request. */
  noteRefusal(request: HookRequest): void {
    this.#hooks.noteRefusal(request)
  }

  /**
   * Validates the agent's next event and records it.
   * @returns the problem, phrased to follow "the guest sent"; null if the event is valid
   */
  check(agentPath: string, event: AgentEvent): string | null {
    return this.#hooks.check(agentPath, event) ?? this.#checkState(agentPath, event)
  }

  #checkState(agentPath: string, event: AgentEvent): string | null {
    if (event.type === 'agent-start') return this.#beginAgent(agentPath)
    if (!this.isAtWork(agentPath)) return `${event.type} of ${agentPath}, which is not at work`
    if (agentPath !== 'root') {
      if (event.type === 'agent-end') return this.#endAgent(agentPath)
      return event.type === 'plan-update' ? `a plan of ${agentPath}: only the run has one` : null
    }
    switch (event.type) {
      case 'agent-end':
        return 'agent-end of root: the run ends by its completion'
      case 'plan-update':
        return this.#takePlan(event)
      case 'step-start':
        return this.#startStep(event.stepId)
      case 'step-end':
        return this.#endStep(event.stepId, event.state)
      default:
        return null
    }
  }

  /** Records that a person, a rule or a mode approved the plan. */
  allowPlan(plan: Plan): void {
    this.#allowed.add(digestOf(plan))
  }

  /** Lists why a person's plan cannot replace the current one, given the steps that have started. */
  findPlanProblems(plan: Plan): string[] {
    const limits = { maxAgents: this.#bounds.maxAgents, begun: this.#agents.size }
    const states = Object.fromEntries(this.#states)
    return [
      ...this.#findRevisionProblems(plan),
      ...findAgentProblems(plan, limits, states),
      ...findStepModelProblems(plan, this.#bounds.stepModels ?? []),
    ]
  }

  /** Whether this agent has started and not ended. */
  isAtWork(agentPath: string): boolean {
    return agentPath === 'root' || this.#agents.get(agentPath) === true
  }

  /** Whether this agent is at work, or starts within a moment: an inactive one asks nothing and stores nothing. */
  async waitUntilAtWork(agentPath: string): Promise<boolean> {
    if (!this.isAtWork(agentPath)) await sleep(beginningMs)
    return this.isAtWork(agentPath)
  }

  #beginAgent(agentPath: string): string | null {
    const { maxAgents, maxDepth } = this.#bounds
    const parent = parentOf(agentPath)
    if (parent === '') return 'agent-start of root, which is the run itself'
    if (!this.isAtWork(parent)) return `agent-start of ${agentPath}, below an agent that is not at work`
    if (agentPath.split('/').length - 1 > maxDepth)
      return `agent-start of ${agentPath}: sub-agents of this run are at most ${maxDepth} deep`
    if (this.#agents.has(agentPath)) return `a second agent-start of ${agentPath}`
    if (this.#agents.size >= maxAgents)
      return `one agent more than the ${maxAgents} that the run may have (${agentPath})`
    this.#agents.set(agentPath, true)
    return null
  }

  #endAgent(agentPath: string): string | null {
    for (const [below, isAtWork] of this.#agents)
      if (isAtWork && parentOf(below) === agentPath)
        return `agent-end of ${agentPath} before that of ${below}, which it started`
    this.#agents.set(agentPath, false)
    return null
  }

  #takePlan({ plan, revision, added }: Extract<AgentEvent, { type: 'plan-update' }>): string | null {
    const expected = this.#revision + 1
    if (revision !== expected) return `revision ${revision} of the plan where ${expected} was due`
    if (revision > limits.planMaxRevisions)
      return `revision ${revision} of the plan, where a run has at most ${limits.planMaxRevisions}`
    const { plan: given, workflow } = this.#bounds
    if (this.#plan !== null && workflow !== undefined) return this.#takeAddition(plan, workflow, added)
    if (added !== undefined) return 'steps that were added to no workflow'
    const isGiven = given === undefined || digestOf(plan) === digestOf(given)
    if (revision === 1 && !isGiven && !this.#allowed.has(digestOf(plan)))
      return 'another plan than the one that it was handed'
    const [problem] = this.#findRevisionProblems(plan)
    if (problem !== undefined) return `an invalid revision ${revision} of the plan: ${problem}`
    this.#plan = plan
    this.#revision = revision
    return null
  }

  /** The plan must be exactly what this host makes of the addition. */
  #takeAddition(plan: Plan, workflow: Workflow, added: WorkflowAddition | undefined): string | null {
    const revision = this.#revision + 1
    if (added === undefined) return `revision ${revision} of the plan of a workflow, to which no step added`
    const state = this.#states.get(added.by)?.state
    if (state !== 'running') return `steps added by "${added.by}", which is ${state ?? 'pending'}`
    const grown = this.#grow(workflow, added)
    if (!grown.ok) return `an invalid addition to the workflow: ${grown.error[0]}`
    if (digestOf(plan) !== digestOf(grown.value.plan))
      return 'another plan than what follows from the added steps'
    this.#plan = plan
    this.#revision = revision
    this.#added = grown.value.added
    return null
  }

  /** The workflow with all that was added, and this. */
  #grow(workflow: Workflow, addition: WorkflowAddition): ReturnType<typeof addSteps> {
    const { plan, stepModels = [] } = this.#bounds
    if (plan === undefined) return { ok: false, error: ['the workflow has no plan'] }
    const { steps, functions = [] } = workflow
    let grown: ReturnType<typeof addSteps> = { ok: true, value: { plan, steps, functions, added: [] } }
    for (const one of [...this.#added, addition]) if (grown.ok) grown = addSteps(grown.value, one, stepModels)
    return grown
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
      return `the start of step "${stepId}" of a plan that was not approved`
    if (this.#states.has(stepId)) return `a second start of step "${stepId}"`
    this.#states.set(stepId, { state: 'running' })
    return null
  }

  /** A step that never started also ends when a revision removes it. */
  #endStep(stepId: string, state: StepState): string | null {
    if (!this.#has(stepId)) return null
    const was = this.#states.get(stepId)?.state
    if (was !== undefined && was !== 'running') return `a second end of step "${stepId}"`
    this.#states.set(stepId, { state })
    return null
  }

  #has(stepId: string): boolean {
    return this.#plan?.steps.some(({ id }) => id === stepId) ?? false
  }
}

/** Empty for the root agent. */
function parentOf(agentPath: string): string {
  return agentPath.slice(0, Math.max(0, agentPath.lastIndexOf('/')))
}

function digestOf(plan: Plan): string {
  return createHash('sha256').update(toCanonicalJson(plan)).digest('hex')
}
