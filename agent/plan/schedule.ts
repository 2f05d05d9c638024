/** Which steps of a plan may start now: their needs are met, and no running step writes what they write. Pure; runs nothing. */
import type { Plan, Step, StepState } from '#specs/protocol/plan.ts'

export class Schedule {
  readonly #plan: Plan
  readonly #maxParallel: number
  readonly #states = new Map<string, StepState>()

  constructor(plan: Plan, maxParallel: number) {
    this.#plan = plan
    this.#maxParallel = maxParallel
    for (const { id } of plan.steps) this.#states.set(id, 'pending')
  }

  /** Of all steps, in the plan's order. */
  get states(): ReadonlyMap<string, StepState> {
    return this.#states
  }

  stateOf(stepId: string): StepState {
    return this.#states.get(stepId) ?? 'pending'
  }

  /** Takes the next step that may start, in the plan's order, and counts it as running; undefined when none may. */
  takeNext(): Step | undefined {
    const running = this.#plan.steps.filter(({ id }) => this.stateOf(id) === 'running')
    if (running.length >= this.#maxParallel) return undefined
    const next = this.#plan.steps.find(
      (step) =>
        this.stateOf(step.id) === 'pending' &&
        step.needs.every((need) => this.stateOf(need) === 'completed') &&
        running.every((other) => !writesOverlap(step.writes, other.writes)),
    )
    if (next !== undefined) this.#states.set(next.id, 'running')
    return next
  }

  end(stepId: string, state: StepState): void {
    this.#states.set(stepId, state)
  }

  /** Skips every pending step that needs, directly or not, a step that did not complete; returns them. */
  skipUnreachable(): Step[] {
    return this.#skipWhere((step) =>
      step.needs.some((need) => ['failed', 'skipped', 'cancelled'].includes(this.stateOf(need))),
    )
  }

  /** Skips every pending step; returns them. */
  skipRest(): Step[] {
    return this.#skipWhere(() => true)
  }

  #skipWhere(isDue: (step: Step) => boolean): Step[] {
    const skipped: Step[] = []
    for (let found = true; found; ) {
      found = false
      for (const step of this.#plan.steps) {
        if (this.stateOf(step.id) !== 'pending' || !isDue(step)) continue
        this.#states.set(step.id, 'skipped')
        skipped.push(step)
        found = true
      }
    }
    return skipped
  }
}

/** Whether two lists of paths may name the same file; `*` stands for any run of characters, a folder for all below it. */
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

/** The part before the first wildcard; the workspace itself, and paths that say `..`, count as any path. */
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
