/**
 * Runs a workflow that is a step of another one: its steps by their own ways and conditions, in the budget of the run. They
 * begin and end no step of the plan; their turns and calls are journaled under ids of their own.
 */
import { createHash } from 'node:crypto'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan, Step } from '#specs/protocol/plan.ts'
import type { WorkflowStep } from '#specs/protocol/workflow.ts'
import { checkOutput } from '../step/step-output.ts'
import { truncate } from '../text/truncate.ts'
import { conclude, resultOf } from '../workflow/conclusion.ts'
import { type Round, WorkflowValues } from '../workflow/values.ts'
import {
  failed,
  noteEnd,
  performStep,
  settleValue,
  type WorkflowParts,
  type WorkflowResult,
} from '../workflow/workflow-step.ts'
import { Schedule } from './schedule.ts'

export async function performPart(
  outer: Step,
  { part: key, input }: NonNullable<WorkflowStep['workflow']>,
  round: Round,
  parts: WorkflowParts,
): Promise<WorkflowResult> {
  const { workflow } = parts.values
  const part = workflow.parts?.[key]
  if (part === undefined) return failed(`workflow: the run has no workflow ${key}`)
  const given = parts.values.json(input, 'workflow.input', round)
  if (!given.ok) return failed(given.error)
  if (part.inputSchema !== undefined) {
    const fits = await checkOutput(given.value, part.inputSchema)
    if (!fits.ok) return failed(`workflow.input: does not fit ${part.name}@${part.version}: ${fits.error}`)
  }
  const { plan, steps, result } = part
  const values = new WorkflowValues({
    input: given.value,
    steps,
    ...(result === undefined ? {} : { result }),
    ...(workflow.parts === undefined ? {} : { parts: workflow.parts }),
  })
  const results = await new PartExecution(outer.id, part.plan, values, parts).finish()
  const { signal } = parts
  if (signal.aborted) return { ...failed('interrupted', 'cancelled'), state: 'cancelled' }
  const { broken } = conclude({ plan, values, results })
  if (broken !== undefined) return failed(broken.why, broken.reason)
  const made = resultOf(plan, values)
  return made.ok ? await settleValue({}, made.value) : failed(made.error)
}

class PartExecution {
  readonly #outerId: string
  readonly #plan: Plan
  readonly #values: WorkflowValues
  readonly #parts: WorkflowParts
  readonly #schedule: Schedule
  readonly #results = new Map<string, WorkflowResult>()
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal

  constructor(outerId: string, plan: Plan, values: WorkflowValues, parts: WorkflowParts) {
    this.#outerId = outerId
    this.#plan = plan
    this.#values = values
    this.#parts = parts
    this.#signal = AbortSignal.any([parts.signal, this.#stop.signal])
    const { maxParallelSteps } = parts.run.task.limits
    this.#schedule = new Schedule(
      this.#plan,
      maxParallelSteps,
      ({ id }) => values.mayRun(id),
      ({ id }) => values.isReached(id),
    )
  }

  async finish(): Promise<ReadonlyMap<string, WorkflowResult>> {
    const running = new Map<string, Promise<string>>()
    for (;;) {
      if (!this.#signal.aborted) {
        for (const { step, because } of this.#schedule.skipImpossible())
          this.#values.skip(step.id, because === 'condition')
        for (let next = this.#schedule.takeNext(); next !== undefined; next = this.#schedule.takeNext())
          running.set(next.id, this.#perform(next))
      }
      if (running.size === 0) return this.#results
      running.delete(await Promise.race(running.values()))
    }
  }

  async #perform(step: Step): Promise<string> {
    await this.#parts.run.steering.ready(this.#signal)
    const result = noteEnd(this.#values, step.id, await this.#attempt(step))
    this.#results.set(step.id, result)
    this.#schedule.end(step.id, result.state)
    if (result.state === 'failed' && result.reason !== 'denied' && step.onFailure === 'abort')
      this.#stop.abort()
    return step.id
  }

  async #attempt(step: Step): Promise<WorkflowResult> {
    const { run } = this.#parts
    const own = { ...step, id: idWithin(this.#outerId, step.id) }
    for (let attempt = 1; ; attempt++) {
      const result = await performStep(own, this.#values.stepOf(step.id), this.#values.condition(step.id), {
        ...this.#parts,
        values: this.#values,
        signal: this.#signal,
        historyOf: (id) => {
          const earlier = this.#results.get(id)
          return earlier?.state === 'completed' ? earlier.history : undefined
        },
      })
      const isFinal = result.state !== 'failed' || result.reason === 'denied' || this.#signal.aborted
      if (isFinal || attempt > (step.retries ?? 0)) return result
      const reason = truncate(result.text, limits.textMaxChars)
      await run.report.event({ type: 'step-retry', stepId: own.id, attempt: attempt + 1, reason })
    }
  }
}

const idMaxChars = 32

/** Readable where it fits. No other step has it: none has two dashes in a row in its own id. */
function idWithin(outer: string, inner: string): string {
  const whole = `${outer}--${inner}`
  if (whole.length <= idMaxChars) return whole
  const digest = createHash('sha256').update(whole).digest('hex').slice(0, 8)
  return `${whole.slice(0, idMaxChars - 10)}--${digest}`
}
