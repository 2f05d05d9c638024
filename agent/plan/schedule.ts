/**
 * Decides which steps may start: their dependencies ended as required, their condition holds, and no running step
 * writes to the same paths. Accepts another plan that keeps all started steps. Pure; runs nothing.
 */
import { type Plan, type Step, type StepState, waitsOf } from '#specs/protocol/plan.ts'

/** Evaluates the condition of a step whose referenced step has ended. */
export type HoldsCondition = (step: Step) => boolean

/**
 * Whether an ended step leads to one that needs it, in a plan with branches: one open way is enough there. All steps that it
 * needs have ended.
 */
export type IsReached = (step: Step) => boolean

/** A skipped step and the reason: a dependency did not complete, no way leads there, or its condition does not hold. */
export interface SkippedStep {
  readonly step: Step
  readonly because: 'need' | 'way' | 'condition'
}

export class Schedule {
  #plan: Plan
  readonly #maxParallel: number
  readonly #holds: HoldsCondition
  readonly #isReached: IsReached | undefined
  #states = new Map<string, StepState>()
  /** Steps skipped by their own condition: their dependents continue. */
  readonly #setAside = new Set<string>()

  /** @param isReached absent: a step runs once all that it needs has completed */
  constructor(
    plan: Plan,
    maxParallel: number,
    holds: HoldsCondition = () => true,
    isReached?: IsReached | undefined,
  ) {
    this.#plan = plan
    this.#maxParallel = maxParallel
    this.#holds = holds
    this.#isReached = isReached
    this.setPlan(plan)
  }

  /** Replaces the plan by one that contains every started step; all others are pending. */
  setPlan(plan: Plan): void {
    this.#plan = plan
    this.#states = new Map(plan.steps.map(({ id }) => [id, this.stateOf(id)]))
  }

  /** States of all steps, in plan order. */
  get states(): ReadonlyMap<string, StepState> {
    return this.#states
  }

  stateOf(stepId: string): StepState {
    return this.#states.get(stepId) ?? 'pending'
  }

  /** Whether the step was skipped because its own condition did not hold. */
  isSetAside(stepId: string): boolean {
    return this.#setAside.has(stepId)
  }

  /** Marks the next step that may start, in plan order, as running and returns it; undefined when there is none. */
  takeNext(): Step | undefined {
    const running = this.#plan.steps.filter(({ id }) => this.stateOf(id) === 'running')
    if (running.length >= this.#maxParallel) return undefined
    const next = this.#plan.steps.find(
      (step) =>
        this.stateOf(step.id) === 'pending' &&
        this.#isReady(step) &&
        this.#conditionHolds(step) &&
        running.every((other) => !writesOverlap(step.writes, other.writes)),
    )
    if (next !== undefined) this.#states.set(next.id, 'running')
    return next
  }

  end(stepId: string, state: StepState): void {
    this.#states.set(stepId, state)
  }

  /**
   * Skips every pending step that can no longer start, and all that depend on it. Yields each before checking others,
   * since their conditions may refer to it. A condition is evaluated after all dependencies ended, so the order in
   * which steps end does not matter.
   */
  *skipImpossible(): Generator<SkippedStep, void> {
    for (let found = true; found; ) {
      found = false
      for (const step of this.#plan.steps) {
        if (this.stateOf(step.id) !== 'pending') continue
        const because = this.#whyImpossible(step)
        if (because === null) continue
        this.#states.set(step.id, 'skipped')
        if (because === 'condition') this.#setAside.add(step.id)
        found = true
        yield { step, because }
      }
    }
  }

  /** Skips every pending step; returns them. */
  skipRest(): Step[] {
    const rest = this.#plan.steps.filter(({ id }) => this.stateOf(id) === 'pending')
    for (const { id } of rest) this.#states.set(id, 'skipped')
    return rest
  }

  #whyImpossible(step: Step): SkippedStep['because'] | null {
    if (this.#isReached !== undefined) {
      if (!step.needs.every((need) => this.#hasEnded(need))) return null
      if (!this.#isReached(step)) return 'way'
    } else if (step.needs.some((need) => this.#hasEnded(need) && !this.#isMet(need))) return 'need'
    return this.#isReady(step) && !this.#conditionHolds(step) ? 'condition' : null
  }

  #isReady(step: Step): boolean {
    if (this.#isReached !== undefined)
      return step.needs.every((need) => this.#hasEnded(need)) && this.#isReached(step)
    return step.needs.every((need) => this.#isMet(need)) && waitsOf(step).every((id) => this.#hasEnded(id))
  }

  #isMet(stepId: string): boolean {
    return this.stateOf(stepId) === 'completed' || this.#setAside.has(stepId)
  }

  #hasEnded(stepId: string): boolean {
    return !['pending', 'running'].includes(this.stateOf(stepId))
  }

  #conditionHolds(step: Step): boolean {
    return this.#holds(step)
  }
}

/**
 * Whether two path lists may name the same file; `*` matches any characters, a folder matches everything below it.
 */
export function writesOverlap(a: readonly string[], b: readonly string[]): boolean {
  return a.some((one) => b.some((other) => pathsOverlap(one, other)))
}

function pathsOverlap(a: string, b: string): boolean {
  const one = readPattern(a)
  const other = readPattern(b)
  if (one.open && other.open) return one.head.startsWith(other.head) || other.head.startsWith(one.head)
  if (one.open) return other.head.startsWith(one.head) || one.head.startsWith(`${other.head}/`)
  if (other.open) return one.head.startsWith(other.head) || other.head.startsWith(`${one.head}/`)
  return (
    one.head === other.head || one.head.startsWith(`${other.head}/`) || other.head.startsWith(`${one.head}/`)
  )
}

/** The part before the first wildcard; the workspace root and paths with `..` count as any path. */
function readPattern(text: string): { head: string; open: boolean } {
  const names = text
    .replace(/^\/mnt\/workspace(\/|$)/, '')
    .split('/')
    .filter((name) => name !== '' && name !== '.')
  const path = names.join('/')
  const wild = path.search(/[*?[{]/)
  if (names.includes('..') || path === '') return { head: '', open: true }
  return wild < 0 ? { head: path, open: false } : { head: path.slice(0, wild), open: true }
}
