/**
 * What the expressions of a workflow read, and what follows from them: which ways are open, which texts a step gets.
 * Outputs of steps are data: in a text for the model they stand in a block that says so.
 */

import { block } from '#specs/node/prompt-block.ts'
import { type GrownWorkflow, roomOf } from '#specs/node/workflow/add-steps.ts'
import { type ExpressionValues, parseExpression, type StepValue } from '#specs/node/workflow/expression.ts'
import { parseTemplate } from '#specs/node/workflow/template.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { IncomingWay, Workflow, WorkflowStep } from '#specs/protocol/workflow.ts'
import type { WorkflowAddition } from '#specs/protocol/workflow-format.ts'

/** How a step ended. */
export interface EndedStep {
  readonly state: StepValue['state']
  /** Text, or what its schema describes; null when it did not complete. */
  readonly output: unknown
}

/** What a step with `each` or `repeat` reads besides. */
export interface Round {
  readonly item?: unknown
  readonly index?: number
}

interface NotedEnd {
  readonly isSetAside?: boolean
  readonly taken?: number | null
}

/** A path, a number or a name: nothing that could be read as an instruction. */
const plainWord = /^[\p{L}\p{N}_@%+=:,./~-]{1,200}$/u

/** A workflow as it runs: that of the task, or one of its parts. */
export type RunWorkflow = Pick<Workflow, 'steps' | 'result' | 'parts'> & { readonly input: unknown }

export class WorkflowValues {
  #workflow: RunWorkflow
  /** What steps added, by the id of the adding step. */
  #added: readonly WorkflowAddition[] = []
  readonly #ended = new Map<string, EndedStep & Required<NotedEnd>>()
  /** Steps that run when they are reached; those whose condition cannot be evaluated run too, and fail with the reason. */
  readonly #conditions = new Map<string, boolean>()

  constructor(workflow: RunWorkflow) {
    this.#workflow = workflow
  }

  get workflow(): RunWorkflow {
    return this.#workflow
  }

  /** Takes the steps that were added. */
  grow({ steps, added }: Pick<GrownWorkflow, 'steps' | 'added'>): void {
    this.#workflow = { ...this.#workflow, steps }
    this.#added = added
  }

  stepOf(id: string): WorkflowStep {
    const step = this.workflow.steps[id]
    if (step === undefined) throw new TypeError(`the workflow has no step ${id}`)
    return step
  }

  /** @param taken as {@link findTaken} found */
  note(id: string, ended: EndedStep, { isSetAside = false, taken = null }: NotedEnd = {}): void {
    this.#ended.set(id, { ...ended, isSetAside, taken })
  }

  /** @param isSetAside whether its own condition did not hold: what follows it continues */
  skip(id: string, isSetAside: boolean): void {
    const ended = { state: 'skipped', output: null } as const
    const taken = isSetAside ? this.findTaken(id, ended) : null
    this.note(id, ended, { isSetAside, taken: taken?.ok === true ? taken.value : null })
  }

  endOf(id: string): EndedStep | undefined {
    return this.#ended.get(id)
  }

  /** The first case of the step that holds, given how it ended; null: none. */
  findTaken(id: string, ended: EndedStep): Result<number | null, string> {
    const { cases = [] } = this.stepOf(id)
    for (const [index, when] of cases.entries()) {
      if (when === null) return { ok: true, value: index }
      const held = this.#evaluate(when, { [this.stepOf(id).name]: ended })
      if (!held.ok) return { ok: false, error: `nextStep.${index}.when: ${held.error}` }
      if (held.value === true) return { ok: true, value: index }
      if (held.value !== false)
        return {
          ok: false,
          error: `nextStep.${index}.when: gives ${kindOf(held.value)}; expected true or false`,
        }
    }
    return { ok: true, value: null }
  }

  /** Whether one of the ways to the step is open; all their steps have ended. */
  isReached(id: string): boolean {
    const { after } = this.stepOf(id)
    return after.length === 0 || after.some((way) => this.#isOpen(way))
  }

  #isOpen({ step, on, case: wanted }: IncomingWay): boolean {
    const ended = this.#ended.get(step)
    if (ended === undefined) return false
    if (on === 'failed') return ended.state === 'failed'
    return (
      (ended.state === 'completed' || ended.isSetAside) && (wanted === undefined || ended.taken === wanted)
    )
  }

  /** Whether the step's own condition holds, or cannot be evaluated. */
  mayRun(id: string): boolean {
    const known = this.#conditions.get(id)
    if (known !== undefined) return known
    const held = this.condition(id)
    const runs = !held.ok || held.value
    this.#conditions.set(id, runs)
    return runs
  }

  condition(id: string): Result<boolean, string> {
    const { when } = this.stepOf(id)
    return when === undefined ? { ok: true, value: true } : this.holds(when, 'when')
  }

  /** @param path of the expression in the file's step */
  holds(
    source: string,
    path: string,
    round: Round = {},
    own: Readonly<Record<string, StepValue>> = {},
  ): Result<boolean, string> {
    const held = this.#evaluate(source, own, round)
    if (!held.ok) return { ok: false, error: `${path}: ${held.error}` }
    if (typeof held.value === 'boolean') return { ok: true, value: held.value }
    return { ok: false, error: `${path}: gives ${kindOf(held.value)}; expected true or false` }
  }

  evaluate(source: string, path: string, round: Round = {}): Result<unknown, string> {
    const given = this.#evaluate(source, {}, round)
    return given.ok ? given : { ok: false, error: `${path}: ${given.error}` }
  }

  #evaluate(
    source: string,
    own: Readonly<Record<string, StepValue>>,
    round: Round = {},
  ): Result<unknown, string> {
    const parsed = parseExpression(source)
    return parsed.ok ? parsed.value.evaluate(this.#values(own, round)) : parsed
  }

  #values(own: Readonly<Record<string, StepValue>>, round: Round): ExpressionValues {
    const steps = [...this.#ended].map(([id, { state, output }]) => [
      this.stepOf(id).name,
      { state, output, ...this.#addedBy(id) },
    ])
    return { input: this.workflow.input, steps: { ...Object.fromEntries(steps), ...own }, ...round }
  }

  /** The steps that one may add, in its order, as far as they have ended. */
  #addedBy(id: string): Pick<StepValue, 'added'> {
    if (this.stepOf(id).mayAdd === undefined) return {}
    const names = roomOf({ added: this.#added }, id).steps
    const ended = new Map([...this.#ended].map(([one, value]) => [this.stepOf(one).name, value]))
    return {
      added: names.flatMap((name) => {
        const value = ended.get(name)
        return value === undefined ? [] : [{ id: name, state: value.state, output: value.output }]
      }),
    }
  }

  /** A text for the model: what it takes from steps is marked as data. */
  prompt(text: string, path: string, round: Round = {}): Result<string, string> {
    return this.#render(text, path, round, (value, steps) => {
      const said = toText(value)
      const [step] = steps
      if (step === undefined || plainWord.test(said)) return said
      const name = steps.join(', ').replaceAll(/["<>]/g, '')
      return `\n${block('result', said, ` step="${name}"`)}\n`
    })
  }

  /** A text as it stands. */
  text(text: string, path: string, round: Round = {}): Result<string, string> {
    return this.#render(text, path, round, toText)
  }

  #render(
    text: string,
    path: string,
    round: Round,
    say: (value: unknown, steps: readonly string[]) => string,
  ): Result<string, string> {
    const template = parseTemplate(text)
    if (!template.ok) return { ok: false, error: `${path}: ${template.error}` }
    let rendered = ''
    for (const part of template.value.parts) {
      if (typeof part === 'string') rendered += part
      else {
        const value = part.evaluate(this.#values({}, round))
        if (!value.ok) return { ok: false, error: `${path}: {{${part.source.slice(0, 80)}}}: ${value.error}` }
        rendered += say(value.value, part.steps)
      }
      if (rendered.length > limits.documentMaxChars)
        return {
          ok: false,
          error: `${path}: has more than ${limits.documentMaxChars} characters with its values`,
        }
    }
    return { ok: true, value: rendered }
  }

  /** JSON in which texts are templates; a text that is one expression alone becomes its value. */
  json(value: unknown, path: string, round: Round = {}): Result<unknown, string> {
    if (typeof value === 'string') {
      const template = parseTemplate(value)
      const parts = template.ok ? template.value.parts.filter((part) => part !== '') : []
      const [only] = parts
      if (parts.length !== 1 || only === undefined || typeof only === 'string')
        return this.text(value, path, round)
      const given = only.evaluate(this.#values({}, round))
      return given.ok
        ? given
        : { ok: false, error: `${path}: {{${only.source.slice(0, 80)}}}: ${given.error}` }
    }
    if (typeof value !== 'object' || value === null) return { ok: true, value }
    const entries: [string, unknown][] = []
    for (const [key, entry] of Object.entries(value)) {
      const made = this.json(entry, `${path}.${key}`, round)
      if (!made.ok) return made
      entries.push([key, made.value])
    }
    return {
      ok: true,
      value: Array.isArray(value) ? entries.map(([, one]) => one) : Object.fromEntries(entries),
    }
  }
}

/** Text as it is; anything else as JSON. */
export function toText(value: unknown): string {
  return typeof value === 'string' ? value : toCanonicalJson(value)
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'a list' : `a ${typeof value}`
}
