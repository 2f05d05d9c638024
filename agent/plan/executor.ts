/**
 * Executes a plan: runs ready steps in parallel within limits and write conflicts, passes answers to dependent steps,
 * and handles failures as the plan says. Accepts a revised plan whose changes affect only steps that have not
 * started. Returns one value for every way it can end.
 */
import type { Turn } from '#runtime/llm/model.ts'
import { block } from '#specs/node/prompt-block.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type Step, waitsOf } from '#specs/protocol/plan.ts'
import { type Opening, stepOpening } from '../context/opening.ts'
import { atEffort } from '../run/effort.ts'
import { aroundStep } from '../run/hooks.ts'
import type { AgentRun, RunEnding } from '../run/run.ts'
import { atModel } from '../run/step-model.ts'
import { runStep, type StepResult } from '../step/step.ts'
import { describeOutput, settleOutput } from '../step/step-output.ts'
import { truncate, truncateMiddle } from '../text/truncate.ts'
import { WorkflowValues } from '../workflow/values.ts'
import { noteEnd, performStep } from '../workflow/workflow-step.ts'
import { Additions } from './additions.ts'
import { type AgentStepResult, isForAgent, narrowRun, runAgentStep } from './agent-step.ts'
import { lastSteps, planEnding } from './ending.ts'
import { settleAnswer } from './final-answer.ts'
import { holds, resolveInstructions, type StepOutcome } from './outcomes.ts'
import type { FormerPlan } from './parse-plan.ts'
import type { PlanState } from './plan-state.ts'
import { makePlan, type PlanFailure, type Planner } from './planner.ts'
import { Revisions } from './revisions.ts'
import { type HoldsCondition, type IsReached, Schedule, type SkippedStep } from './schedule.ts'
import { workflowEnding } from './workflow-ending.ts'
import { performPart } from './workflow-part.ts'

/** Runs one step; in production `runStep`. */
export type StepRunner = (
  step: Step,
  opening: Opening,
  run: AgentRun,
  signal: AbortSignal,
  begun?: Turn,
) => Promise<StepResult>

interface ExecutorParts {
  readonly performStep: StepRunner
  /** Makes a new plan when a step with `replan` fails. */
  readonly planner: Planner
  /** The first turn of the plan's first step, which the model has taken; absent: none. */
  readonly begun?: Turn | undefined
}

/** Executes the current plan to its end. Reports start and end of every step, also of steps that never ran. */
export function executePlan(
  book: PlanState,
  run: AgentRun,
  parts: Partial<ExecutorParts> = {},
): Promise<RunEnding> {
  return new Execution(book, run, { performStep: runStep, planner: makePlan, ...parts }).finish()
}

type Result = StepResult & Partial<AgentStepResult>

class Execution {
  readonly #book: PlanState
  readonly #run: AgentRun
  readonly #performStep: StepRunner
  readonly #schedule: Schedule
  /** Taken by the first step. */
  #begun: Turn | undefined
  readonly #revisions: Revisions
  readonly #results = new Map<string, Result>()
  /** How steps ended, including those that never ran. */
  readonly #outcomes = new Map<string, StepOutcome>()
  readonly #unplanned = new Map<string, PlanFailure>()
  /** Of a run whose plan is a workflow; else null. */
  readonly #workflow: WorkflowValues | null
  /** What its steps add. */
  readonly #additions: Additions | null
  readonly #running = new Map<string, Promise<string>>()
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  #idle = Promise.withResolvers<null>()

  constructor(book: PlanState, run: AgentRun, parts: ExecutorParts) {
    this.#book = book
    this.#run = run
    this.#performStep = parts.performStep
    this.#begun = parts.begun
    this.#signal = AbortSignal.any([run.signal, this.#stop.signal])
    const { workflow: given, limits: bounds } = run.task
    const workflow = given === undefined ? null : new WorkflowValues(given)
    this.#workflow = workflow
    const conditionHolds: HoldsCondition = ({ id, when }) => {
      if (workflow !== null) return workflow.mayRun(id)
      const outcome = when === undefined ? undefined : this.#outcomes.get(when.step)
      return when === undefined || (outcome !== undefined && holds(when, outcome))
    }
    const isReached: IsReached | undefined =
      workflow === null ? undefined : ({ id }) => workflow.isReached(id)
    this.#schedule = new Schedule(book.plan, bounds.maxParallelSteps, conditionHolds, isReached)
    this.#revisions = new Revisions({
      book,
      run,
      planner: parts.planner,
      former: () => this.#former(),
      onAdopted: (plan) => this.#schedule.setPlan(plan),
      onIdle: () => {
        this.#idle.resolve(null)
        this.#idle = Promise.withResolvers()
      },
      signal: this.#signal,
    })
    this.#additions =
      given === undefined || workflow === null
        ? null
        : new Additions({
            book,
            run,
            workflow: given,
            values: workflow,
            revisions: this.#revisions,
            onAdopted: (plan) => this.#schedule.setPlan(plan),
          })
  }

  async finish(): Promise<RunEnding> {
    for (;;) {
      // Steps that have not started wait for the plan being prepared.
      if (!this.#revisions.isBusy) await this.#startReady()
      if (this.#running.size === 0 && !this.#revisions.isBusy) break
      const ended = await Promise.race([...this.#running.values(), this.#idle.promise])
      if (ended !== null) this.#running.delete(ended)
    }
    for (const { id } of this.#schedule.skipRest()) await this.#skip(id, 'the run ended before this step')
    const executed = {
      plan: this.#book.plan,
      schedule: this.#schedule,
      results: this.#results,
      unplanned: this.#unplanned,
    }
    if (this.#workflow !== null)
      return workflowEnding(
        { plan: this.#book.plan, values: this.#workflow, results: this.#results },
        this.#run,
      )
    const work = this.#lastWork()
    const [only] = work.last
    // A conversation stays with its model.
    const isContinued = work.last.length === 1 && only !== undefined && only.result.history.length > 0
    const run = isContinued ? atModel(this.#run, only.step.model) : this.#run
    return await settleAnswer(planEnding(executed, this.#run), work, run)
  }

  #lastWork(): Parameters<typeof settleAnswer>[1] {
    const { plan } = this.#book
    const completed = plan.steps.filter(({ id }) => this.#schedule.stateOf(id) === 'completed')
    const last = lastSteps(completed).flatMap((step) => {
      const result = this.#results.get(step.id)
      return result === undefined ? [] : [{ step, result }]
    })
    return { plan, last }
  }

  async #startReady(): Promise<void> {
    if (this.#signal.aborted) return
    const skipped: Promise<void>[] = []
    for (const { step, because } of this.#schedule.skipImpossible()) {
      this.#workflow?.skip(step.id, because === 'condition')
      skipped.push(this.#skip(step.id, whySkipped[because]))
    }
    await Promise.all(skipped)
    // A running step may have submitted a revised plan meanwhile.
    while (!this.#signal.aborted && !this.#revisions.isBusy) {
      const next = this.#schedule.takeNext()
      if (next === undefined) break
      this.#running.set(next.id, this.#executeStep(next))
    }
  }

  /** Executes a step with retries; resolves with its id, whatever its outcome. */
  async #executeStep(step: Step): Promise<string> {
    // Before it waits for anything: steps begin in the same order when the run is continued.
    this.#run.callIds.ofStep(step.id)
    await this.#run.steering.ready(this.#signal)
    // A moment to come back to: the event waits for it.
    this.#run.log.mark()
    await this.#run.report.event({ type: 'step-start', stepId: step.id })
    this.#revisions.noteSeen(step.id)
    const ended: Result = await aroundStep(step, this.#run, this.#signal, () => this.#attempt(step))
    const result = this.#workflow === null ? ended : noteEnd(this.#workflow, step.id, ended)
    const { state, text } = result
    this.#results.set(step.id, result)
    this.#schedule.end(step.id, state)
    this.#outcomes.set(step.id, { state, text, ...('value' in result ? { value: result.value } : {}) })
    await this.#reportEnd(step.id, state, text)
    // A denial affects one action: steps that do not depend on it continue, and the run fails at its end.
    if (state === 'failed' && result.reason !== 'denied') await this.#answerFailure(step)
    return step.id
  }

  async #answerFailure({ id, onFailure }: Step): Promise<void> {
    if (onFailure === 'abort') this.#stop.abort()
    if (onFailure !== 'replan' || this.#signal.aborted) return
    const failure = await this.#replan(id)
    if (failure === null || this.#signal.aborted) return
    this.#unplanned.set(id, failure)
    this.#stop.abort()
  }

  async #replan(failedStep: string): Promise<PlanFailure | null> {
    try {
      return await this.#revisions.replan(failedStep)
    } catch (error) {
      this.#run.logger.error({ stepId: failedStep, err: error }, 'replanning threw')
      return { reason: 'internal', message: 'internal error of the agent; its log has the details' }
    }
  }

  /** Retries a failure as often as the step allows; a denial, or a failure that no retry can fix, is final. */
  async #attempt(step: Step): Promise<Result> {
    const workflow = this.#workflow
    if (workflow !== null) return await this.#retry(step, () => this.#performOf(workflow, step))
    const instructions = resolveInstructions(step, this.#outcomes)
    if (!instructions.ok)
      return { state: 'failed', reason: 'step_failed', text: instructions.error, history: [] }
    return await this.#retry(step, (earlier) => {
      const output = isForAgent(step, this.#run) ? undefined : step.output
      return this.#performOnce({
        ...step,
        instructions: composeInstructions(step.id, instructions.value, earlier, output),
      })
    })
  }

  /** @param perform gets what the attempt before it said; null: it is the first */
  async #retry(step: Step, perform: (earlier: string | null) => Promise<Result>): Promise<Result> {
    let earlier: string | null = null
    for (let attempt = 1; ; attempt++) {
      const result = await perform(earlier)
      const isFinal =
        result.state !== 'failed' ||
        result.reason === 'denied' ||
        result.isFinal === true ||
        this.#signal.aborted
      if (isFinal || attempt > (step.retries ?? 0)) return result
      earlier = result.text
      const reason = truncate(result.text, limits.textMaxChars)
      await this.#run.report.event({ type: 'step-retry', stepId: step.id, attempt: attempt + 1, reason })
    }
  }

  async #performOnce(step: Step): Promise<Result> {
    const results = this.#resultsFor(step)
    return await this.#guard(step, async () => {
      const run: AgentRun = {
        ...atEffort(atModel(narrowRun(step, this.#run), step.model), step.effort),
        revisePlan: (plan, reason, signal) => this.#revisions.propose(step.id, plan, reason, signal),
      }
      if (isForAgent(step, run)) return await this.#runAgent(step, results, run)
      const opening = (): ReturnType<typeof stepOpening> =>
        stepOpening(run, { plan: this.#book.plan, step, results, states: this.#schedule.states })
      const begun = this.#begun
      this.#begun = undefined
      const result = await this.#performStep(step, opening, run, this.#signal, begun)
      if (step.output === undefined) return result
      return await settleOutput(result, step.output, step.id, run, this.#signal)
    })
  }

  #performOf(values: WorkflowValues, step: Step): Promise<Result> {
    return this.#guard(step, () =>
      performStep(step, values.stepOf(step.id), values.condition(step.id), {
        values,
        performPart,
        run: this.#additions?.runFor(step.id) ?? this.#run,
        signal: this.#signal,
        converse: this.#performStep,
        historyOf: (id) => {
          const result = this.#results.get(id)
          return result?.state === 'completed' ? result.history : undefined
        },
      }),
    )
  }

  async #guard(step: Step, work: () => Promise<Result>): Promise<Result> {
    try {
      return await work()
    } catch (error) {
      this.#run.logger.error({ stepId: step.id, err: error }, 'step threw')
      const text = 'internal error of the agent; its log has the details'
      return { state: 'failed', reason: 'internal', text, history: [] }
    }
  }

  #runAgent(step: Step, results: Parameters<typeof runAgentStep>[1], run: AgentRun): Promise<Result> {
    const work = () => runAgentStep(step, results, run, this.#signal)
    const name = `agent ${step.id}`
    const once = () => run.log.once(name, work)
    return run.log.hasNext(name) ? once() : run.log.effect('inside', once)
  }

  /** Answers of the steps that `step` waited for, in plan order; skipped steps have none. */
  #resultsFor(step: Step): { stepId: string; text: string }[] {
    const awaited = new Set(waitsOf(step))
    return this.#book.plan.steps.flatMap(({ id }) => {
      const result = awaited.has(id) ? this.#results.get(id) : undefined
      return result === undefined ? [] : [{ stepId: id, text: wholeText(result) }]
    })
  }

  #former(): FormerPlan {
    const states = [...this.#schedule.states].map(([id, state]) => {
      const result = this.#results.get(id)
      const text = result === undefined ? this.#outcomes.get(id)?.text : wholeText(result)
      return [id, { state, text: text ?? '' }] as const
    })
    return { plan: this.#book.plan, states: Object.fromEntries(states) }
  }

  async #skip(stepId: string, why: string): Promise<void> {
    this.#outcomes.set(stepId, { state: 'skipped', text: why })
    await this.#reportEnd(stepId, 'skipped', why)
  }

  #reportEnd(stepId: string, state: StepOutcome['state'], text: string): Promise<void> {
    const bound = truncate(text, limits.documentMaxChars)
    return this.#run.report.event({ type: 'step-end', stepId, state, text: bound })
  }
}

const whySkipped: Readonly<Record<SkippedStep['because'], string>> = {
  need: 'a step that this one needs did not complete',
  way: 'no step led here',
  condition: 'its condition does not hold',
}

/** The step's result as its dependents see it. */
function wholeText({ text, aside = '' }: Result): string {
  return `${text}${aside}`
}

/** Builds the step's complete instructions. */
function composeInstructions(
  stepId: string,
  instructions: string,
  earlier: string | null,
  output: Step['output'],
): string {
  const parts = [instructions]
  if (earlier !== null) {
    const why = block('result', truncateMiddle(earlier, 2_000), ` step="${stepId}"`)
    const head =
      'This step was tried before and failed; what was done to the files then is still there. It said:'
    parts.push(`${head}\n${why}`)
  }
  if (output !== undefined) parts.push(describeOutput(output))
  return parts.join('\n\n')
}
